"""Spark reads a catalog from its store alone, on machines without its directory. No Spark."""

from __future__ import annotations

import pickle
import shutil

import pytest
from clicks import click_table
from effort import long
from shipped_catalogs import SOON

import aggregator
from aggregator.errors import CatalogNotFoundError, SegmentMissingError, TopicNotFoundError
from aggregator.spark.options import CatalogReadOptions, CatalogWriteOptions
from aggregator.spark.reader import CatalogReader, choose_columns
from aggregator.spark.stream import CatalogStreamReader
from esformat import UsageError
from tests.spark.test_replaced import fill, rows

pytestmark = pytest.mark.background
COLUMNS = "space,timestamp,type,data,record_index,partition"


@pytest.fixture(params=[pytest.param("s3", marks=long), "file"])
def address(request, tmp_path):
    """The address of a store whose prefix needs escaping."""
    if request.param == "s3":
        return f"s3://{request.getfixturevalue('bucket')}/a%20prefix/50%25"
    return (tmp_path / "a store" / "50%").as_uri()


@pytest.fixture
def catalog(address, tmp_path):
    """Four segments, and events that are only in the log."""
    with aggregator.open(tmp_path / "data", store=address, durability="store", history="0s", **SOON) as made:
        fill(made, seals=4, events=100).append(click_table(30), "b")
        yield made


def planned(place, **options):
    parsed = CatalogReadOptions.parse({"path": str(place), "topic": "clicks", "columns": COLUMNS, **options})
    made = CatalogReader(parsed, choose_columns(parsed))
    return pickle.loads(pickle.dumps(made)), made.partitions()


def test_as_the_directory_tells(catalog, address):
    """Tasks read sealed and shipped events, with a condition and new columns, as they do from the directory."""
    assert rows(*planned(f"{address}/")) == rows(*planned(catalog.path))
    assert len(rows(*planned(address, partitions="5"))) == 430
    some = rows(*planned(address, where="space = 'customer-2' AND type = 'page'"))
    assert some
    assert some == rows(*planned(catalog.path, where="space = 'customer-2' AND type = 'page'"))
    catalog.topic("clicks").append([{"space": "a", "timestamp": 1, "data": b"x", "type": "y", "n": 7}])
    assert "n" in choose_columns(CatalogReadOptions.parse({"path": address, "topic": "clicks"})).fieldNames()


def test_segments_that_go_meanwhile(catalog, address):
    """Merged segments are read from their replacement; a missing one is an error that names it."""
    made, tasks = planned(address, partitions="7")
    expected = rows(made, tasks)
    before = {each.name for each in catalog._backend.objects.store.list("segments")}
    catalog.compact()
    catalog._backend.upkeep.tier.work()
    catalog.seal()
    catalog._backend.shipper.publish()
    catalog._backend.upkeep.tier.remove()
    assert not before & {each.name for each in catalog._backend.objects.store.list("segments")}
    assert rows(made, tasks) == expected
    store = catalog._backend.objects.store
    made, tasks = planned(address)
    store.delete([each.name for each in store.list("segments")])
    with pytest.raises(SegmentMissingError, match="segments/000000"):
        rows(made, tasks)


def test_the_machine_of_the_writer_is_gone(catalog, address, tmp_path):
    """The directory of the writer is not needed."""
    expected = rows(*planned(catalog.path))
    catalog.close()
    shutil.rmtree(tmp_path / "data")
    assert rows(*planned(address)) == expected


def test_a_stream(catalog, address):
    """Each event is read once, in micro-batches, across a restart of the query and seals of the writer."""
    options = CatalogReadOptions.parse({"path": address, "topic": "clicks", "columns": COLUMNS}, streaming=True)
    seen = []
    offset = None
    for _ in range(3):
        stream = CatalogStreamReader(options, choose_columns(options))
        offset = offset or stream.initialOffset()
        for _again in range(2):
            end = stream.latestOffset(offset, stream.getDefaultReadLimit())
            batch = rows(pickle.loads(pickle.dumps(stream)), stream.partitions(offset, end))
            assert rows(stream, stream.partitions(offset, end)) == batch
            seen += batch
            offset = end
            catalog.topic("clicks").append(click_table(10), "b")
        stream.stop()
        catalog.seal()
    assert len(seen) == 430 + 10 * 5
    assert len({(row["partition"], row["record_index"]) for row in seen}) == len(seen)


def test_what_is_not_there(catalog, address):
    """Errors name the address; writing to one is refused."""
    with pytest.raises(CatalogNotFoundError):
        planned(f"{address}/nothing")
    with pytest.raises(TopicNotFoundError, match="its topics: clicks"):
        planned(address, topic="other")
    if address.startswith("s3"):
        with pytest.raises(UsageError, match="can be written only in a directory"):
            CatalogWriteOptions.parse({"path": address, "topic": "clicks"}, streaming=False)
