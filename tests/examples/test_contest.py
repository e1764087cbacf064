"""The comparison with other formats: results must be equal, and the sizes of the files are measured."""

from __future__ import annotations

import gzip
import json

import pyarrow as pa
import pytest
from effort import long, share_of

from examples.demo import contest
from examples.demo.clickstream import generate
from examples.demo.contest import DUCKDB, ESDB, PARQUET, EsdbFile, Figure, format_ratio
from examples.demo.errors import DisagreementError
from examples.demo.event_set import EventSet
from examples.demo.peers import DuckDBFile, ParquetFile, gzip_file, write_json_lines


@pytest.fixture(scope="module")
def events():
    return EventSet("clicks", "generated", generate(6_000), ("type", "country"))


@pytest.fixture
def contestants(events, tmp_path):
    figure = contest.measure_writing(events, tmp_path / "x.esdb", tmp_path)
    assert set(figure.by_contestant) == {ESDB, PARQUET, DUCKDB}
    opened = contest.open_contestants(tmp_path / "x.esdb", tmp_path)
    yield opened
    for contestant in opened.values():
        contestant.close()


@long
def test_every_contestant_gives_the_same(events, contestants):
    """Operations are timed for all three formats, after their results were found equal."""
    figures = contest.measure_reading(contestants, events, ("type", "refund"))
    assert len(figures) == 3
    for figure in figures:
        assert set(figure.by_contestant) == {ESDB, PARQUET, DUCKDB}
        assert all(value > 0 for value in figure.by_contestant.values())


def test_histories_over_row_groups(events, contestants):
    """A key with rows in several row groups, or in none, is read completely from Parquet, too."""
    table = events.table
    largest = max(table["space"].value_counts().to_pylist(), key=lambda each: each["counts"])
    assert len(contestants[PARQUET].history(largest["values"])) == largest["counts"]
    assert contestants[PARQUET].history("aaa") == []
    assert contestants[PARQUET].history("zzz") == []
    assert contestants[DUCKDB].history("aaa") == []


@pytest.mark.parametrize("peer", share_of([PARQUET, DUCKDB], 2))
@pytest.mark.parametrize("change", share_of(["one event less", "another payload"], 2))
def test_a_wrong_answer_ends_the_contest(events, tmp_path, contestants, peer, change):
    """A format that misses an event, or returns another payload, invalidates the comparison."""
    table = events.table.slice(1)
    if change == "another payload":
        table = events.table.set_column(2, "data", pa.array([b"?"] * events.num_events))
    contestants[peer].close()
    if peer == PARQUET:
        ParquetFile.write(table, tmp_path / "wrong.parquet", [])
        contestants[peer] = ParquetFile(tmp_path / "wrong.parquet")
    else:
        DuckDBFile.write(table, tmp_path / "wrong.duckdb")
        contestants[peer] = DuckDBFile(tmp_path / "wrong.duckdb")
    with pytest.raises(DisagreementError):
        contest.measure_reading(contestants, events, (events.indexes[0], table["type"][0].as_py()))


def test_sizes(events, tmp_path):
    """Sizes are those of the files, including JSON lines with and without compression."""
    EsdbFile.write(events, tmp_path / "x.esdb")
    sizes = contest.measure_sizes(events, {ESDB: tmp_path / "x.esdb"}, tmp_path)
    assert sizes[ESDB] == (tmp_path / "x.esdb").stat().st_size
    assert sizes[contest.JSON_LINES] > sizes[contest.JSON_LINES_GZIP] > 0


def test_json_lines(tmp_path):
    """Each event is one line; JSON payloads stay JSON, and other bytes become base64."""
    table = pa.table({"space": ["a", 'b"'], "timestamp": pa.array([0, 1], pa.timestamp("us", "UTC"))})
    for data, expected in (
        ([b'{"x": 1}', b"[2]"], [{"x": 1}, [2]]),
        ([b"\xff", b"x"], ["/w==", "eA=="]),
        ([b'{"x": 1}', None], [{"x": 1}, None]),
        ([b"{", b""], ["ew==", ""]),
    ):
        path = tmp_path / "it's.jsonl"
        write_json_lines(table.append_column('da"ta', pa.array(data, pa.binary())), path)
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        assert [line["space"] for line in lines] == ["a", 'b"']
        assert [line['da"ta'] for line in lines] == expected


def test_gzip(tmp_path):
    """The compressed copy has the same bytes."""
    (tmp_path / "a").write_bytes(b"abc" * 1_000_000)
    gzip_file(tmp_path / "a", tmp_path / "a.gz")
    assert gzip.decompress((tmp_path / "a.gz").read_bytes()) == b"abc" * 1_000_000


@pytest.mark.parametrize(("ratio", "text"), [(0.994, "0.99 ×"), (1.5, "1.50 ×"), (24.4, "24 ×"), (1_234.0, "1,234 ×")])
def test_ratios(ratio, text):
    """Ratios have significant digits only."""
    assert format_ratio(ratio) == text


@long
def test_events_without_index_or_payload(tmp_path):
    """Events with only typed columns are compared by their times."""
    table = pa.table(
        {
            "space": ["b", "a", "b"],
            "timestamp": pa.array([3, 2, 1], pa.timestamp("us", "UTC")),
            "price": pa.array([1.5, None, 2.5]),
        }
    )
    events = EventSet("prices", "made up", table, ())
    contest.measure_writing(events, tmp_path / "x.esdb", tmp_path)
    opened = contest.open_contestants(tmp_path / "x.esdb", tmp_path)
    figures = contest.measure_reading(opened, events, None)
    for contestant in opened.values():
        contestant.close()
    assert [figure.work for figure in figures] == [contest.POINT_READ, "Read everything into Arrow"]
    assert isinstance(figures[0], Figure)
