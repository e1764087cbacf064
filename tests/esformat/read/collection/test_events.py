"""Several files as one dataset: exact for every filter, without reading files that cannot match."""

from __future__ import annotations

from itertools import product

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pytest
from clicks import click_table
from effort import share_of

import esformat
from tests.esformat.read.test_dataset import Recorded

space, kind, moment = pc.field("space"), pc.field("type"), pc.field("timestamp")
DAY_US = 86_400_000_000
NIGHT = pa.scalar(1_403_534_919_000_000 + DAY_US // 2, pa.timestamp("us", "UTC"))  # after the first day
OTHER_BLOCKS_BYTES = (
    8192  # more bytes than filter pages, indexes and leaves of such a file take, fewer than its data blocks
)


def day(number: int) -> pa.Table:
    """3,000 clicks of one day; half of the spaces belong to that day only."""
    table = click_table(3_000, seed=number)
    table = table.set_column(2, "timestamp", pc.add(table["timestamp"], pa.scalar(number * DAY_US, pa.duration("us"))))
    own = pc.binary_join_element_wise(table["space"], f"day-{number}", "-")
    odd = pc.equal(pc.bit_wise_and(table["timestamp"].cast(pa.int64()), 1000), 1000)
    return table.set_column(0, "space", pc.if_else(odd, own, table["space"]))


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Four days; the second has no country, the fourth is empty."""
    folder = tmp_path_factory.mktemp("days")
    tables = [day(0), day(1).drop_columns("country"), day(2), day(3).slice(0, 0)]
    for number, table in enumerate(tables):
        indexes = ["type"] if number == 1 else ["type", "country"]
        with esformat.create(folder / f"day-{number}.esdb", indexes=indexes) as writer:
            writer.add_table(table)
    return sorted(folder.glob("*.esdb"))


@pytest.fixture
def opened(files):
    """The files as one, recording the reads of each from here on, and all their rows in file order."""
    sources = [Recorded(esformat.FileSource(file)) for file in files]
    tables = []
    for file in files:
        with esformat.open(file) as segment:
            tables.append(segment.scan().to_table())
    with esformat.open_many(sources) as collection:
        everything = pa.concat_tables(tables, promote_options="default").select(collection.schema.names)
        for source in sources:
            source.spans.clear()
        yield collection, sources, everything.cast(collection.schema)


FILTERS = [
    None,
    space == "customer-1",
    space.isin(["customer-1-day-0", "customer-2-day-2", "nobody"]),
    (space > "customer-2") & (space <= "customer-3"),
    kind == "signup",
    (kind == "signup") & (space == "customer-1"),
    pc.field("country") == "C07",
    pc.field("country").is_null(),
    (pc.field("country") == "C07") | (kind == "cart"),
    pc.field("grouping") == "web",
    moment >= NIGHT,
    (space == "a") & (space == "b"),
    pc.starts_with(space, "customer-1"),
]


@pytest.mark.parametrize(
    ("filter", "columns"), share_of(product(FILTERS, [None, ["data", "country"], ["country"], []]), 3), ids=str
)
def test_filter_is_pyarrows(opened, filter, columns):
    """A filter keeps the rows that pyarrow keeps, in file order; a column that a file lacks is null."""
    collection, _, everything = opened
    events = collection.dataset()
    expected = ds.dataset(everything).to_table(columns=columns, filter=filter)
    found = events.to_table(columns=columns, filter=filter)
    assert found.equals(expected)
    assert found.schema.equals(expected.schema)
    assert events.count_rows(filter=filter) == len(expected)


@pytest.mark.parametrize(
    ("filter", "read"),
    [
        (space == "customer-1-day-2", [2]),
        (space.isin(["customer-1-day-0", "customer-2-day-2"]), [0, 2]),
        (moment < NIGHT, [0]),
        ((moment > NIGHT) & (space == "customer-1"), [1, 2]),
        ((moment > NIGHT) & (kind == "nothing"), []),
        (pc.field("country") == "C07", [0, 2]),
        (space > "zebra", []),
        ((space == "a") & (space == "b"), []),
    ],
    ids=str,
)
def test_files_that_cannot_matter_are_not_read(opened, filter, read):
    """Files are skipped by time, first and last space, space filter, columns and indexes."""
    collection, sources, everything = opened
    found = collection.dataset().to_table(columns=["timestamp"], filter=filter)
    assert len(found) == ds.dataset(everything).count_rows(filter=filter)
    sizes = [sum(end - start for start, end in source.spans) for source in sources]
    assert [number for number, size in enumerate(sizes) if size > OTHER_BLOCKS_BYTES] == read


@pytest.fixture
def closed(files):
    """The files as one, all closed again except the last; with their reads."""
    sources = [Recorded(esformat.FileSource(file)) for file in files]
    with esformat.open_many(sources, max_open=1) as collection:
        for source in sources:
            source.spans.clear()
        yield collection, sources


def test_files_of_other_times_are_not_touched(closed):
    """Files of other times are not read: their time spans are known since they were opened."""
    collection, sources = closed
    collection.dataset().to_table(filter=moment > NIGHT)
    assert [bool(source.spans) for source in sources] == [False, True, True, False]


def test_files_without_a_space_are_not_touched(closed):
    """Files without the space are not read, once the first query has read their filters."""
    collection, sources = closed
    assert len(collection.dataset().to_table(columns=["timestamp"], filter=space == "customer-1-day-2")) > 0
    for source in sources:
        source.spans.clear()
    assert len(collection.dataset().to_table(columns=["timestamp"], filter=space == "customer-2-day-2")) > 0
    assert [bool(source.spans) for source in sources] == [False, False, True, False]


def test_engines(opened):
    """DuckDB and Polars have the same results as on the table."""
    collection, _, everything = opened
    query = "select type, count(*) from events where space = 'customer-1' and country is not null group by 1 order by 1"
    connection = duckdb.connect()
    connection.register("events", everything)
    expected = connection.sql(query).fetchall()
    connection.unregister("events")
    connection.register("events", collection.dataset())
    assert connection.sql(query).fetchall() == expected
    connection.close()
    lazy = pl.scan_pyarrow_dataset(collection.dataset()).filter(pl.col("type") == "signup").select(pl.len())
    assert lazy.collect().item() == pc.sum(pc.equal(everything["type"], "signup")).as_py()


def test_closed(files):
    """Reading a dataset whose collection was closed raises ClosedError."""
    with esformat.open_many(files) as collection:
        events = collection.dataset()
    with pytest.raises(esformat.ClosedError):
        events.to_table()
