"""`Scan` is lazy and repeatable in every form, reads only what it needs, and uses constant memory."""

# ruff: noqa: E501 - tables read better in one line per case

from __future__ import annotations

import datetime as dt
import os
import subprocess
import sys
from itertools import accumulate, islice, pairwise
from pathlib import Path

import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from clicks import TYPES, click_table, frame_of, frame_of_events, write_clicks
from effort import examples, long, share_of
from hypothesis import given
from hypothesis import strategies as st
from small_pieces import Pieces, cut_small

import esformat
from esformat.core.cached_segment import RowSpan
from esformat.read.decode.block_group import BlockGroup
from esformat.read.scan import _first_of
from esformat.write.block_encoder import BLOCK_ROWS


@pytest.fixture
def counted(clicks):
    """The clicks, open, with reads counted from here on."""
    source = esformat.CountingSource(esformat.FileSource(clicks[0]))
    with esformat.open(source) as segment:
        source.reads = source.bytes_read = 0
        yield segment, source


@pytest.fixture
def segment(clicks):
    """The clicks, open."""
    with esformat.open(clicks[0]) as segment:
        yield segment


# ---------------------------------------------------------------- results at full size


def hour(frame: pd.DataFrame, share: float) -> int:
    """The time before which this share of the events lies."""
    return int(frame["timestamp"].quantile(share))


def largest(frame: pd.DataFrame) -> str:
    """The space with the most events."""
    return frame["space"].value_counts().index[0]


def merged(frame: pd.DataFrame) -> pd.DataFrame:
    """Rows of one space in time order, with groupings merged."""
    return frame.sort_values("timestamp", kind="stable")


QUESTIONS = {
    "everything": (lambda s, f: s.scan(), lambda f: f),
    "a tenth of the time": (
        lambda s, f: s.scan(start=hour(f, 0.4), end=hour(f, 0.5)),
        lambda f: f[(f["timestamp"] >= hour(f, 0.4)) & (f["timestamp"] < hour(f, 0.5))],
    ),
    "one grouping": (lambda s, f: s.scan(grouping="web"), lambda f: f[f["grouping"] == "web"]),
    "a frequent value": (lambda s, f: s.scan_index("type", "page"), lambda f: f[f["type"] == "page"]),
    "a rare value": (lambda s, f: s.scan_index("type", "signup"), lambda f: f[f["type"] == "signup"]),
    "two values": (
        lambda s, f: s.scan_index({"type": "cart", "country": "C07"}),
        lambda f: f[(f["type"] == "cart") & (f["country"] == "C07")],
    ),
    "a value and a time": (
        lambda s, f: s.scan_index("country", "C29", end=hour(f, 0.3)),
        lambda f: f[(f["country"] == "C29") & (f["timestamp"] < hour(f, 0.3))],
    ),
    "one space": (lambda s, f: s[largest(f)].scan(), lambda f: merged(f[f["space"] == largest(f)])),
    "one space and grouping": (
        lambda s, f: s[largest(f)].scan(grouping="app"),
        lambda f: f[(f["space"] == largest(f)) & (f["grouping"] == "app")],
    ),
    "one space and value": (
        lambda s, f: s[largest(f)].scan_index("type", "purchase"),
        lambda f: merged(f[(f["space"] == largest(f)) & (f["type"] == "purchase")]),
    ),
    "one space, grouping, value, time": (
        lambda s, f: s[largest(f)].scan_index("type", "search", grouping="web", start=hour(f, 0.5)),
        lambda f: f[(f["space"] == largest(f)) & (f["grouping"] == "web") & (f["type"] == "search") & (f["timestamp"] >= hour(f, 0.5))],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("ask", "expected"), QUESTIONS.values(), ids=QUESTIONS.keys())
def test_answers_at_full_size(clicks, segment, ask, expected):
    """Results are right with the usual sizes of blocks, dictionaries and lists: as columns, as events, counted."""
    frame = clicks[1]
    wanted = expected(frame).reset_index(drop=True)
    assert len(wanted) > 10
    answer = ask(segment, frame)
    assert answer.count() == len(wanted)
    times = np.concatenate(list(answer.times()))
    assert sorted(times.tolist()) == sorted(wanted["timestamp"].astype(np.int64).tolist())
    pd.testing.assert_frame_equal(frame_of(answer), wanted, check_dtype=False)
    pd.testing.assert_frame_equal(frame_of_events(answer), wanted, check_dtype=False)


def test_the_file_has_all_that_files_have(segment):
    """The file has several blocks of each kind, as the test above assumes."""
    blocks = segment.info()["blocks"]
    assert blocks["dictionary"]["count"] == 2
    assert blocks["data"]["count"] > 10
    assert blocks["directory"]["count"] > 3


@pytest.mark.parametrize("name", ["everything", "one grouping", "one space", "a frequent value"])
def test_mirrors_at_full_size(clicks, segment, name):
    """A reverse scan returns the same rows in opposite order."""
    ask, _ = QUESTIONS[name]
    options = {
        "everything": ("scan", {}),
        "one grouping": ("scan", {"grouping": "web"}),
        "a frequent value": ("scan_index", {"name": "type", "value": "page"}),
    }
    forward = frame_of(ask(segment, clicks[1]))
    if name == "one space":
        backward = segment[largest(clicks[1])].scan(reverse=True)
    else:
        verb, given = options[name]
        backward = getattr(segment, verb)(**given, reverse=True)
    expected = forward[::-1].reset_index(drop=True)
    pd.testing.assert_frame_equal(frame_of(backward), expected)
    pd.testing.assert_frame_equal(frame_of_events(backward), expected, check_dtype=False)


def test_index_values_at_full_size(clicks, segment):
    """Index values and their counts are right."""
    for name in ("type", "country"):
        assert dict(segment.index_values(name).items()) == clicks[1][name].value_counts().sort_index().to_dict()


# ---------------------------------------------------------------- forms of a result


def test_forms_agree(segment):
    """Batches, table, stream, pandas and DuckDB have the same rows."""
    answer = segment.scan(start=1_403_534_925_000_000, columns=["timestamp", "type", "space"])
    table = answer.to_table()
    assert table.schema.equals(answer.schema)
    assert answer.column_names == ("timestamp", "type", "space")
    assert pa.Table.from_batches(answer.batches()).equals(table)
    assert answer.to_reader().read_all().equals(table)
    assert pa.table(answer).equals(table)
    pd.testing.assert_frame_equal(answer.to_pandas(), table.to_pandas())
    counted = duckdb.sql("SELECT type, count(*) AS n FROM answer GROUP BY type ORDER BY type").fetchall()
    assert counted == sorted(table["type"].to_pandas().value_counts().items())


def test_nothing_is_read_before_it_is_asked_for(counted):
    """A scan, its schema and its repr read nothing."""
    segment, source = counted
    answers = [segment.scan(), segment.scan_index("type", "page", reverse=True), segment.scan(grouping="web", limit=3)]
    for answer in answers:
        assert answer.schema.names == segment.schema.names
        assert repr(answer).startswith("<esformat.Scan of ")
    assert source.reads == 0


def test_repr(write):
    """The repr shows the query."""
    segment = write([("a", b"", 1)], indexes=["type"])
    name = repr(segment.path)
    assert repr(segment.scan()) == f"<esformat.Scan of {name}>"
    answer = segment.scan_index("type", "page", start=dt.datetime(1970, 1, 1, tzinfo=dt.UTC), limit=5, reverse=True)
    assert repr(answer) == f"<esformat.Scan of {name}, start=0, limit=5, type='page', reverse>"


def test_used_again_and_again(segment):
    """Every use of a scan reads again; parallel uses do not disturb each other."""
    answer = segment.scan_index("type", "cart")
    first, second = iter(answer), iter(answer)
    pairs = [(next(first), next(second)) for _ in range(100)]
    assert all(one == other for one, other in pairs)
    assert answer.count() == answer.to_table().num_rows == sum(1 for _ in answer)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("limit", [1, 6_000, 14_000, 29_000])
def test_a_limit_decodes_little(segment, monkeypatch, limit, reverse):
    """A limit decodes one block for one event, and less than twice what more need, also with `matching`."""
    decoded: list[int] = []
    monkeypatch.setattr(BlockGroup, "__init__", _counting(BlockGroup.__init__, decoded))
    needed = 1 if limit == 1 else limit // BLOCK_ROWS + 2
    assert segment.scan(limit=limit, reverse=reverse).to_table().num_rows == limit
    assert needed // 2 <= sum(decoded) < 2 * needed
    decoded.clear()
    wanted = segment.scan(limit=limit, reverse=reverse).matching(["type"], lambda rows: pa.array([True] * len(rows)))
    assert sum(map(len, wanted)) == limit
    assert sum(decoded) < 2 * needed


def _counting(init, decoded):
    def counted(self, reader, portions):
        decoded.append(len(portions))
        init(self, reader, portions)

    return counted


@pytest.mark.parametrize("limit", [0, 1, 2, 100, 29_999, 30_000, 40_000])
@pytest.mark.parametrize("reverse", [False, True])
def test_limits(clicks, segment, limit, reverse):
    """A limit returns the first rows in the scan's direction."""
    expected = clicks[1][:: -1 if reverse else 1][:limit].reset_index(drop=True)
    answer = segment.scan(limit=np.int64(limit) if reverse else limit, reverse=reverse)
    assert answer.count() == len(expected)
    pd.testing.assert_frame_equal(frame_of(answer), expected, check_dtype=False)


@pytest.mark.parametrize("reverse", [False, True])
def test_no_events_of_the_last_space(write, reverse):
    """A limit of 0 is an empty result in every form, even for the last space."""
    segment = write([("a", b"x", 1), ("b", b"y", 2)])
    for key in ("a", "b"):
        scan = segment[key].scan(reverse=reverse, limit=0)
        assert (list(scan), scan.count(), len(scan.to_table())) == ([], 0, 0)


def test_times_are_half_open(write):
    """Start is inclusive, end exclusive; datetimes of any zone and numbers are equivalent; a range may be empty."""
    segment = write([("a", b"%d" % n, n) for n in range(10)])
    zone = dt.timezone(dt.timedelta(hours=-3))

    def moment(us: int) -> dt.datetime:
        return dt.datetime(1970, 1, 1, tzinfo=dt.UTC).astimezone(zone) + dt.timedelta(microseconds=us)

    for scan in (segment.scan, segment["a"].scan):
        assert [e.timestamp for e in scan(start=3, end=6)] == [3, 4, 5]
        assert [e.timestamp for e in scan(start=moment(3), end=moment(6))] == [3, 4, 5]
        assert [e.timestamp for e in scan(start=np.int64(8))] == [8, 9]
        assert list(scan(start=5, end=5)) == list(scan(start=7, end=2)) == []
        assert scan(start=5, end=5).count() == scan(start=99).count() == 0


def test_events_of_some_columns(segment):
    """Events always have their keys; of the other columns only the requested ones."""
    event = next(iter(segment.scan(columns=["type"])))
    assert event.data is None
    assert (event.space, set(event.indexes), event.columns) == ("customer-1", {"type"}, {})
    event = next(iter(segment["customer-1"].scan(columns=["data", "timestamp"])))
    assert event.data.startswith(b"{")
    assert event.indexes == {}


# ---------------------------------------------------------------- reads


def test_opening_takes_two_reads(clicks):
    """Opening takes one read if the last bytes include everything needed, otherwise two."""
    for opening_bytes, reads in ((None, 1), (64, 2)):
        with cut_small(Pieces(opening_bytes=opening_bytes)):
            source = esformat.CountingSource(esformat.FileSource(clicks[0]))
            with esformat.open(source) as segment:
                assert segment.num_events == 30_000
            assert source.reads == reads


@pytest.mark.parametrize("grouped", share_of([True, False], 2))
def test_point_history_takes_two_reads(tmp_path, grouped):
    """A history takes one read of the directory and one of the data, twice that if it continues in another leaf."""
    table = click_table(40_000)
    path = tmp_path / "clicks.esdb"
    write_clicks(path, table if grouped else table.drop_columns("grouping"))
    events = table["space"].to_pandas().value_counts()
    reads = []
    for space, count in [*events.items()][:20] + share_of(events.items(), 8)[3:]:
        source = esformat.CountingSource(esformat.FileSource(path))
        with esformat.open(source) as segment:
            source.reads = 0
            assert segment[space].scan().to_table().num_rows == count
            reads.append(source.reads)
    assert max(reads) <= 4
    assert sum(count <= 2 for count in reads) >= len(reads) - 2 * 12  # one space at each edge between leaves
    assert reads[1:3] == [2, 2]  # thousands of events


def test_absent_space_costs_one_read(counted):
    """A lookup of an unknown space takes one read of the directory, and none when repeated."""
    segment, source = counted
    assert segment.find("customer-nobody") is None
    assert source.reads == 1
    assert segment.find("customer-nobody") is None
    assert source.reads == 1


def test_the_cache_saves_reads(counted):
    """A repeated query reads nothing."""
    segment, source = counted
    first = [event.data for event in segment["customer-3"].scan(grouping="web")]
    reads = source.reads
    assert [event.data for event in segment["customer-3"].scan(grouping="web")] == first
    assert source.reads == reads


COUNTS = [
    lambda s, f: (s.scan().count(), len(f)),
    lambda s, f: (s.scan(limit=7).count(), 7),
    lambda s, f: (s.scan(reverse=True, limit=99_999).count(), len(f)),
    lambda s, f: (s.scan(start=0).count(), len(f)),
    lambda s, f: (s.scan(end=0).count(), 0),
    lambda s, f: (s.scan_index("type", "page").count(), (f["type"] == "page").sum()),
    lambda s, f: (s.scan_index("type", "signup", reverse=True).count(), (f["type"] == "signup").sum()),
    lambda s, f: (s.scan_index("type", "nothing").count(), 0),
    lambda s, f: (s["customer-1"].scan().count(), (f["space"] == "customer-1").sum()),
    lambda s, f: (s["customer-1"].scan(grouping="web").count(), ((f["space"] == "customer-1") & (f["grouping"] == "web")).sum()),
    lambda s, f: (sum(s.index_values("country").values()), f["country"].notna().sum()),
    lambda s, f: (len(s.spaces()), f["space"].nunique()),
]  # fmt: skip


class Watched(esformat.CountingSource):
    """A source that records the bytes that were read."""

    def __init__(self, source: esformat.Source) -> None:
        super().__init__(source)
        self.seen: list[bytes] = []

    def read_at(self, offset: int, length: int) -> bytes:
        self.seen.append(super().read_at(offset, length))
        return self.seen[-1]


@pytest.mark.parametrize("count", COUNTS, ids=range(len(COUNTS)))
def test_counts_without_reading_events(clicks, count):
    """If metadata, directory or index suffice for a count, no data block is read."""
    source = Watched(esformat.FileSource(clicks[0]))
    with esformat.open(source) as segment:
        source.seen.clear()
        found, expected = count(segment, clicks[1])
    assert found == expected
    assert b"ESBK\x02" not in b"".join(source.seen)  # the beginning of a data block
    with esformat.open(source) as segment:
        next(iter(segment.scan()))
    assert b"ESBK\x02" in b"".join(source.seen)


@pytest.mark.parametrize("columns", [["space"], ["grouping", "space"]])
def test_keys_without_reading_events(clicks, columns):
    """Keys are read from the directory alone: in file order, of a grouping, and in reverse."""
    source = Watched(esformat.FileSource(clicks[0]))
    frame = clicks[1][columns].reset_index(drop=True)
    with esformat.open(source) as segment:
        source.seen.clear()
        pd.testing.assert_frame_equal(segment.scan(columns=columns).to_pandas(), frame, check_dtype=False)
        backwards = segment.scan(columns=columns, reverse=True).to_pandas()
        pd.testing.assert_frame_equal(backwards, frame[::-1].reset_index(drop=True), check_dtype=False)
        assert b"ESBK\x02" not in b"".join(source.seen)
        assert len(segment.scan(columns=columns, start=hour(clicks[1], 0.5), limit=3).to_table()) == 3
    assert b"ESBK\x02" in b"".join(source.seen)


def test_a_short_answer_reads_little(counted):
    """The first event of the file, or the newest of a large space, takes a few reads."""
    segment, source = counted
    next(iter(segment.scan(limit=1)))
    next(iter(segment.scan(limit=1, reverse=True)))
    assert next(segment.scan(limit=1, reverse=True).batches()).num_rows == 1
    list(segment["customer-1"].scan(grouping="web", limit=3, reverse=True))
    assert source.reads <= 9
    assert source.bytes_read < segment.size_bytes / 4


def test_neighbouring_blocks_are_read_together(counted):
    """Adjacent blocks are read together: a full scan takes few reads, and reads nothing twice."""
    segment, source = counted
    assert sum(len(batch) for batch in segment.scan().batches()) == 30_000
    assert source.bytes_read <= 1.1 * segment.size_bytes
    assert source.reads <= 2 * segment.info()["blocks"]["directory"]["count"] + 5


def test_a_time_range_leaves_blocks_out(counted, clicks):
    """Blocks outside the time range are not read."""
    segment, source = counted
    times = clicks[1][clicks[1]["space"] == "customer-1"]["timestamp"]
    list(segment["customer-1"].scan(grouping="web", start=int(times.max())))
    assert source.bytes_read < segment.size_bytes / 4


# ---------------------------------------------------------------- memory

MEMORY = """
import resource, sys
import pyarrow as pa
import esformat
from esformat.parts import hide_pandas
hide_pandas()
pa.set_memory_pool(pa.system_memory_pool())
with esformat.open(sys.argv[1]) as segment:
    for batch in segment.scan().batches():
        break
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    rows = sum(len(batch) for batch in segment.scan(reverse=len(sys.argv) > 2).batches())
    events = sum(1 for _ in segment.scan(limit=rows // 4))
    print(rows, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


def peak_growth(path: Path, *arguments: str) -> tuple[int, int]:
    """The rows of a full scan in a fresh process, and its greatest growth after the first batch, in KiB."""
    environment = os.environ | {"PYTHONPATH": str(Path(esformat.__file__).parents[1])}
    done = subprocess.run(
        [sys.executable, "-c", MEMORY, str(path), *arguments],
        env=environment,
        check=True,
        capture_output=True,
        text=True,
    )
    rows, growth = map(int, done.stdout.split())
    return rows, growth


@pytest.mark.parametrize("direction", [[], pytest.param(["reverse"], marks=long)], ids=["forward", "reverse"])
def test_memory_does_not_grow_with_the_file(tmp_path, direction):
    """A scan of a file eight times as large needs no more memory, although its payloads are 50 MB more."""
    growths = []
    for count in (12_500, 100_000):
        path = tmp_path / f"{count}.esdb"
        rng = np.random.default_rng(1)
        data = pa.FixedSizeBinaryArray.from_buffers(pa.binary(600), count, [None, pa.py_buffer(rng.bytes(600 * count))])
        spaces = pa.array(np.char.add("s", (np.arange(count) // 40).astype(str)))
        with esformat.create(path, codec="none") as writer:
            writer.add_table(pa.table({"space": spaces, "timestamp": np.arange(count), "data": data.cast(pa.binary())}))
        rows, growth = peak_growth(path, *direction)
        assert rows == count
        growths.append(growth)
    assert growths[1] < growths[0] + 30_000, growths


def test_types_of_the_clicks_are_all_there(clicks):
    """The clicks have every type and country that the queries above use."""
    assert sorted(clicks[1]["type"].unique()) == sorted(TYPES)
    assert len(list(islice(clicks[1]["country"].dropna().unique(), 30))) == 30


@examples(100)
@given(st.lists(st.integers(1, 5), max_size=5), st.integers(1, 20), st.booleans())
def test_rows_up_to_a_limit(sizes, count, reverse):
    """Without a filter, blocks beyond the limit are not considered."""
    edges = [0, *accumulate(sizes)]
    row_spans = [RowSpan(n, a, b, a) for n, (a, b) in enumerate(pairwise(edges))]
    directed = row_spans[::-1] if reverse else row_spans
    rows = range(edges[-1])
    expected = rows[::-1][:count] if reverse else rows[:count]
    found = [range(s.first, s.last) for s in _first_of(directed, count, reverse=reverse)]
    assert [row for each in found for row in (reversed(each) if reverse else each)] == [*expected]
    assert all(map(len, found))
