"""Tasks of a read whose segments were merged, removed or lost since it was planned. No Spark."""

from __future__ import annotations

import pickle

import pyarrow as pa
import pytest
from clicks import click_table
from effort import ALL, long
from small_pieces import Pieces, cut_small

import aggregator
from aggregator.errors import SegmentMissingError
from aggregator.spark import replaced
from aggregator.spark.options import CatalogReadOptions
from aggregator.spark.reader import CatalogReader, choose_columns
from esformat import UsageError
from tests.spark.test_catalog import EXTRA


@pytest.fixture
def catalog(tmp_path):
    """A catalog of segments with a few rows in each block, so that each is cut into many pieces."""
    with cut_small(Pieces(block_rows=8, leaf_blocks=2)), aggregator.open(tmp_path / "data", durability="none") as made:
        yield made


def fill(catalog, seals=4, events=400, space=None):
    """Add events of few spaces and times, so that neighbours differ by record index only; one segment per seal.

    space: put all events into this space and one grouping.
    """
    table = click_table(seals * events)
    for name in ("space", "grouping") if space else ():
        table = table.set_column(table.column_names.index(name), name, pa.array([space] * len(table)))
    same = pa.array([1_700_000_000_000_000 + n // 50 for n in range(len(table))], pa.timestamp("us", "UTC"))
    table = table.set_column(table.column_names.index("timestamp"), "timestamp", same)
    topic = catalog.create_topic("clicks", indexes=["type"])
    for number in range(seals):
        topic.append(table.slice(number * events, events), "a")
        catalog.seal()
    return topic


def reader(catalog, **options):
    """A planned read: the reader and its tasks."""
    columns = ["space", "timestamp", "type", "data", *EXTRA]
    given = {"path": str(catalog.path), "topic": "clicks", "columns": ",".join(columns), **options}
    parsed = CatalogReadOptions.parse(given)
    made = CatalogReader(parsed, choose_columns(parsed))
    return pickle.loads(pickle.dumps(made)), made.partitions()


def rows(made, tasks):
    found = [row for task in tasks for batch in made.read(task) for row in batch.to_pylist()]
    return sorted(found, key=lambda row: row["record_index"])


CASES = [(where, space) for where in ("", "space >= 'customer-2'", "type = 'page'") for space in (None, "one")]


@pytest.mark.parametrize(("where", "space"), CASES if ALL else [CASES[2]])
def test_merged_while_it_is_read(catalog, where, space):
    """Some tasks run before a merge, others after it and after a second one: each event is read once, wherever it was
    cut.
    """
    topic = fill(catalog, space=space)
    made, tasks = reader(catalog, partitions="9", where=where)
    expected = rows(made, tasks)
    assert len(tasks) > 4
    before = rows(made, tasks[0::3])
    assert catalog.compact().made == 1
    middle = rows(made, tasks[1::3])
    topic.append(click_table(50), "a")
    catalog.seal()
    assert catalog.compact().made == 1
    after = rows(made, tasks[2::3])
    assert sorted(before + middle + after, key=lambda row: row["record_index"]) == expected
    assert rows(made, tasks) == expected
    assert len(expected) == 1600 if not where else 0 < len(expected) <= 1600


@long
def test_erased_before_and_after(catalog):
    """Events erased before planning stay hidden; a merge that drops them changes no other row."""
    topic = fill(catalog)
    topic.erase("customer-1")
    made, tasks = reader(catalog, partitions="9")
    expected = rows(made, tasks)
    catalog.compact()
    assert rows(made, tasks) == expected
    assert "customer-1" not in {row["space"] for row in expected}
    topic.erase("customer-2")
    catalog.compact()
    left = rows(made, tasks)
    assert [row for row in expected if row["space"] != "customer-2"] == [
        row for row in left if row["space"] != "customer-2"
    ]


def test_missing_is_not_replaced(catalog):
    """A file that the manifest still names raises an error and is not skipped."""
    fill(catalog, seals=1)
    made, tasks = reader(catalog)
    next(catalog.path.rglob("*.esdb")).unlink()
    with pytest.raises(SegmentMissingError, match="a segment is missing"):
        rows(made, tasks)


def test_replaced_again_and_again(catalog, monkeypatch):
    """If segments are replaced faster than they are found, the read ends with an error that suggests a remedy."""
    fill(catalog, seals=2)
    made, tasks = reader(catalog)
    catalog.compact()

    def gone(path, **options):
        raise FileNotFoundError(path)

    monkeypatch.setattr(replaced.esformat, "open", gone)
    with pytest.raises(UsageError, match="replaced faster than"):
        rows(made, tasks)
