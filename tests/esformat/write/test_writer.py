"""`create` and `Writer`: wrong use is refused immediately, errors keep earlier events, equal input has equal bytes."""

# ruff: noqa: E501 - tables read better in one line per case

from __future__ import annotations

import gc
import hashlib
import os
import subprocess
import sys
from pathlib import Path

import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from effort import examples
from event_model import event_facts
from event_strategies import Recording, recordings, write_recording
from hypothesis import given
from hypothesis import strategies as st
from small_pieces import cut_small

import esformat
from esformat.errors import ClosedError, InvalidEventError, UsageError
from esformat.format import frame as block


@pytest.fixture
def path(tmp_path):
    """The path of the file under test, alone in its directory."""
    return tmp_path / "a.esdb"


def names(path: Path) -> list[str]:
    """The names of everything in the directory of a path."""
    return sorted(other.name for other in path.parent.iterdir())


def spaces_of(path: Path) -> dict:
    """The spaces of a finished file with their counts."""
    with esformat.open(path) as segment:
        return dict(segment.spaces().items())


def table(space="t", count=2, **columns) -> pa.Table:
    """Some valid events."""
    return pa.table({"space": [space] * count, "timestamp": pa.array(range(count), pa.int64())} | columns)


# ---------------------------------------------------------------- wrong use

WRONG_CREATIONS = [
    ({"keys": "bytes"}, 'keys must be "text" or "binary", not \'bytes\''),
    ({"indexes": "type"}, "indexes must be a list of column names, not the text 'type'"),
    ({"indexes": ["type", "type"]}, "named twice"),
    ({"indexes": ["space"]}, "'space' cannot be the name of an index"),
    ({"indexes": ["timestamp"]}, "'timestamp' cannot be"),
    ({"indexes": [""]}, "'' cannot be the name"),
    ({"indexes": [5]}, "5 cannot be the name"),
    ({"indexes": ["\U0010ffff\ud800"]}, "cannot be the name"),
    ({"properties": {"a": "\ud800"}}, "property 'a' is not Unicode text"),
    ({"codec": "gzip"}, "unknown codec 'gzip'; choose one of none, zstd, lz4"),
    ({"codec": None}, "unknown codec None"),
    ({"codec": "lz4", "level": 3}, "codec 'lz4' has no levels"),
    ({"level": 23}, "zstd level 23 is not between -100 and 22"),
    ({"level": "high"}, "zstd level 'high' is not"),
    ({"frame_bytes": 511}, "frame_bytes must be a whole number from 512 to 1048576, not 511"),
    ({"frame_bytes": (1 << 20) + 1}, "frame_bytes must be"),
    ({"frame_bytes": "4 KiB"}, "frame_bytes must be"),
    ({"threads": 0}, "threads must be a whole number from 1, not 0"),
    ({"threads": -2}, "threads must be a whole number from 1, not -2"),
    ({"properties": {"a": 1}}, "property 'a' must map text to text"),
    ({"schema": pa.schema([("a", pa.int8())]), "indexes": ["b"]}, "no column 'b' to index"),
    ({"schema": {"a": "int8"}}, "schema must be a pyarrow.Schema, not dict"),
]


@pytest.mark.parametrize(("options", "message"), WRONG_CREATIONS, ids=str)
def test_wrong_options(path, options, message):
    """Wrong options are refused before a file is created, with what was found and what is valid."""
    with pytest.raises(UsageError, match=message):
        esformat.create(path, **options)
    assert names(path) == []


def test_schema_that_cannot_be_stored(path):
    """A schema that cannot be stored is an InvalidEventError."""
    with pytest.raises(InvalidEventError, match=r"'a'.*cannot be stored"):
        esformat.create(path, schema=pa.schema([("a", pa.sparse_union([pa.field("x", pa.int8())]))]))
    assert names(path) == []


@pytest.mark.parametrize("end", ["finish", "abort"])
def test_after_the_end(path, end):
    """A finished or aborted writer refuses further events; ending twice has no effect."""
    writer = esformat.create(path)
    writer.add("a", timestamp=1)
    getattr(writer, end)()
    state = {"finish": "finished", "abort": "aborted"}[end]
    for verb in (lambda: writer.add("a", timestamp=2), lambda: writer.add_table(table())):
        with pytest.raises(ClosedError, match=f"a.esdb: the writer is {state}; create another file"):
            verb()
    getattr(writer, end)()
    writer.abort()
    assert names(path) == (["a.esdb"] if end == "finish" else [])
    assert state in repr(writer)
    if end == "abort":
        with pytest.raises(ClosedError, match="the writer is aborted"):
            writer.finish()
    else:
        assert spaces_of(path) == {"a": 1}


FAILING = [
    lambda writer: writer.add("bad", timestamp=1.5),
    lambda writer: writer.add("bad", timestamp=1, indexes={"type": 5}),
    lambda writer: writer.add("bad", timestamp=1, indexes={"typo": "x"}),
    lambda writer: writer.add_table(table("bad", typo=["a", "b"])),
    lambda writer: writer.add_table(table("bad", type=[5.5, 6.5])),
    lambda writer: writer.add_table(table(None)),
    lambda writer: writer.add_table(table("bad").set_column(1, "timestamp", pa.array([1, None]))),
    lambda writer: writer.add_table(table("bad", data=[b"x", None])),
    lambda writer: writer.add_table("nonsense"),
    lambda writer: writer.add_table(table("bad").drop_columns("timestamp")),
]


@pytest.mark.parametrize("fail", FAILING, ids=range(len(FAILING)))
@pytest.mark.parametrize("before", ["event", "table"])
def test_what_fails_changes_nothing(path, fail, before):
    """A refused event or table keeps the earlier ones, and the writer continues."""
    with esformat.create(path, indexes=["type"]) as writer:
        if before == "event":
            writer.add("first", b"1", timestamp=1, indexes={"type": "x"})
        else:
            schema = pa.schema([pa.field("data", pa.binary(), nullable=False)])
            first = table("first", 1, type=["x"]).append_column(schema.field(0), pa.array([b"1"]))
            writer.add_table(first)
        with pytest.raises(InvalidEventError):
            fail(writer)
        assert writer.num_events == 1
        writer.add("last", b"2", timestamp=2, indexes={"type": "y"})
    with esformat.open(path) as segment:
        found = [(event.space, event.data, event.indexes) for event in segment.scan()]
    assert found == [("first", b"1", {"type": "x"}), ("last", b"2", {"type": "y"})]


def test_refused_first_table_decides_nothing(path):
    """A refused first table does not determine the columns."""
    with esformat.create(path) as writer:
        with pytest.raises(InvalidEventError):
            writer.add_table(pa.table({"space": ["a"], "timestamp": ["never"], "x": [1]}))
        writer.add_table(pa.table({"space": ["a"], "timestamp": [1], "y": [2.5]}))
    with esformat.open(path) as segment:
        assert segment.schema.names == ["space", "grouping", "timestamp", "y"]


def test_index_that_the_first_table_does_not_have(path):
    """An index on a missing column is refused with the existing ones."""
    with esformat.create(path, indexes=["type"]) as writer:
        with pytest.raises(UsageError, match="no column 'type' to index; the columns are space, timestamp"):
            writer.add_table(table())
        writer.add_table(table(type=["x", "y"]))
    assert spaces_of(path) == {"t": 2}


class FailingNumber:
    """Raises an error when read."""

    def __init__(self, error):
        self._error = error

    def __index__(self):
        raise self._error


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt, GeneratorExit])
def test_leaving_by_an_error(path, error):
    """An exception in the `with` block passes through; nothing is published and nothing remains."""
    with pytest.raises(error), esformat.create(path) as writer:
        writer.add("a", timestamp=FailingNumber(error))
    assert names(path) == []


def test_forgotten_writer(path):
    """A writer that is never finished leaves nothing once it is garbage-collected."""
    writer = esformat.create(path)
    writer.add("a", timestamp=1)
    assert len(names(path)) == 1
    del writer
    gc.collect()
    assert names(path) == []


def test_finishing_fails(path):
    """If the name was taken meanwhile, `finish` fails, closes the writer and leaves nothing."""
    writer = esformat.create(path)
    writer.add("a", timestamp=1)
    path.write_bytes(b"other")
    with pytest.raises(UsageError, match="the file exists"):
        writer.finish()
    assert names(path) == ["a.esdb"]
    assert path.read_bytes() == b"other"
    with pytest.raises(ClosedError):
        writer.add("a", timestamp=1)


@pytest.mark.parametrize("overwrite", [False, True])
def test_existing_file(path, overwrite):
    """An existing file is an error, or is replaced when the new one is complete; its readers continue to read it."""
    with esformat.create(path) as writer:
        writer.add("old", timestamp=1)
    if not overwrite:
        with pytest.raises(UsageError, match="overwrite=True"):
            esformat.create(path)
        assert spaces_of(path) == {"old": 1}
        return
    with esformat.open(path) as old:
        with esformat.create(path, overwrite=True) as writer:
            writer.add("new", timestamp=1)
            assert spaces_of(path) == {"old": 1}
        assert [event.space for event in old.scan()] == ["old"]
    assert spaces_of(path) == {"new": 1}


# ---------------------------------------------------------------- what is written


def test_no_events(path):
    """A file without events is valid, also with indexes, groupings and a schema."""
    for number, options in enumerate(
        [{}, {"indexes": ["type"]}, {"codec": "none"}, {"schema": pa.schema([("n", pa.int8())]), "indexes": ["n"]}]
    ):
        target = path.with_name(f"{number}.esdb")
        esformat.create(target, **options).finish()
        with esformat.open(target) as segment:
            assert (segment.num_events, segment.num_spaces, segment.min_timestamp, segment.max_timestamp) == (
                0,
                0,
                None,
                None,
            )
            assert list(segment.scan()) == list(segment.scan(reverse=True)) == []
            assert segment.scan().to_table().num_rows == segment.scan(grouping="a", start=0).count() == 0
            assert segment.find("") is None
            assert not segment.may_contain("a")
            assert dict(segment.spaces()) == {}
            for name in segment.indexes:
                assert dict(segment.index_values(name)) == {}
                assert segment.scan_index(name, 5 if name == "n" else "x").count() == 0


def test_statistics_and_counts(path):
    """The statistics of a finished writer agree with the file."""
    with esformat.create(path, indexes=["type"]) as writer:
        assert writer.statistics is None
        writer.add("a", timestamp=5, indexes={"type": "x"})
        writer.add("a", timestamp=-7, grouping="g")
        writer.add_table(table("b", 3, type=["x", "y", None]))
        assert writer.num_events == 5
        assert "5 events, open" in repr(writer)
    facts = writer.statistics
    assert (facts.events, facts.spaces, facts.runs, facts.data_blocks) == (5, 2, 3, 1)
    assert (facts.min_timestamp, facts.max_timestamp) == (-7, 5)
    assert facts.indexes == {"type": {"values": 2, "events": 3}}
    with esformat.open(path) as segment:
        info = segment.info()
    assert [info[name] for name in ("events", "spaces", "groupings", "indexes")] == [5, 2, 3, facts.indexes]


def test_properties_and_options_are_kept(path):
    """Properties with any text, codec and level are stored."""
    properties = {"source": "shop", "ключ": "\0\n значение"}
    with esformat.create(path, properties=properties, level=7, keys="binary") as writer:
        writer.add(b"\xff", timestamp=1)
    with esformat.open(path) as segment:
        assert segment.properties == properties
        info = segment.info()
    assert (info["codec"], info["level"], info["keys"]) == ("zstd", 7, "binary")


def test_levels_make_smaller_files(path):
    """A higher level makes smaller files."""
    rng = np.random.default_rng(3)
    words = [b"word%d " % n for n in range(300)]
    data = [b"".join(words[k] for k in rng.integers(0, 300, 40)) for _ in range(2000)]
    sizes = []
    for level in (-20, 1, 19):
        target = path.with_name(f"{level}.esdb")
        with esformat.create(target, level=level, templates=False) as writer:
            writer.add_table(pa.table({"space": ["a"] * 2000, "timestamp": range(2000), "data": data}))
        sizes.append(target.stat().st_size)
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] > sizes[-1]


def test_larger_frames_hold_the_same_events(path):
    """Larger frames make smaller files with the same events; a file records a frame size other than the default."""
    rng = np.random.default_rng(4)
    data = [f"order {n} of {rng.integers(1 << 40)} took {n % 7} ms".encode() for n in range(3000)]
    table = pa.table({"space": ["a"] * 3000, "timestamp": range(3000), "data": data})
    sizes = []
    for frame_bytes in (None, 1024, 4096, 32 << 10):
        target = path.with_name(f"{frame_bytes}.esdb")
        with esformat.create(target, frame_bytes=frame_bytes, templates=False) as writer:
            writer.add_table(table)
        with esformat.open(target) as segment:
            assert segment.info()["frame_bytes"] == frame_bytes
            assert segment.scan(columns=["data"]).to_table()["data"].to_pylist() == data
            assert [event.data for event in segment["a"].scan(start=1000, end=1003)] == data[1000:1003]
        assert esformat.verify(target).ok
        sizes.append(target.stat().st_size)
    assert sizes[1] > sizes[2] > sizes[3]
    assert 0 <= sizes[2] - sizes[0] <= 100  # in its metadata, which is stored twice


def test_events_and_tables_arrive_in_order(path):
    """Ties keep their order of arrival, whichever method added them."""
    with esformat.create(path) as writer:
        writer.add("a", b"0", timestamp=1)
        writer.add_table(pa.table({"space": ["a", "a"], "timestamp": [1, 1], "data": [b"1", b"2"]}))
        writer.add("a", b"3", timestamp=1)
        writer.add("a", b"4", timestamp=1)
        writer.add_table(pa.table({"space": ["a"], "timestamp": [1], "data": [b"5"]}))
    with esformat.open(path) as segment:
        assert [event.data for event in segment.scan()] == [b"0", b"1", b"2", b"3", b"4", b"5"]


EXPECTED = [("a", "", 1, b"x", {"type": "p"}, {}), ("b", "", -5, b"", {}, {})]
COLUMNS = {"space": ["b", "a"], "timestamp": [-5, 1], "data": [b"", b"x"], "type": [None, "p"]}
TABLES = {
    "pyarrow table": lambda: pa.table(COLUMNS),
    "record batch": lambda: pa.record_batch(COLUMNS),
    "record batch reader": lambda: pa.table(COLUMNS).to_reader(),
    "pandas": lambda: pd.DataFrame(COLUMNS),
    "pandas with categories": lambda: pd.DataFrame(COLUMNS).astype({"space": "category", "type": "category"}),
    "pandas with times": lambda: pd.DataFrame(COLUMNS).assign(timestamp=lambda f: pd.to_datetime(f["timestamp"], unit="us", utc=True)),
    "duckdb relation": lambda: duckdb.sql(
        "SELECT * FROM (VALUES ('b', -5::BIGINT, ''::BLOB, NULL), ('a', 1, 'x'::BLOB, 'p')) AS t(space, timestamp, data, type)"
    ),
    "duckdb with times": lambda: duckdb.sql(
        "SELECT space, make_timestamptz(us) AS timestamp, data, type FROM "
        "(VALUES ('b', -5::BIGINT, ''::BLOB, NULL), ('a', 1, 'x'::BLOB, 'p')) AS t(space, us, data, type)"
    ),
}  # fmt: skip


@pytest.mark.parametrize("make", TABLES.values(), ids=TABLES.keys())
def test_tables_of_other_libraries(path, make):
    """Objects of other libraries with an Arrow interface are accepted directly."""
    with esformat.create(path, indexes=["type"]) as writer:
        writer.add_table(make())
    with esformat.open(path) as segment:
        assert [event_facts(event) for event in segment.scan()] == EXPECTED


def test_a_segment_is_a_table_too(path):
    """A scan can be written directly."""
    with esformat.create(path, indexes=["type"]) as writer:
        writer.add_table(pa.table(COLUMNS))
    again = path.with_name("again.esdb")
    with esformat.open(path) as segment, esformat.create(again, indexes=["type"]) as writer:
        writer.add_table(segment.scan())
    with esformat.open(again) as segment:
        assert [event_facts(event) for event in segment.scan()] == EXPECTED


def test_large_events(path):
    """Events of many megabytes among small ones, and keys of 64 KiB, are read back."""
    large, key = np.random.default_rng(1).bytes(12 << 20), "k" * 65536
    with esformat.create(path) as writer:
        for n, data in enumerate([b"a", large, b"b", b"", large[::-1]]):
            writer.add(key, data, timestamp=n, grouping=key)
    with esformat.open(path) as segment:
        assert [event.data for event in segment[key].scan(reverse=True)] == [large[::-1], b"", b"b", large, b"a"]
        assert segment.scan(start=1, end=3).to_table()["data"].to_pylist() == [large, b"b"]
        assert segment.info()["blocks"]["data"]["count"] > 1


def test_blocks_that_no_reader_would_take(path, monkeypatch):
    """An event beyond the block size (1 GiB, here less) is refused, and nothing is published."""
    monkeypatch.setattr(block, "MAX_BLOCK_BYTES", 4000)
    noise = np.random.default_rng(1).bytes(5000)
    writer = esformat.create(path)
    writer.add("a", noise, timestamp=1)
    with pytest.raises(InvalidEventError, match="larger than the 4000 that a segment can hold; split"):
        writer.finish()
    assert names(path) == []
    with esformat.create(path) as writer:
        writer.add("a", bytes(500_000), timestamp=1)  # small when compressed
    assert spaces_of(path) == {"a": 1}


def test_index_values_of_many_kilobytes(path):
    """Index values of many kilobytes do not make index pages too large."""
    values = [f"{n:05}" + "v" * 30_000 for n in range(300)]
    with esformat.create(path, indexes=["x"], codec="none") as writer:
        writer.add_table(pa.table({"space": ["a"] * 300, "timestamp": range(300), "x": values}))
    with esformat.open(path) as segment:
        assert segment.info()["blocks"]["index"]["count"] == 300
        assert list(segment.index_values("x")) == values
        assert [event.timestamp for event in segment.scan_index("x", values[77])] == [77]


# ---------------------------------------------------------------- equal bytes


@examples(25)
@given(recordings(), st.sampled_from([1, 2, 5]))
def test_same_events_same_bytes(tmp_path_factory, recording: Recording, threads: int):
    """The file does not depend on the number of threads, nor on the batches in which events were added."""
    directory = tmp_path_factory.mktemp("same")
    whole = [("table", len(recording.rows))]
    ways = [
        recording,
        vars_of(recording, threads=threads),
        vars_of(recording, cuts=whole),
        vars_of(recording, cuts=[("events", len(recording.rows))]),
    ]
    with cut_small(recording.pieces):
        for number, way in enumerate(ways):
            write_recording(way, directory / f"{number}.esdb")
    assert len({(directory / f"{number}.esdb").read_bytes() for number in range(len(ways))}) == 1


def vars_of(recording: Recording, **changes: object) -> Recording:
    """A recording with some settings changed."""
    return Recording(**(vars(recording) | changes))


OTHER_PROCESS = """
import sys, esformat
from esformat.parts import hide_pandas
hide_pandas()
with esformat.create(sys.argv[1], indexes=["type", "country"]) as writer:
    for n in range(3000):
        key, kind = f"s{n * 7919 % 100}", f"t{n % 7}"
        indexes = {"type": kind, "country": f"c{n % 90}"}
        writer.add(key, b'{"n": %d}' % n, timestamp=n % 50, grouping=f"g{n % 2}", indexes=indexes)
"""


def test_same_bytes_in_every_process(tmp_path):
    """The file does not depend on the process, its hash seed or the time."""
    sums = set()
    for seed in ("1", "2"):
        environment = os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": str(Path(esformat.__file__).parents[1])}
        target = tmp_path / f"{seed}.esdb"
        subprocess.run([sys.executable, "-c", OTHER_PROCESS, str(target)], check=True, env=environment)
        sums.add(hashlib.sha256(target.read_bytes()).hexdigest())
    assert len(sums) == 1
