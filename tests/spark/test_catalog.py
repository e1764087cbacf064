"""Topics of a catalog read with a real Spark: sealed and unsealed events, identical to those the catalog returns."""

from __future__ import annotations

import pyarrow as pa
import pytest
from clicks import click_table
from effort import long, share_of

import aggregator
import aggregator.spark
from aggregator.spark.options import CatalogReadOptions
from aggregator.spark.reader import CatalogReader, choose_columns
from aggregator.spark.source import AggregatorDataSource
from esformat import EsdbError
from tests.spark.test_read import rows

EXTRA = ["record_index", "partition"]


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """2,000 clicks in two partitions, most of them sealed, one erased space, and a column added later."""
    path = tmp_path_factory.mktemp("catalog") / "data"
    table = click_table(2000)
    with aggregator.open(path, durability="none") as catalog:
        topic = catalog.create_topic("clicks", indexes=["type"])
        topic.append(table.slice(0, 1000), "a")
        topic.append(table.slice(1000, 500), "b")
        catalog.seal()
        late = table.slice(1500, 250).append_column("price", pa.array([1.5] * 250))
        topic.append(late, "a")
        topic.erase("customer-3")
        topic.append(table.slice(1750), "b")
        catalog.create_topic("empty")
    return str(path)


@pytest.fixture(scope="module")
def expected(root):
    """All events as the catalog returns them, with their record indexes and partitions."""
    with aggregator.open(root, read_only=True) as catalog:
        topic = catalog.topic("clicks")
        return topic.scan(columns=[*topic.scan().column_names, *EXTRA]).to_table()


@pytest.fixture
def frame(spark, root):
    aggregator.spark.register(spark)
    return spark.read.format("aggregator").option("topic", "clicks")


def as_rows(table):
    place = table.column_names.index("timestamp")
    table = table.set_column(place, "timestamp", table["timestamp"].cast(pa.int64()))
    return sorted(zip(*(column.to_pylist() for column in table.columns), strict=True), key=repr)


def test_every_event_once(frame, root, expected):
    """Sealed and unsealed events are read once. The erased space is missing; a column added later is null before."""
    df = frame.option("columns", ",".join(expected.column_names)).load(root)
    assert rows(df) == as_rows(expected)
    assert len(expected) < 2000
    assert frame.options(columns="space").load(root).where("space = 'customer-3'").count() == sum(
        space == "customer-3" for space in expected["space"].to_pylist()
    )


@long
def test_default_columns(spark, frame, root, expected):
    """The default is the topic's own columns; record index and partition are included if an option or schema names
    them.
    """
    frame.load(root).createOrReplaceTempView("topic_clicks")
    names = [name for name in expected.column_names if name not in EXTRA]
    assert spark.table("topic_clicks").columns == names
    found = spark.sql("SELECT type, count(*) FROM topic_clicks GROUP BY type").collect()
    assert dict(found) == {each["values"]: each["counts"] for each in expected["type"].value_counts().to_pylist()}
    narrowed = aggregator.spark.read(spark, root, "clicks", columns=["partition", "record_index"])
    pairs = zip(expected["partition"].to_pylist(), expected["record_index"].to_pylist(), strict=True)
    assert rows(narrowed) == sorted(pairs, key=repr)
    assert aggregator.spark.read(spark, root, "empty").count() == 0


CONDITIONS = {
    "space = 'customer-1'": lambda row: row["space"] == "customer-1",
    "space IN ('customer-2', 'customer-3') AND type = 'page'": lambda row: (
        row["space"] in ("customer-2", "customer-3") and row["type"] == "page"
    ),
    "partition = 'b' AND record_index >= 400": lambda row: row["partition"] == "b" and row["record_index"] >= 400,
    "price IS NOT NULL": lambda row: row["price"] is not None,
}


@pytest.mark.parametrize("condition", share_of(CONDITIONS, 2))
def test_where(spark, root, expected, condition):
    """A condition is exact over sealed and unsealed events, whichever columns are read."""
    chosen = [row for row in expected.to_pylist() if CONDITIONS[condition](row)]
    assert chosen
    found = aggregator.spark.read(spark, root, "clicks", where=condition, columns=["data", "record_index"])
    assert rows(found) == sorted(((row["data"], row["record_index"]) for row in chosen), key=repr)


def tasks(root, **options):
    """The tasks of a read, planned without Spark."""
    parsed = CatalogReadOptions.parse({"path": root, "topic": "clicks", **options})
    return [partition.value for partition in CatalogReader(parsed, choose_columns(parsed)).partitions()]


def test_pruned_before_tasks_start(root):
    """Partitions, segments and unsealed events that cannot match are not planned."""
    assert len([each for task in tasks(root) for each in task]) == 4  # of each partition: a segment, unsealed events
    assert len([each for task in tasks(root, where="partition = 'a'") for each in task]) == 2
    assert tasks(root, where="space = 'nobody'") == []
    assert tasks(root, where="timestamp < '2001-01-01'") == []
    assert len(tasks(root, where="type = 'no such type'")) == 0


MISTAKES = {
    "no topic is named": {"topic": ""},
    "no topic 'nix'": {"topic": "nix"},
    "no catalog found": {"path": "/nowhere"},
    "unknown option 'colums'": {"colums": "type"},
    "unknown option 'position'": {"position": "head"},
    "no column 'nix'": {"columns": "nix"},
    "option 'where': no column 'nix'": {"where": "nix = 1"},
}


@pytest.mark.parametrize("message", MISTAKES)
def test_mistakes(root, message):
    """A wrong option or name is refused with the reason before anything runs."""
    source = AggregatorDataSource({"path": root, "topic": "clicks"} | MISTAKES[message])
    with pytest.raises(EsdbError, match=message):
        source.reader(source.schema())
