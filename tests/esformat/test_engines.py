"""Query engines through their own interfaces have the same rows as in memory, and read no more than needed."""

from __future__ import annotations

import datetime as dt
import pickle
import shutil
import tempfile
from pathlib import Path

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from arrow_strategies import NESTED_TYPES, PLAIN_TYPES, array_of
from effort import examples, share_of
from hypothesis import given
from hypothesis import strategies as st
from odd_texts import texts

import esformat
import esformat.duckdb
from esformat.pandas import read_esdb
from esformat.polars import filter_of, scan_esdb
from esformat.read.dataset import SegmentEvents

START = dt.datetime(2026, 3, 1, tzinfo=dt.UTC)
EVENTS = 20_000


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Two files with a text index, a boolean index, and a column of floats with NaN."""
    folder = tmp_path_factory.mktemp("engines")
    for part in range(2):
        numbers = range(part * EVENTS, (part + 1) * EVENTS)
        table = pa.table(
            {
                "space": [f"user-{n * 31 % 997 % 40}" for n in numbers],
                "timestamp": [START + dt.timedelta(seconds=n * 7919 % 86_400, microseconds=n) for n in numbers],
                "data": [b"%d" % n for n in numbers],
                "type": [["page", "purchase", None][n % 7 % 3] for n in numbers],
                "paid": [n % 3 == 0 for n in numbers],
                "price": [float("nan") if n % 5 == 0 else n / 10 for n in numbers],
            }
        )
        with esformat.create(folder / f"part-{part}.esdb", indexes=["type", "paid"]) as writer:
            writer.add_table(table)
    return folder


@pytest.fixture(scope="module")
def everything(folder):
    with esformat.open_many(folder) as files:
        return pl.DataFrame(files.dataset().to_table())


@pytest.fixture(scope="module")
def segment(folder):
    with esformat.open(folder / "part-0.esdb") as segment:
        yield segment


def hour(number: int) -> dt.datetime:
    return START + dt.timedelta(hours=number)


# ---------------------------------------------------------------- Polars

CONDITIONS = [
    pl.col("space") == "user-7",
    pl.lit("user-7") == pl.col("space"),
    pl.col("space").is_in(["user-1", "user-2", "none"]),
    pl.col("space").str.starts_with("user-1"),
    pl.col("space") >= "user-5",
    pl.col("type") == "purchase",
    pl.col("type").is_null(),
    pl.col("type").is_in(["page"]),
    pl.col("type") != "page",
    pl.col("paid"),
    ~pl.col("paid"),
    pl.col("paid") == True,  # noqa: E712 - an expression, not a comparison
    pl.col("timestamp") < hour(3),
    pl.col("timestamp") <= START + dt.timedelta(seconds=100 * 7919 % 86_400, microseconds=100),
    pl.col("timestamp") > START + dt.timedelta(seconds=200 * 7919 % 86_400, microseconds=200),
    pl.col("timestamp").is_between(hour(5), hour(6)),
    pl.col("timestamp").is_between(hour(5), hour(6), closed="none"),
    pl.col("price") > 3000,  # NaN is greater than any number in Polars
    (pl.col("space") == "user-3") | (pl.col("space") == "user-4"),
    (pl.col("space") == "user-3") | (pl.col("price") < 5),
    pl.col("data").bin.starts_with(b"1"),
    pl.col("timestamp").dt.hour() == 3,
]


@examples(150)
@given(
    conditions=st.lists(st.sampled_from(CONDITIONS), max_size=3),
    columns=st.sampled_from([None, ["timestamp"], ["price", "space"], ["data", "type", "paid"]]),
    one=st.booleans(),
)
def test_polars(folder, everything, segment, conditions, columns, one):
    """Any condition in Polars has the same rows as in memory, over all files and one, whatever is pushed down."""
    frames = [scan_esdb(segment if one else folder), everything.lazy()]
    if one:
        frames[1] = frames[1].head(EVENTS)
    for condition in conditions:
        frames = [frame.filter(condition) for frame in frames]
    if columns is not None:
        frames = [frame.select(columns) for frame in frames]
    found, expected = (frame.collect() for frame in frames)
    assert found.equals(expected)
    assert found.schema == expected.schema


def test_polars_without_columns(folder, everything):
    assert scan_esdb(folder).select(pl.len()).collect().item() == everything.height
    first = scan_esdb(folder).head(7).collect()
    assert first.equals(everything.head(7))
    few = scan_esdb(folder).filter(pl.col("type") == "purchase").head(7).collect()
    assert few.equals(everything.filter(pl.col("type") == "purchase").head(7))


@pytest.mark.parametrize("condition", [pl.col("type") == "purchase", pl.col("price") > 3000, pl.col("space") == "none"])
def test_polars_counts_rows_before_a_condition(folder, everything, condition):
    """A condition after `head` filters the first rows, not all rows."""
    found = scan_esdb(folder).head(70).filter(condition).collect()
    assert found.equals(everything.head(70).filter(condition))


@pytest.mark.parametrize("one", [False, True])
def test_polars_in_another_process(folder, segment, one):
    """A frame can be pickled: the copy opens the files again."""
    frame = scan_esdb(segment if one else folder).filter(pl.col("type") == "purchase").select("space", "price")
    copied = pickle.loads(pickle.dumps(frame)).collect()
    assert copied.equals(frame.collect())
    assert copied.height


def test_polars_reads_what_it_needs(folder):
    """A condition on spaces reads only their blocks."""
    source = esformat.CountingSource(esformat.FileSource(folder / "part-0.esdb"))
    with esformat.open(source) as segment:
        frame = scan_esdb(segment)
        opening = source.bytes_read
        frame.filter(pl.col("space") == "user-7").select("price").collect()
        assert source.bytes_read - opening < source.size / 4


TEXT = pl.col("data").cast(pl.String)
TEXT_CONDITIONS = [
    TEXT.str.contains("/cart", literal=True),
    TEXT.str.contains("cart"),
    TEXT.str.contains("c.rt"),
    TEXT.str.contains("a%b_c", literal=True),
    TEXT.str.starts_with('{"url":"/é'),
    pl.col("data").bin.ends_with(b'"n":17}'),
    pl.col("data").bin.contains("é".encode()),
    TEXT.str.json_path_match("$.url") == "/cart",
    TEXT.str.json_path_match("$.n") == "17",
    TEXT == '"/cart"',
    pl.col("msg").str.contains("user 7 ", literal=True),
    pl.col("msg").str.contains("no such"),
    pl.col("msg") == "user 1 said /cart at 6001",
    ~pl.col("msg").str.contains("user 7 ", literal=True),
    pl.col("msg").is_null() | pl.col("msg").str.contains("user 8 ", literal=True),
    pl.col("space") == "s3",
]


@pytest.fixture(scope="module")
def with_texts(tmp_path_factory):
    """Two files of events with texts, the first of them open, and all events in memory."""
    folder = tmp_path_factory.mktemp("texts")
    for name, first in (("one", 0), ("two", 6000)):
        with esformat.create(folder / f"{name}.esdb", templates=True) as writer:
            writer.add_table(texts(first))
    with esformat.open(folder / "one.esdb") as one, esformat.open_many(folder) as both:
        yield folder, one, pl.DataFrame(both.dataset().to_table())


@examples(100)
@given(
    conditions=st.lists(st.sampled_from(TEXT_CONDITIONS), min_size=1, max_size=3),
    columns=st.sampled_from([None, ["timestamp"], ["msg", "space"]]),
)
def test_polars_finds_texts(with_texts, conditions, columns):
    """Conditions on texts have Polars' results, whatever templates exclude."""
    folder, _, everything = with_texts
    frames = [frame.filter(*conditions) for frame in (scan_esdb(folder), everything.lazy())]
    found, expected = (frame.select(columns or pl.all()).collect() for frame in frames)
    assert found.equals(expected)


@pytest.mark.parametrize(
    ("condition", "most"),
    [
        (TEXT.str.contains("/nowhere", literal=True), 0),
        (TEXT.str.json_path_match("$.url") == "/list", 3000),
        (pl.col("msg").str.contains("user 7 ", literal=True), 200),
    ],
)
def test_polars_reads_few_payloads(with_texts, monkeypatch, condition, most):
    """Conditions on texts pass few other events to Polars."""
    _, one, _ = with_texts
    given = []
    batches = SegmentEvents.batches

    def counted(self, *arguments, **options):
        for batch in batches(self, *arguments, **options):
            given.append(len(batch))
            yield batch

    monkeypatch.setattr(SegmentEvents, "batches", counted)
    count = scan_esdb(one).filter(condition).select(pl.len()).collect().item()
    assert count <= sum(given) <= most


def test_predicates_as_filters():
    """The parts of a predicate that are understood become a filter; an AND may omit a side, an OR may not."""
    known = {"space", "timestamp", "type"}
    space, other = pl.col("space") == "a", pl.col("price") == 1.0
    part = filter_of(space & other, known)
    assert part.filter.equals(pc.field("space") == "a")
    assert not part.whole
    assert filter_of(space | other, known) == (None, False)
    assert filter_of(pl.col("type").map_elements(bool, return_dtype=pl.Boolean), known) == (None, False)
    listed = filter_of(pl.col("space").is_in(["a", "b"]), known)
    assert listed.filter.equals(pc.field("space").isin(pa.array(["a", "b"])))
    assert listed.whole


def test_whole_numbers_beyond_64_bits(tmp_path):
    """A condition with an integer beyond int64 is left to Polars."""
    numbers = pa.array([2**64 - 1, 5, 2**63], pa.uint64())
    with esformat.create(tmp_path / "u.esdb") as writer:
        writer.add_table(pa.table({"space": ["a"] * 3, "timestamp": range(3), "u": numbers}))
    frame = scan_esdb(tmp_path / "u.esdb")
    assert frame.filter(pl.col("u") == 2**64 - 1).collect().height == 1
    assert frame.filter(pl.col("u") >= 2**63).collect().height == 2
    assert frame.filter(pl.col("u") < 2**63).collect().height == 1


# ---------------------------------------------------------------- DuckDB


def test_duckdb_finds_files(folder, monkeypatch):
    """Statements of every kind name segments, patterns and directories; a missing one is DuckDB's error."""
    monkeypatch.chdir(folder)
    with esformat.duckdb.connect() as connection:
        connection.sql("CREATE TABLE paid AS FROM 'part-0.esdb' WHERE paid")
        assert connection.sql("SELECT count(*) FROM paid").fetchall() == [((EVENTS + 2) // 3,)]
        assert connection.execute("SELECT count(*) FROM 'part-*.esdb' WHERE space = ?", ["none"]).fetchall() == [(0,)]
        assert connection.sql(f"SELECT count(*) FROM '{folder}'").fetchall() == [(2 * EVENTS,)]
        with pytest.raises(duckdb.CatalogException):
            connection.sql("FROM nope")
        with pytest.raises(FileNotFoundError):
            connection.sql("FROM 'nope.esdb'")


def test_duckdb_finds_a_file_with_quotes_in_its_name(folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copy(folder / "part-0.esdb", 'the "first".esdb')
    with esformat.duckdb.connect() as connection:
        assert connection.sql("SELECT count(*) FROM 'the \"first\".esdb'").fetchall() == [(EVENTS,)]


def test_files_for_a_connection_that_is_there(folder):
    name = str(folder / "part-1.esdb")
    with duckdb.connect() as connection, esformat.duckdb.register(connection, name):
        assert connection.sql(f"SELECT count(*) FROM '{name}'").fetchall() == [(EVENTS,)]
        with pytest.raises(esformat.UsageError):
            esformat.duckdb.register(connection, "nope.csv")


# ---------------------------------------------------------------- DataFusion, pandas


def test_datafusion(folder, everything):
    """DataFusion uses a dataset as a table, with columns, conditions and empty column lists pushed down."""
    datafusion = pytest.importorskip("datafusion")
    context = datafusion.SessionContext()
    with esformat.open_many(folder) as files:
        context.register_dataset("events", files.dataset())
        asked = "SELECT type, count(*) AS n, max(price) AS most FROM events WHERE space = 'user-7' GROUP BY 1"
        found = pl.DataFrame(pa.table(context.sql(asked))).sort("type")
        expected = everything.filter(pl.col("space") == "user-7").group_by("type").len()
        assert found.select("type", "n").rows() == expected.sort("type").rows()
        assert pa.table(context.sql("SELECT count(*) AS n FROM events")).to_pylist() == [{"n": 2 * EVENTS}]


def test_pandas(folder, everything):
    expected = everything.filter(pl.col("space") == "user-7", pl.col("type") == "page")
    filters = [("space", "==", "user-7"), ("type", "in", ["page"])]
    frame = read_esdb(folder, columns=["timestamp", "price"], filters=filters)
    pd.testing.assert_frame_equal(frame, expected.select("timestamp", "price").to_arrow().to_pandas())
    same = read_esdb(
        folder, columns=["timestamp", "price"], filters=(pc.field("space") == "user-7") & (pc.field("type") == "page")
    )
    pd.testing.assert_frame_equal(same, frame)
    tuples = read_esdb(folder, columns=["timestamp", "price"], filters=tuple(filters))  # as in pandas
    pd.testing.assert_frame_equal(tuples, frame)


# ---------------------------------------------------------------- no columns


def through_polars(path):
    return scan_esdb(path).select("x").collect().to_series().to_arrow()


def through_pandas(path):
    return pa.array(read_esdb(path, types_mapper=pd.ArrowDtype)["x"])


def through_datafusion(path):
    context = pytest.importorskip("datafusion").SessionContext()
    with esformat.open(path) as segment:
        context.register_dataset("events", segment.dataset())
        return pa.table(context.sql("SELECT x FROM events"))["x"].combine_chunks()


READABLE = [
    kind
    for kind in PLAIN_TYPES + NESTED_TYPES
    if "interval" not in str(kind) and "not null" not in str(kind)  # text in Polars; Arrow does not cast to it
]


@pytest.mark.parametrize("read", [through_polars, through_pandas, through_datafusion])
@pytest.mark.parametrize("kind", share_of(READABLE, 3), ids=str)
@examples(20)
@given(data=st.data())
def test_every_type(read, kind, data):
    """Each engine returns the values of a column of any type."""
    column = data.draw(array_of(kind).filter(len))
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "a.esdb"
        with esformat.create(path) as writer:
            writer.add_table(pa.table({"space": ["a"] * len(column), "timestamp": range(len(column)), "x": column}))
        try:
            found = read(path)
        except esformat.UsageError:  # not in Polars' milliseconds
            assert (read, kind.unit) == (through_polars, "s")
            return
    assert found.cast(kind).equals(column) or repr(found.cast(kind).to_pylist()) == repr(column.to_pylist())


def test_no_columns_are_counted_from_metadata(folder):
    """A scan without columns returns the number of rows without reading a block."""
    source = esformat.CountingSource(esformat.FileSource(folder / "part-0.esdb"))
    with esformat.open(source) as segment:
        opening = source.bytes_read
        batches = list(segment.dataset().scanner(columns=[]).to_batches())
        assert source.bytes_read == opening
    assert sum(batch.num_rows for batch in batches) == EVENTS
    assert all(batch.num_columns == 0 for batch in batches)


MISFITS = [
    ({"columns": ["type", "tpye"]}, "no column 'tpye'; the columns are space, grouping, timestamp, data, type"),
    ({"columns": "type"}, "columns must be a list of names, not 'type'"),
    ({"columns": [5]}, "no column 5; the columns are"),
    ({"filters": [("tpye", "==", "page")]}, "no column 'tpye'; the columns are"),
    ({"filters": "type = page"}, "filters that cannot be read: .*; give a list such as"),
    ({"filters": [("type", "~", "page")]}, '"~" is not a valid operator.*; give a list such as'),
    ({"filters": [("type", "==", 5)]}, r"Function 'equal' .*; the filter is about type \(string\)"),
]


@pytest.mark.parametrize(("options", "told"), MISFITS)
def test_columns_and_filters_that_do_not_fit(folder, options, told):
    """A wrong column or filter is named with the valid ones."""
    with pytest.raises(esformat.UsageError, match=told):
        read_esdb(folder, **options)
