"""Tasks read segments that exist only in the catalog's store. No Spark."""

from __future__ import annotations

import pytest
from effort import long

import aggregator
from aggregator.errors import SegmentMissingError
from tests.spark.test_replaced import fill, reader, rows

pytestmark = pytest.mark.usefixtures("quiet", "unshipped")


@pytest.fixture(params=[pytest.param("s3", marks=long), "file"])
def catalog(request, tmp_path):
    """A catalog with four segments in a store."""
    if request.param == "s3":
        address = f"s3://{request.getfixturevalue('bucket')}/a prefix"
    else:
        address = (tmp_path / "a bucket").as_uri()
    with aggregator.open(tmp_path / "data", durability="none", store=address) as made:
        fill(made)
        made.store.push()
        yield made


def evict(catalog):
    assert len(catalog.store.evict(keep_local={"bytes": 0})) == 4


def test_segments_that_were_let_go(catalog):
    """Segments removed from the disk before or after a read is planned are read: each event once."""
    expected = rows(*reader(catalog))
    planned = reader(catalog, partitions="7")
    evict(catalog)
    assert rows(*planned) == expected
    assert rows(*reader(catalog, partitions="3")) == expected
    assert rows(*reader(catalog, where="space = 'customer-2'")) == [
        row for row in expected if row["space"] == "customer-2"
    ]


def test_objects_that_are_gone(catalog):
    """A missing object is an error that names the segment, unless the segment was merged."""
    evict(catalog)
    planned = reader(catalog)
    expected = rows(*planned)
    catalog.compact()
    catalog._backend.upkeep.tier.work()
    assert rows(*planned) == expected
    evicted = catalog._backend.state.evicted
    catalog.store.push()
    catalog.store.evict(keep_local={"bytes": 0})
    assert len(evicted) == 1
    objects = catalog._backend.objects
    objects.store.delete([found.name for found in objects.store.list("segments/")])
    with pytest.raises(SegmentMissingError, match=r"segments/000000/0+5"):
        reader(catalog)
