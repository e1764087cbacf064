"""Several files as one: every method returns what a single file of all the events would."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from random import Random

import fsspec
import pyarrow as pa
import pytest
from effort import ALL, examples
from event_model import Question, Row, event_facts
from event_strategies import LAYOUTS, Recording, add_rows, questions, recordings
from hypothesis import given
from hypothesis import strategies as st
from small_pieces import cut_small

import esformat
from esformat.read import union
from esformat.write import ordered_pieces
from tests.esformat.test_model import check_answer, check_listings, check_mirrors


def write_share(recording: Recording, rows: list, path: Path) -> None:
    layout = recording.layout
    with esformat.create(
        path,
        indexes=layout.indexes,
        schema=None if layout.default else layout.schema,
        keys="binary" if recording.binary_keys else "text",
        codec=recording.codec,
        threads=1,
    ) as writer:
        add_rows(writer, recording, rows, "events")


@st.composite
def dealings(draw: st.DrawFn) -> tuple[Recording, int, Random]:
    """Events, a number of files, and a generator that distributes the events.

    Half of the time the events have many ties: few spaces, groupings and moments, so that every rule of order counts.
    """
    recording = draw(recordings())
    deal = Random(draw(st.integers(0, 1 << 32)))
    if draw(st.booleans()):
        layout = LAYOUTS["one index"]
        rows = [
            Row(
                deal.choice([b"a", b"b"]),
                deal.choice([b"", b"g", b"h"]),
                deal.randrange(4),
                {"data": b"%d" % number, "type": deal.choice([None, "x", "y"])},
            )
            for number in range(deal.randrange(120))
        ]
        recording = replace(recording, layout=layout, binary_keys=False, rows=rows)
    return recording, draw(st.integers(1, 6)), deal


@examples(12)
@given(st.data(), dealings())
def test_split_files_answer_like_one(data: st.DataObject, dealing: tuple[Recording, int, Random]) -> None:
    """Events distributed over files at random are read as from one file, in both directions, with any buffer sizes."""
    recording, count, deal = dealing
    dealt: list[list[Row]] = [[] for _ in range(count)]
    for row in recording.rows:
        deal.choice(dealt).append(row)
    all_rows = [row for rows in dealt for row in rows]
    whole = replace(recording, rows=all_rows)
    with tempfile.TemporaryDirectory() as directory, cut_small(recording.pieces), pytest.MonkeyPatch.context() as patch:
        patch.setattr(union, "BUFFERED_ROWS", data.draw(st.sampled_from([1, 8, 1 << 18])))
        patch.setattr(union, "LEAST_ROWS", data.draw(st.sampled_from([1, 3, 512])))
        patch.setattr(union, "LEAST_BYTES", data.draw(st.sampled_from([1, 128 << 10])))
        patch.setattr(union, "BUFFERED_BYTES", data.draw(st.sampled_from([1, 32 << 20])))
        patch.setattr(ordered_pieces, "PIECE_ROWS", data.draw(st.sampled_from([2, 1 << 16])))
        patch.setattr(ordered_pieces, "PIECE_BYTES", data.draw(st.sampled_from([20, 8 << 20])))
        patch.setattr("esformat.read.collection.scan.FEW_FILES", data.draw(st.sampled_from([1, 4])))
        for number, rows in enumerate(dealt):
            write_share(recording, rows, Path(directory) / f"{number}.esdb")
        with esformat.open_many(
            directory, max_open=data.draw(st.sampled_from([1, 2, 100])), cache_bytes=recording.cache_bytes
        ) as many:
            assert len(many.paths) == count
            check_listings(many, whole.model)
            check_mirrors(many)
            for space in [None, *{row.space for row in all_rows}]:
                check_answer(many, whole.model, Question(space))
            for asked in data.draw(st.lists(questions(whole), min_size=1, max_size=3)):
                check_answer(many, whole.model, asked)


# ------------------------------------------------------------ many files


@pytest.fixture(scope="module")
def daily(tmp_path_factory):
    """60 files of a day each; a space in all of them, one in every tenth, and one in each file alone."""
    directory = tmp_path_factory.mktemp("daily")
    for day in range(60):
        with esformat.create(directory / f"{day:03}.esdb", indexes=["type"]) as writer:
            for number in range(20):
                moment = day * 1000 + number
                writer.add("everywhere", b"e%d" % moment, timestamp=moment, indexes={"type": f"t{number % 3}"})
                if day % 10 == 0:
                    writer.add("some", b"s%d" % moment, timestamp=moment, grouping=f"g{number % 2}")
            writer.add(f"only-{day:03}", b"x", timestamp=day * 1000 + 500)
    return directory


class Opened:
    """Records which files are opened and read within a block."""

    def __init__(self, monkeypatch):
        self.names = []
        original = esformat.read.collection.members.Members._open

        def opening(members, number):
            self.names.append(number)
            return original(members, number)

        monkeypatch.setattr(esformat.read.collection.members.Members, "_open", opening)

    def take(self):
        taken, self.names = sorted(set(self.names)), []
        return taken


def test_files_that_cannot_answer_are_not_opened(daily, monkeypatch):
    """Files that a filter, key span or time span excludes are not opened; what was read of them is kept."""
    opened = Opened(monkeypatch)
    with esformat.open_many(daily, max_open=1) as many:
        assert opened.take() == list(range(60))
        assert "nobody" not in many  # reads every filter once
        opened.take()
        assert many.find("zzz") is None
        assert many.find("nobody-else") is None
        assert opened.take() == []
        assert many["only-017"].num_events == 1
        assert opened.take() == [17]
        assert [event.timestamp for event in many["only-017"].scan()] == [17_500]
        assert set(opened.take()) <= {17}
        assert many.scan(start=3000, end=5000).count() == 42
        assert opened.take() == [3, 4]
        assert [e.data for e in many["everywhere"].scan(start=7018, end=8002)] == [
            b"e7018",
            b"e7019",
            b"e8000",
            b"e8001",
        ]
        assert set(opened.take()) >= {7, 8}
        some = many["some"]
        opened.take()
        assert len(list(some.scan(start=20_000, end=30_000))) == 20
        assert opened.take() == [20]
        assert (some.num_events, dict(some.groupings().items())) == (120, {"g0": 60, "g1": 60})


def test_limit_opens_no_more_than_needed(daily, monkeypatch):
    """Files that follow each other in time are opened one after another, from either end."""
    opened = Opened(monkeypatch)
    with esformat.open_many(daily, max_open=1) as many:
        space = many["everywhere"]
        opened.take()
        assert [e.timestamp for e in space.scan(reverse=True, limit=3)] == [59_019, 59_018, 59_017]
        assert len(opened.take()) <= 3
        assert [e.timestamp for e in space.scan(limit=22)][-2:] == [1000, 1001]
        assert len(opened.take()) <= 5


MANY = """
import resource, sys
import esformat
from esformat.parts import hide_pandas
hide_pandas()
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
with esformat.open_many(sys.argv[1], max_open=16) as many:
    count = len(many.paths)
    assert count == int(sys.argv[2])
    def times_of(scan):
        return scan.to_table()["timestamp"].cast("int64").to_pylist()
    times = times_of(many["all"].scan(columns=["timestamp"]))
    assert times == sorted(times) and len(times) == 2 * count
    assert times[::-1] == times_of(many["all"].scan(columns=["timestamp"], reverse=True))
    assert many.num_events == 2 * count and many.num_spaces == 1
print("fine")
"""


def test_many_files_with_few_handles(tmp_path):
    """Many files that overlap in time are read by a process with at most 64 open files."""
    files = 1000 if ALL else 200
    for number in range(10):
        path = tmp_path / f"{number:04}.esdb"
        with esformat.create(path, codec="none") as writer:
            writer.add("all", b"", timestamp=number)
            writer.add("all", b"", timestamp=5000 - number)
        for copy in range(number + 10, files, 10):
            shutil.copyfile(path, tmp_path / f"{copy:04}.esdb")
    command = [sys.executable, "-c", MANY, str(tmp_path), str(files)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout == "fine\n", done.stderr[-2000:]


def test_a_thousand_streams_are_merged_in_few_rounds(monkeypatch):
    """Merging many streams takes few sorts, each of many rows from every stream, so that work grows with rows alone."""
    sorts = []
    original = union._sorted_union

    def counting(*arguments):
        sorts.append(1)
        return original(*arguments)

    monkeypatch.setattr(union, "_sorted_union", counting)

    count = 1_000_000 if ALL else 200_000

    def stream(place):
        times = pa.array(range(place, count, 500), pa.int64()).cast(pa.timestamp("us", "UTC"))
        batch = pa.RecordBatch.from_arrays([times], ["timestamp"])
        return union.Stream((place,), place, lambda: (batch.slice(at, 200) for at in range(0, len(batch), 200)))

    merged = pa.Table.from_batches(union.union([stream(place) for place in range(500)], ["timestamp"]))
    times = merged["timestamp"].cast(pa.int64()).to_pylist()
    assert times == list(range(count))
    assert len(sorts) < 20


# ------------------------------------------------------------ schemas


def write_one(path, columns, rows, **options):
    names = [field.name for field in columns]
    table = pa.table({"space": ["s"] * len(rows), "timestamp": pa.array([row[0] for row in rows], pa.int64())})
    for place, name in enumerate(names, start=1):
        table = table.append_column(
            columns.field(name), pa.array([row[place] for row in rows], columns.field(name).type)
        )
    with esformat.create(path, schema=columns, **options) as writer:
        writer.add_table(table)


def test_columns_are_united_by_name(tmp_path):
    """Missing columns are null, narrow types widen; a column is indexed if all files that have it index it."""
    write_one(
        tmp_path / "1.esdb", pa.schema([("a", pa.int32()), ("kind", pa.string()), ("plain", pa.string())]),
        [(1, 5, "x", "p")], indexes=["kind", "plain"],
    )  # fmt: skip
    write_one(tmp_path / "2.esdb", pa.schema([("a", pa.int64()), ("plain", pa.string())]), [(2, 1 << 40, "p")])
    write_one(
        tmp_path / "3.esdb", pa.schema([("kind", pa.large_string()), ("b", pa.list_(pa.int8()))]), [(0, "x", [1])],
        indexes=["kind"],
    )  # fmt: skip
    with esformat.open_many(tmp_path) as many:
        assert many.schema.names == ["space", "grouping", "timestamp", "a", "kind", "plain", "b"]
        assert many.indexes == ("kind",)
        assert [many.schema.field(n).type for n in "ab"] == [pa.int64(), pa.list_(pa.int8())]
        rows = many.scan(columns=["a", "kind", "plain", "b"]).to_table().to_pylist()
        assert rows == [
            {"a": None, "kind": "x", "plain": None, "b": [1]},
            {"a": 5, "kind": "x", "plain": "p", "b": None},
            {"a": 1 << 40, "kind": None, "plain": "p", "b": None},
        ]
        assert [e.timestamp for e in many["s"].scan_index("kind", "x")] == [0, 1]
        assert dict(many.index_values("kind").items()) == {"x": 2}
        assert [event.columns["a"] for event in many["s"].scan()] == [None, 5, 1 << 40]
        with pytest.raises(esformat.UnknownIndexError):
            many.scan_index("plain", "p")
        assert many.scan(columns=["b"], limit=1).to_table().to_pylist() == [{"b": [1]}]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (pa.int32(), pa.uint32()), (pa.string(), pa.binary()), (pa.int64(), pa.float64()),
        (pa.list_(pa.int8()), pa.list_(pa.int16())), (pa.timestamp("us", "UTC"), pa.timestamp("ms", "UTC")),
    ],
)  # fmt: skip
def test_types_that_do_not_go_together(tmp_path, one, other):
    """Incompatible types are refused with the column, both files and both types."""
    write_one(tmp_path / "1.esdb", pa.schema([("a", one)]), [(1, None)])
    write_one(tmp_path / "2.esdb", pa.schema([("a", other)]), [(2, None)])
    with pytest.raises(esformat.UsageError) as raised:
        esformat.open_many(tmp_path)
    for said in ("'a'", "1.esdb", "2.esdb", str(one), str(other)):
        assert said in str(raised.value)


def test_keys_that_do_not_go_together(tmp_path):
    """Text and binary keys, which have no common order, are refused."""
    for name in ("text", "binary"):
        with esformat.create(tmp_path / f"{name}.esdb", keys=name) as writer:
            writer.add(b"a", b"", timestamp=1) if name == "binary" else writer.add("a", b"", timestamp=1)
    with pytest.raises(esformat.UsageError, match=r"binary\.esdb has binary keys and .*text\.esdb has text keys"):
        esformat.open_many(tmp_path)


# ------------------------------------------------------------ life cycle


def test_between_two_commits(tmp_path):
    """A directory shows the result of the last commit, without pending or replaced files."""
    for name in ("old", "new", "other"):
        with esformat.create(tmp_path / f"{name}.esdb") as writer:
            writer.add(name, b"", timestamp=1)
    record = tmp_path / "_pending-0123456789"
    record.write_text('{"added": ["new.esdb"], "removed": ["old.esdb"], "forgotten": [], "facts": {}}')
    with esformat.open_many(tmp_path) as collection:
        assert list(collection.spaces()) == ["old", "other"]
    record.rename(tmp_path / "_replacing-0123456789")
    with esformat.open_many(tmp_path) as collection:
        assert list(collection.spaces()) == ["new", "other"]


def test_closed(daily):
    """After `close`, scans and other methods raise ClosedError; closing twice has no effect."""
    many = esformat.open_many(daily, max_open=2)
    events = iter(many.scan())
    next(events)
    many.close()
    many.close()
    with pytest.raises(esformat.ClosedError):
        list(many.scan())
    with pytest.raises(esformat.ClosedError):
        many.find("everywhere")


def test_closed_in_a_store(daily):
    """The same is true of a store, whose files are read in parallel."""
    memory = fsspec.filesystem("memory")
    for name in ("000.esdb", "001.esdb"):
        memory.pipe_file(f"/daily/{name}", (daily / name).read_bytes())
    many = esformat.open_many((memory, "/daily/*.esdb"))
    space = many["everywhere"]
    assert len(list(space.scan())) == 40
    many.close()
    for verb in (lambda: many.find("everywhere"), lambda: list(space.scan()), lambda: many.scan(reverse=True).count()):
        with pytest.raises(esformat.ClosedError):
            verb()


def test_replaced_file(tmp_path):
    """A file that was replaced is an error, never a mix."""
    for number in range(3):
        with esformat.create(tmp_path / f"{number}.esdb") as writer:
            writer.add("s", b"old", timestamp=number)
    with esformat.open_many(tmp_path, max_open=1) as many:
        with esformat.create(tmp_path / "1.esdb", overwrite=True) as writer:
            writer.add("s", b"new", timestamp=1)
        with pytest.raises(esformat.SegmentChangedError, match=r"1\.esdb"):
            list(many.scan())
        (tmp_path / "1.esdb").unlink()
        with pytest.raises(esformat.SegmentChangedError, match=r"1\.esdb"):
            many["s"].scan().to_table()


def test_wrong_arguments(daily):
    """Wrong arguments are refused immediately, as by a single file."""
    with esformat.open_many(daily) as many:
        for wrong in ({"limit": -1}, {"columns": ["nothing"]}, {"start": "yesterday"}):
            with pytest.raises(ValueError, match=r"limit|nothing|start"):
                many.scan(**wrong)
        with pytest.raises(esformat.UnknownIndexError):
            many.scan_index("colour", "red")
        with pytest.raises(esformat.SpaceNotFoundError):
            many["nobody"]
        with pytest.raises(KeyError):
            many.spaces()["nobody"]
        assert many.spaces("some")["some"] == 120
        assert many.index_values("type")["t0"] == 7 * 60
        with pytest.raises(KeyError):
            many.index_values("type")["t9"]
        assert many["everywhere"].key in repr(many["everywhere"])
        assert "60 files" in repr(many)
    for wrong in (0, True, "3"):
        with pytest.raises(esformat.UsageError):
            esformat.open_many(daily, max_open=wrong)


def test_one_file_is_as_good_as_alone(clicks):
    """A collection of one file agrees with the file."""
    path, _ = clicks
    with esformat.open_many(path) as many, esformat.open(path) as one:
        assert (many.num_events, many.num_spaces, many.size_bytes) == (one.num_events, one.num_spaces, one.size_bytes)
        assert many.scan().to_table().equals(one.scan().to_table())
        space = next(iter(one.spaces()))
        assert [event_facts(e) for e in many[space].scan()] == [event_facts(e) for e in one[space].scan()]


def test_spans_of_keys_are_read_one_after_another(tmp_path, monkeypatch):
    """Files with separate spaces are read in order without sorting, however they are listed."""
    for number, letters in enumerate(["mn", "ab", "xy"]):
        with esformat.create(tmp_path / f"{number}.esdb") as writer:
            for letter in letters:
                writer.add(letter, b"", timestamp=1)
    monkeypatch.setattr(union, "_codes", None)  # nothing is sorted
    with esformat.open_many(tmp_path) as many:
        spaces = [event.space for event in many.scan()]
        assert spaces == list("abmnxy")
        assert [event.space for event in many.scan(reverse=True)] == spaces[::-1]
        assert all(a < b for a, b in pairwise(many.spaces()))
