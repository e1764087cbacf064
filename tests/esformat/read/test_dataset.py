"""A segment as a `pyarrow.dataset.Dataset`: exact for every filter, without reading more blocks than needed."""

from __future__ import annotations

import pickle
import subprocess
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import duckdb
import make_damaged
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pytest
from clicks import click_table, in_file_order, write_clicks
from effort import examples, share_of
from event_strategies import VALUES, Recording, recordings, write_recording
from hypothesis import event, given, note
from hypothesis import strategies as st
from small_pieces import Pieces, cut_small

import esformat
import esformat.read.dataset
from esformat.format.directory import block_handle
from esformat.format.frame import FRAME_BYTES
from esformat.read.blocks.reader import Reader
from esformat.read.selection import MANY_SPACES

SPACE, TYPE, TIME = pc.field("space"), pc.field("type"), pc.field("timestamp")
NULL = pa.scalar(None, pa.bool_())
ROWS = 16  # per block, in tests that count blocks


# ---------------------------------------------------------------- exact results


@st.composite
def comparisons(draw: st.DrawFn, recorded: Callable[[], Recording]) -> pc.Expression:
    """One condition on one column, in a form that people and engines write.

    recorded: returns the recording, which as an argument would appear in hypothesis's output.
    """
    recording = recorded()
    key_type = pa.binary() if recording.binary_keys else pa.string()
    shown = recording.model.shown
    pools: dict[str, tuple[pa.DataType, list[Any]]] = {
        "space": (key_type, [shown(row.space) for row in recording.rows]),
        "grouping": (key_type, [shown(row.grouping) for row in recording.rows]),
        "timestamp": (pa.timestamp("us", "UTC"), [row.timestamp for row in recording.rows]),
    }
    for column in recording.layout.columns:
        if column.type in VALUES and not pa.types.is_nested(column.type):
            pools[column.name] = (column.type, [row.values[column.name] for row in recording.rows])
    name = draw(st.sampled_from(sorted(pools)))
    kind, known = pools[name]
    other = VALUES.get(kind, VALUES[pa.int64()] if pa.types.is_timestamp(kind) else VALUES[pa.string()])
    value = st.sampled_from(known) | other if known else other
    field = pc.field(name)
    form = draw(st.sampled_from(["compare", "flipped", "isin", "duckdb", "null", "valid", "other type", "bare"]))
    if form in ("isin", "duckdb"):
        listed = pa.array(draw(st.lists(value | st.none(), max_size=5)), kind)
        if form == "isin":
            return field.isin(listed)
        return pc.if_else(field.is_valid(), field.isin(listed.drop_null()), NULL)
    if form in ("null", "valid"):
        return field.is_null() if form == "null" else field.is_valid()
    if form == "bare":
        return field if pa.types.is_boolean(kind) else draw(st.sampled_from([pc.scalar(True), pc.scalar(False)]))
    scalar = pa.scalar(draw(value), kind)
    if form == "other type":
        wider = {pa.string(): pa.large_string(), pa.int8(): pa.int64(), pa.large_string(): pa.string()}
        if pa.types.is_timestamp(kind) and scalar.is_valid:
            scalar = pa.scalar(scalar.value // 7, pa.timestamp(draw(st.sampled_from(["ns", "ms", "s"])), "UTC"))
        elif scalar.is_valid:  # pyarrow crashes on a null text of the other kind
            scalar = pa.scalar(scalar.as_py(), wider.get(kind, kind))
    operator = draw(st.sampled_from(["__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__"]))
    return getattr(pc.scalar(scalar), operator)(field) if form == "flipped" else getattr(field, operator)(scalar)


def filters(recording: Recording) -> st.SearchStrategy[pc.Expression]:
    """Conditions combined with AND, OR, NOT and IF."""
    return st.recursive(
        comparisons(lambda: recording),
        lambda inner: st.one_of(
            st.builds(lambda a, b: a & b, inner, inner),
            st.builds(lambda a, b: a | b, inner, inner),
            st.builds(lambda a, b, c: pc.if_else(a, b, c), inner, inner, inner),
            st.builds(lambda a: ~a, inner),
        ),
        max_leaves=6,
    )


@examples(60)
@given(st.data(), recordings())
def test_filter_is_pyarrows(data, recording):
    """Any filter keeps the rows that pyarrow keeps of all rows, however little of the file is read."""
    with tempfile.TemporaryDirectory() as directory, cut_small(recording.pieces):
        path = Path(directory) / "events.esdb"
        write_recording(recording, path)
        with esformat.open(path, cache_bytes=recording.cache_bytes) as segment:
            table = segment.scan().to_table()
            events, coded, everything = segment.dataset(), segment.dataset(dictionaries=True), ds.dataset(table)
            for filter in data.draw(st.lists(filters(recording), min_size=1, max_size=4)):
                note(f"{filter}")
                names = data.draw(st.none() | st.lists(st.sampled_from(table.column_names), unique=True))
                try:
                    expected = everything.to_table(columns=names, filter=filter)
                except pa.ArrowInvalid as error:  # such as a timestamp that does not fit the other's unit
                    event(f"pyarrow refuses: {str(error)[:40]}")
                    continue
                found = events.to_table(columns=names, filter=filter)
                assert found.equals(expected)
                assert found.schema.equals(expected.schema)
                found.validate(full=True)
                assert events.count_rows(filter=filter) == len(expected)
                if names != []:  # pyarrow returns too many rows when it slices a table without columns
                    assert events.head(2, columns=names, filter=filter).equals(expected.slice(0, 2))
                assert events.filter(filter).to_table(columns=names).equals(expected)
                given = coded.to_table(columns=names, filter=filter)
                assert given.schema.equals(coded.scanner(columns=names).projected_schema)
                assert without_dictionaries(given).equals(expected) or (names == [] and len(given) == len(expected))
                spaces = data.draw(st.lists(st.sampled_from(table["space"].to_pylist()))) if len(table) else []
                within = coded.of_spaces(spaces).filter(filter)
                expected = everything.to_table(filter=SPACE.isin(pa.array(spaces, table["space"].type)) & filter)
                assert without_dictionaries(within.to_table()).equals(expected)
                assert without_dictionaries(within.head(2)).equals(expected.slice(0, 2))
                assert within.count_rows() == len(expected)


def without_dictionaries(table: pa.Table) -> pa.Table:
    """The same table with plain text instead of dictionaries."""
    table.validate(full=True)
    fields = [
        field.with_type(field.type.value_type) if pa.types.is_dictionary(field.type) else field
        for field in table.schema
    ]
    return table.cast(pa.schema(fields))


def test_text_in_dictionaries(tmp_path):
    """Spaces and indexes with codes are returned as dictionaries, including rows that the writer stopped coding."""
    rows = 40_000
    columns = {
        "space": [f"customer-{n % 700}" for n in range(rows)],
        "grouping": [""] * rows,
        "timestamp": pa.array(range(rows), pa.timestamp("us", "UTC")),
        "few": [None if n % 5 == 0 else f"kind {n % 7}" for n in range(rows)],
        "many": [f"value {n}" for n in range(rows)],
        "data": [b"x"] * rows,
    }
    with esformat.create(tmp_path / "events.esdb", indexes=["few", "many"]) as writer:
        writer.add_table(pa.table(columns))
    with esformat.open(tmp_path / "events.esdb") as segment:
        coded = segment.dataset(dictionaries=True)
        dictionaries = {field.name for field in coded.schema if pa.types.is_dictionary(field.type)}
        assert dictionaries == {"space", "few"}
        assert without_dictionaries(coded.to_table()).equals(segment.scan().to_table())
        assert coded.tally(["few"], "count") is not None
        assert coded.of_spaces(["customer-7"]).tally(["few"], "count") is None
        kinds = {None if few is None else few.as_py() for few in coded.to_table()["few"].chunk(0).dictionary}
        assert None not in kinds
        with duckdb.connect() as connection:
            connection.register("plain", segment.dataset())
            connection.register("coded", coded)
            for query in (
                "SELECT few, count(*), count(DISTINCT space), max(timestamp) FROM {} GROUP BY 1 ORDER BY 1",
                "SELECT space, count(few), min(many) FROM {} WHERE few IS NULL OR few > 'kind 3' GROUP BY 1 ORDER BY 1",
                "SELECT a.space, count(*) FROM {} a JOIN {} b USING (space, timestamp) "
                "WHERE b.few = 'kind 1' GROUP BY 1 ORDER BY 1",
            ):
                assert connection.sql(query.format("coded", "coded")).fetchall() == (
                    connection.sql(query.format("plain", "plain")).fetchall()
                )


# ---------------------------------------------------------------- blocks that are read


class Recorded:
    """A source that records which ranges are read."""

    def __init__(self, source: esformat.Source) -> None:
        self._source = source
        self.name, self.size = source.name, source.size
        self.spans: list[tuple[int, int]] = []

    def read_at(self, offset: int, length: int) -> bytes:
        self.spans.append((offset, offset + length))
        return self._source.read_at(offset, length)


class Watched:
    """An open file, its data blocks, and which of its blocks are read."""

    def __init__(self, path: Path) -> None:
        reader = Reader(esformat.FileSource(path))
        leaves = [reader.leaf(number) for number in range(len(reader.root))]
        self.data = [block_handle(leaf, number) for leaf in leaves for number in range(leaf.block_count)]
        self.times = [pair for leaf in leaves for pair in zip(leaf.block_min, leaf.block_max, strict=True)]
        self.leaves = [reader.root.handle(number) for number in range(len(reader.root))]
        self.others = [*reader.table.values(), *self.leaves]
        for name in reader.schema.indexes:
            self.others += reader.index_root(reader.schema.positions[name]).handles
        self.source = Recorded(esformat.FileSource(path))
        self.segment = esformat.open(self.source)
        self.source.spans.clear()

    def read(self, handles: list[Any]) -> int:
        """The number of these blocks that were read."""
        return sum(any(a < handle.end and handle.offset < b for a, b in self.source.spans) for handle in handles)

    def data_blocks(self) -> int:
        """The number of data blocks that were read."""
        return self.read(self.data)

    def blocks(self) -> int:
        """The number of blocks of any kind that were read."""
        return self.read(self.data) + self.read(self.others)

    def overlapping(self, start: int, end: int) -> int:
        """The number of data blocks with times in [start, end)."""
        return sum(low < end and high >= start for low, high in self.times)


@pytest.fixture(scope="module")
def small_blocks(tmp_path_factory):
    """A file of clicks in small blocks."""
    path = tmp_path_factory.mktemp("watched") / "clicks.esdb"
    with cut_small(Pieces(block_rows=ROWS, read_gap_bytes=0)):
        write_clicks(path, click_table(20_000))
    return path


@pytest.fixture
def watch(small_blocks):
    """Open the file of small blocks with a cold cache; adjacent blocks are not read along."""
    opened = []

    def watch() -> Watched:
        opened.append(Watched(small_blocks))
        return opened[-1]

    with cut_small(Pieces(block_rows=ROWS, read_gap_bytes=0)):
        yield watch
    for watched in opened:
        watched.segment.close()


@pytest.fixture(scope="module")
def frame():
    """The same events as a frame."""
    return in_file_order(click_table(20_000))


def test_point_query_of_duckdb_reads_three_blocks(clicks):
    """A query of one space in DuckDB reads the directory leaf and one or two data blocks."""
    path, frame = clicks
    counts = frame["space"].value_counts()
    for space in counts[counts < 100].index[:40]:
        watched = Watched(path)
        events = watched.segment.dataset()  # noqa: F841 - DuckDB finds it by name
        found = duckdb.execute("select type, count(*) from events where space = ? group by 1", [space]).fetchall()
        assert 0 < watched.blocks() <= 3
        assert dict(found) == frame[frame["space"] == space]["type"].value_counts().to_dict()
        watched.segment.close()


def test_rows_between_bounds_are_left_out(watch, frame):
    """Rows between several index values or timestamps, in the same blocks, are left out."""
    events, times = watch().segment.dataset(), sorted(set(frame["timestamp"]))[:: len(frame) // 3]
    moments = pa.array(times, pa.timestamp("us", "UTC"))
    assert events.count_rows(filter=TIME.isin(moments)) == frame["timestamp"].isin(times).sum()
    rare = ["signup", "purchase"]
    assert events.count_rows(filter=TYPE.isin(rare)) == frame["type"].isin(rare).sum()


def test_absent_space_reads_no_data(watch):
    """A query of an unknown space reads no data block."""
    watched = watch()
    assert watched.segment.dataset().count_rows(filter=SPACE == "nobody") == 0
    assert watched.data_blocks() == 0


def test_contradiction_reads_nothing(watch):
    """A contradictory filter, such as one for two spaces, reads nothing."""
    watched = watch()
    events = watched.segment.dataset()
    assert events.count_rows(filter=(SPACE == "customer-1") & (SPACE == "customer-2")) == 0
    assert events.count_rows() == 20_000
    assert watched.source.spans == []


@pytest.mark.parametrize(
    "filter",
    [
        SPACE.isin(["customer-17", "customer-30", "nobody"]),
        (SPACE == "customer-17") | (SPACE == "customer-30"),
        pc.if_else(SPACE.is_valid(), SPACE.isin(["customer-17", "customer-30"]), NULL) & pc.starts_with(TYPE, ""),
        ((SPACE == "customer-17") & (TYPE == "page")) | (SPACE == "customer-30"),
    ],
    ids=str,
)
def test_few_spaces_read_their_blocks(watch, frame, filter):
    """A query of two spaces reads their blocks and none between them."""
    rows = np.nonzero(frame["space"].isin(["customer-17", "customer-30"]).to_numpy())[0]
    watched = watch()
    watched.segment.dataset().to_table(columns=["timestamp"], filter=filter)
    assert 2 <= watched.data_blocks() == len(np.unique(rows // ROWS)) < len(watched.data) / 10


@pytest.mark.parametrize(
    "filter", [SPACE == "customer-17", SPACE.isin(["customer-17", "nobody"]), SPACE >= "customer-17"], ids=str
)
def test_rows_of_spaces_are_counted_without_blocks(watch, frame, filter):
    """The rows of spaces are counted from the directory, without data blocks."""
    spaces = frame["space"]
    watched = watch()
    expected = (spaces >= "customer-17") if ">=" in str(filter) else (spaces == "customer-17")
    assert watched.segment.dataset().count_rows(filter=filter) == expected.sum()
    assert not watched.data_blocks()


def test_many_spaces(watch, frame):
    """A long list of spaces, with or without other conditions, finds their rows and reads only their blocks."""
    spaces = sorted(set(frame["space"]))[::4]
    chosen = frame[frame["space"].isin(spaces)]
    middle = int(frame["timestamp"].median())
    listed, early = SPACE.isin([*spaces, "nobody"]), pa.scalar(middle, pa.timestamp("us", "UTC")) > TIME
    assert len(spaces) > MANY_SPACES
    for filter, expected in (
        (listed, chosen),
        (listed & (TYPE == "cart"), chosen[chosen["type"] == "cart"]),
        (listed & early & (TYPE == "cart"), chosen[(chosen["type"] == "cart") & (chosen["timestamp"] < middle)]),
        (SPACE.isin([f"nobody-{number}" for number in range(100)]), chosen[:0]),
    ):
        watched = watch()
        found = watched.segment.dataset().to_table(columns=["timestamp"], filter=filter)
        assert found["timestamp"].cast(pa.int64()).to_pylist() == expected["timestamp"].tolist()
        assert watched.data_blocks() <= len(np.unique(chosen.index // ROWS)) < len(watched.data)


def test_range_of_spaces_reads_their_blocks(watch, frame):
    """A range of spaces reads the blocks from its first to its last."""
    rows = np.nonzero(((frame["space"] >= "customer-3") & (frame["space"] < "customer-5")).to_numpy())[0]
    watched = watch()
    wanted = (SPACE >= "customer-3") & (SPACE < "customer-5")
    assert len(watched.segment.dataset().to_table(columns=["timestamp"], filter=wanted)) == len(rows)
    assert watched.data_blocks() == len(np.unique(rows // ROWS)) < len(watched.data) / 2
    assert watched.read(watched.leaves) < len(watched.leaves) / 2


def test_grouping_reads_its_blocks(watch, frame):
    """A grouping reads only its blocks in every space."""
    rows = np.nonzero((frame["grouping"] == "web").to_numpy())[0]
    watched = watch()
    wanted = pc.field("grouping") == "web"
    assert len(watched.segment.dataset().to_table(columns=["timestamp"], filter=wanted)) == len(rows)
    assert watched.data_blocks() == len(np.unique(rows // ROWS)) < len(watched.data)


def test_time_reads_overlapping_blocks(watch, frame):
    """A time range reads only the blocks whose times overlap it."""
    start = int(frame["timestamp"].min())
    end = start + 100_000
    watched = watch()
    until = pa.scalar(end * 1000, pa.timestamp("ns", "UTC"))
    found = watched.segment.dataset().count_rows(filter=until > TIME)
    assert found == (frame["timestamp"] < end).sum() > 0
    assert watched.data_blocks() == watched.overlapping(start, end) < len(watched.data) / 2


@pytest.mark.parametrize(
    ("column", "wanted"), [("type", ["signup"]), ("country", ["C03", "C17"]), ("country", ["nowhere"])], ids=str
)
def test_index_reads_blocks_with_the_values(watch, frame, column, wanted):
    """An index condition reads only the data blocks that have one of the values."""
    rows = np.nonzero(frame[column].isin(wanted).to_numpy())[0]
    watched = watch()
    chosen = pc.field(column).isin(wanted)
    assert watched.segment.dataset().count_rows(filter=chosen) == len(rows)
    watched.source.spans.clear()
    assert len(watched.segment.dataset().to_table(columns=["timestamp"], filter=chosen)) == len(rows)
    assert watched.data_blocks() == len(np.unique(rows // ROWS)) < len(watched.data)


def test_common_and_rare_value_read_the_blocks_of_both(tmp_path):
    """A frequent value, whose posting list names blocks, and a rare one, whose list names rows, are found together."""
    kinds = ["common" if n < 500 else "rare" if n == 777 else f"other-{n % 3}" for n in range(1000)]
    parity = ["even" if n % 2 == 0 else "once" if n == 901 else "odd" for n in range(1000)]
    with cut_small(Pieces(block_rows=ROWS, read_gap_bytes=0)):
        with esformat.create(tmp_path / "kinds.esdb", indexes=["kind", "parity"]) as writer:
            columns = {"space": ["a"] * 1000, "timestamp": range(1000), "kind": kinds, "parity": parity}
            writer.add_table(pa.table(columns))
        watched = Watched(tmp_path / "kinds.esdb")
        found = watched.segment.dataset().to_table(filter=pc.field("kind").isin(["common", "rare"]))
        assert found["timestamp"].cast(pa.int64()).to_pylist() == [*range(500), 777]
        assert watched.data_blocks() == -(-500 // ROWS) + 1
        everywhere = pc.field("parity").isin(["even", "once"])
        assert watched.segment.dataset().count_rows(filter=everywhere) == 501
        watched.source.spans.clear()
        assert watched.segment.dataset().count_rows(filter=pc.field("grouping") == "x") == 0
        assert watched.data_blocks() == 0
        watched.segment.close()


def test_space_and_index_read_blocks_with_both(watch, frame):
    """In the largest space, only the blocks with the rare value are read."""
    space = frame["space"].value_counts().index[0]
    rows = np.nonzero(((frame["space"] == space) & (frame["type"] == "signup")).to_numpy())[0]
    watched = watch()
    events = watched.segment.dataset()  # noqa: F841 - DuckDB finds it by name
    query = "select count(*) from events where space = ? and type in ('signup', 'x')"
    assert duckdb.execute(query, [space]).fetchall() == [(len(rows),)]
    assert watched.data_blocks() == len(np.unique(rows // ROWS)) < (frame["space"] == space).sum() / ROWS


def test_columns_that_are_not_asked_for_are_not_decoded(watch, monkeypatch):
    """Columns that a query does not need, such as the payload, are not decoded."""
    asked = set()
    read = esformat.read.dataset.SegmentEvents.batches

    def batches(self, bounds, columns, *, lazily):
        asked.update(columns)
        return read(self, bounds, columns, lazily=lazily)

    monkeypatch.setattr(esformat.read.dataset.SegmentEvents, "batches", batches)
    events = watch().segment.dataset()
    duckdb.sql("select type, count(*) from events where space = 'customer-1' group by 1").fetchall()
    assert asked == {"type"}
    asked.clear()
    pl.scan_pyarrow_dataset(events).select(pl.col("country").n_unique()).collect()
    assert asked == {"country"}
    asked.clear()
    events.to_table(columns={"day": pc.field("timestamp").cast(pa.date32())})
    assert asked == {"timestamp"}


def test_head_reads_the_first_block(watch):
    """`head` reads no further than its rows."""
    watched = watch()
    assert len(watched.segment.dataset().head(10)) == 10
    assert watched.data_blocks() == 1


# ---------------------------------------------------------------- engines


QUERIES = [
    "select type, count(*) from events where space = 'customer-1' group by 1 order by 1",
    "select * from events where space = 'customer-20' order by timestamp, data",
    "select space, count(*) from events where space in ('customer-2', 'customer-30', 'x') group by 1 order by 1",
    "select count(*) from events",
    "select count(*), min(timestamp), max(timestamp) from events where type = 'signup'",
    "select country, count(*) from events where country is null or country = 'C07' group by 1 order by 1",
    "select count(*) from events where country not in ('C01', 'C02')",
    "select count(*) from events where timestamp >= '2014-06-23 14:48:45+00' and timestamp < '2014-06-23 14:48:50+00'",
    "select grouping, type, count(*) from events where grouping = 'web' or grouping = 'app' group by all order by all",
    "select count(*) from events where space > 'customer-2' and space <= 'customer-3' and type <> 'page'",
    "select sum(octet_length(data)) from events where type = 'cart' or space = 'customer-3'",
    "select count(*) from events where space like 'customer-1%' and not (type = 'page')",
    "select a.space, count(*) from events a join events b using (space) where b.type = 'signup' "
    "and a.type = 'purchase' group by 1 order by 2 desc, 1 limit 20",
    "select timestamp, type from events where space = 'customer-1' order by timestamp desc, data limit 7",
]


@pytest.mark.parametrize("query", share_of(QUERIES, 2))
def test_duckdb_answers_as_over_a_table(clicks, query):
    """DuckDB returns the same rows as from the whole table in memory."""
    with esformat.open(clicks[0]) as segment:
        connection = duckdb.connect()
        connection.execute("set timezone = 'UTC'")
        connection.register("events", segment.scan().to_table())
        expected = connection.sql(query).to_arrow_table()
        connection.unregister("events")
        connection.register("events", segment.dataset())
        assert connection.sql(query).to_arrow_table().equals(expected)
        connection.close()


POLARS = {
    "point": lambda lf: lf.filter(pl.col("space") == "customer-1").group_by("type").len().sort("type"),
    "in": lambda lf: lf.filter(pl.col("space").is_in(["customer-2", "customer-30"])).select("data", "type"),
    "index": lambda lf: lf.filter((pl.col("type") == "signup") & (pl.col("country") != "C01")).select(pl.len()),
    "time": lambda lf: lf.filter(pl.col("timestamp") > pl.col("timestamp").min()).select(pl.len()),
    "no push-down": lambda lf: lf.filter(pl.col("space").str.ends_with("7")).group_by("space").len().sort("space"),
    "null": lambda lf: lf.filter(pl.col("country").is_null()).select("space", "timestamp"),
    "head": lambda lf: lf.head(10),
    "filter, then head": lambda lf: lf.filter(pl.col("type") == "cart").head(10),
}


@pytest.mark.parametrize("name", POLARS)
def test_polars_answers_as_over_a_frame(clicks, name):
    """Polars returns the same rows as from the whole frame in memory."""
    with esformat.open(clicks[0]) as segment:
        expected = POLARS[name](pl.DataFrame(segment.scan()).lazy()).collect()
        found = POLARS[name](pl.scan_pyarrow_dataset(segment.dataset())).collect()
        assert found.equals(expected)


def test_scan_becomes_a_frame(clicks):
    """Polars and pandas accept a scan directly."""
    path, frame = clicks
    with esformat.open(path) as segment:
        scan = segment["customer-1"].scan(columns=["timestamp", "type"])
        expected = frame[frame["space"] == "customer-1"]
        assert pl.DataFrame(scan).height == len(expected)
        assert pl.from_arrow(scan).struct.unnest().equals(pl.DataFrame(scan))  # a series of rows
        assert sorted(scan.to_pandas()["type"]) == sorted(expected["type"])
        assert sorted(segment.dataset().to_table(filter=SPACE == "customer-1").to_pandas()["type"]) == sorted(
            expected["type"]
        )


def test_threads_share_a_dataset(clicks):
    """Eight threads with separate queries on one dataset get the right results."""
    path, frame = clicks
    counts = frame["space"].value_counts()
    spaces = list(counts.index[:40])
    with esformat.open(path, cache_bytes=1 << 16) as segment:
        events = segment.dataset()
        connection = duckdb.connect()
        connection.register("events", events)

        def ask(space: str) -> tuple[int, int, int]:
            ((count,),) = connection.cursor().execute("select count(*) from events where space = ?", [space]).fetchall()
            lazy = pl.scan_pyarrow_dataset(events).filter(pl.col("space") == space)
            return count, lazy.select(pl.len()).collect().item(), events.count_rows(filter=space == SPACE)

        with ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(ask, spaces * 3))
        connection.close()
    assert answers == [(counts[space],) * 3 for space in spaces * 3]


# ---------------------------------------------------------------- pyarrow's interface


@pytest.fixture
def pair(clicks):
    """The clicks as our dataset and as pyarrow's."""
    with esformat.open(clicks[0]) as segment:
        yield segment.dataset(), ds.dataset(segment.scan().to_table())


pages = TYPE == "page"


@pytest.mark.parametrize(
    "ask",
    [
        lambda d: d.schema,
        lambda d: d.count_rows(),
        lambda d: d.count_rows(filter=pages),
        lambda d: d.head(7, columns=["data"], filter=pages),
        lambda d: d.head(0),
        lambda d: d.take([5, 3, 29_999], columns=["timestamp", "type"]),
        lambda d: d.filter(pages).filter(SPACE == "customer-1").to_table(),
        lambda d: d.filter(pages).count_rows(),
        lambda d: d.filter(pages).head(3),
        lambda d: d.to_table(columns=[]),
        lambda d: d.to_table(columns=["type", "space"], filter=SPACE == "nobody"),
        lambda d: d.to_table(columns={"n": pc.scalar(1), "day": pc.floor_temporal(TIME, unit="day")}, filter=pages),
        lambda d: d.to_table(columns={"s": SPACE}, filter=pc.field(4) == "cart"),
        lambda d: d.to_table(columns=["data"], filter=pc.field(4) == "cart"),
        lambda d: pa.Table.from_batches(d.to_batches(batch_size=1000, filter=pages), schema=d.schema),
        lambda d: d.scanner(columns=["type"]).projected_schema,
        lambda d: d.scanner(columns=["type"]).dataset_schema,
        lambda d: d.scanner(columns=["type"], filter=pages).to_reader().read_all(),
        lambda d: d.scanner().to_table(),
        lambda d: d.filter(pages).scanner().to_table(),
        lambda d: d.filter(SPACE == "customer-9").sort_by([("timestamp", "descending"), ("data", "ascending")])
        .to_table(),
    ],
)  # fmt: skip
def test_answers_as_pyarrows_datasets_do(pair, ask):
    """Schema, rows and their order equal those of pyarrow's dataset."""
    ours, theirs = pair
    expected = ask(theirs)
    assert ask(ours).equals(expected) if hasattr(expected, "equals") else ask(ours) == expected


def test_batches_have_the_size_asked_for(pair):
    """No batch exceeds the requested size; an invalid size is refused."""
    assert max(map(len, pair[0].to_batches(batch_size=1000))) == 1000
    with pytest.raises(esformat.UsageError, match="batch_size"):
        pair[0].to_table(batch_size=0)


@pytest.mark.parametrize(
    ("columns", "filter"),
    [
        (["nowhere"], None),
        (["type"], pc.field("nowhere") == 1),
        (["type"], SPACE == 1),
        (["type"], TIME > "yesterday"),
        ({"x": pc.field("nowhere")}, None),
        (7, None),
    ],
    ids=str,
)
def test_what_does_not_fit_is_refused_as_by_pyarrow(pair, columns, filter):
    """A wrong filter or column raises the same error as in pyarrow, even before any row is read."""
    ours, theirs = pair
    with pytest.raises(Exception) as expected:  # noqa: PT011 - whichever error pyarrow raises
        theirs.scanner(columns=columns, filter=filter)
    with pytest.raises(expected.type):
        ours.scanner(columns=columns, filter=filter)


def test_join_of_two(tmp_path):
    """Both sides of a join may be datasets of events."""
    rows = pa.table({"space": ["ada", "bob"], "timestamp": [5, 7], "n": [1, 2]})
    for name in ("left", "right"):
        with esformat.create(tmp_path / name) as writer:
            writer.add_table(rows)
    with esformat.open(tmp_path / "left") as left, esformat.open(tmp_path / "right") as right:
        few = right.dataset().filter(SPACE == "bob")
        joined = left.dataset().join(few, "n", join_type="inner", right_suffix="_right")
        assert joined.to_table()["space_right"].to_pylist() == ["bob"]


def test_scanner_of_everything(tmp_path):
    """A scanner can be read repeatedly, and a process that stops while reading one ends."""
    with esformat.create(tmp_path / "x.esdb") as writer:
        writer.add_table(pa.table({"space": pa.array(["ada"] * 300_000), "timestamp": range(300_000)}))
    with esformat.open(tmp_path / "x.esdb") as segment:
        scanner = segment.dataset().scanner()
        assert [len(scanner.to_table()) for _ in range(2)] == [300_000] * 2
    path = str(tmp_path / "x.esdb")
    ask = f"batches = esformat.open({path!r}).dataset().scanner().to_reader(); batches.read_next_batch()"
    subprocess.run([sys.executable, "-c", f"import esformat; {ask}"], timeout=60, check=True)


def test_join(pair):
    """A join with another dataset agrees with pyarrow's."""
    names = ds.dataset(pa.table({"country": ["C01", "C02"], "name": ["one", "two"]}))
    ours, theirs = (d.filter(SPACE == "customer-1").join(names, "country", join_type="inner") for d in pair)
    order = [("timestamp", "ascending"), ("data", "ascending")]
    assert ours.sort_by(order).to_table().equals(theirs.sort_by(order).to_table())


def test_write_dataset(pair, tmp_path):
    """A dataset can be written as partitioned Parquet."""
    ds.write_dataset(pair[0], tmp_path / "out", format="parquet", partitioning=["type"], partitioning_flavor="hive")
    back = ds.dataset(tmp_path / "out", partitioning="hive")
    assert back.count_rows() == pair[0].count_rows()
    assert back.count_rows(filter=pages) == pair[0].count_rows(filter=pages)


@pytest.mark.parametrize(
    "ask",
    [lambda d: ds.Scanner.from_dataset(d).to_table(), lambda d: ds.Scanner.from_dataset(d).count_rows()],
)
def test_where_pyarrow_does_not_ask_python(pair, ask):
    """Where pyarrow would bypass Python, an error says what to use instead."""
    with pytest.raises(OSError, match=r"scanner\(\)"):
        ask(pair[0])


def test_what_a_file_cannot_do(pair):
    """Another schema, pickling, and so a union with other datasets, are refused."""
    ours = pair[0]
    assert ours.children == []
    for ask in (
        lambda: ours.replace_schema(ours.schema),
        lambda: pickle.dumps(ours),
        lambda: pickle.dumps(next(ours.get_fragments())),
        lambda: ds.dataset([ours, ours]),
    ):
        with pytest.raises(esformat.UsageError):
            ask()


def test_closed_segment(clicks):
    """Reading a dataset whose segment was closed raises ClosedError, also through DuckDB."""
    with esformat.open(clicks[0]) as segment:
        events = segment.dataset()
    with pytest.raises(esformat.ClosedError):
        events.to_table()
    with pytest.raises(Exception, match="the segment is closed"):
        duckdb.sql("select * from events where space = 'customer-1'").fetchall()


@pytest.mark.parametrize("dictionaries", [False, True])
def test_short_answers_are_read_at_once(clicks, dictionaries):
    """A reader of few events of a space works after the segment is closed; one of the whole file raises ClosedError."""
    segment = esformat.open(clicks[0])
    dataset = segment.dataset(dictionaries=dictionaries)
    space = next(iter(segment.spaces()))
    of_space = pc.equal(SPACE, space)
    expected = dataset.to_table(filter=of_space)
    few, whole = (dataset.scanner(filter=wanted).to_reader() for wanted in (of_space, TIME.is_valid()))
    segment.close()
    assert few.read_all().equals(expected)
    with pytest.raises(esformat.ClosedError):
        whole.read_all()


def test_damage_is_an_error(clicks, tmp_path):
    """A damaged column of a block ends a query with an error, never with fewer rows; other columns stay readable."""
    stored = bytearray(clicks[0].read_bytes())
    block = make_damaged.blocks_of(stored, make_damaged.DATA)[0]
    stored[block.offset + FRAME_BYTES + make_damaged.column_at(stored) + 9] ^= 1
    with esformat.open(esformat.BytesSource(bytes(stored))) as segment:
        events = segment.dataset()
        with pytest.raises(esformat.CorruptSegmentError):
            events.to_table()
        with pytest.raises(Exception, match="checksum"):
            duckdb.sql("select max(data) from events").fetchall()
        assert duckdb.sql("select max(timestamp) from events").fetchall()
