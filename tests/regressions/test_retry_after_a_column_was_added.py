"""A retried batch was refused as a different one if the topic had gained a column meanwhile."""

from __future__ import annotations

import pyarrow as pa
import pytest

import aggregator

BATCH = pa.table({"space": ["a", "b"], "timestamp": [1, 2], "x": [1, None]})


@pytest.mark.parametrize("reopened", [False, True])
def test_retry_after_a_column_was_added(tmp_path, reopened):
    """The same events are the same batch, whatever columns the topic has now; other events are another one."""
    catalog = aggregator.open(tmp_path)
    topic = catalog.create_topic("t")
    first = topic.append(BATCH, producer="p", sequence=1)
    topic.append(pa.table({"space": ["a"], "timestamp": [3], "y": ["new"]}))
    if reopened:
        catalog.close()
        catalog = aggregator.open(tmp_path)
        topic = catalog.topic("t")
    again = topic.append(BATCH, producer="p", sequence=1)
    assert (again.duplicate, again.first, again.last) == (True, first.first, first.last)
    for other in (BATCH.rename_columns(["space", "timestamp", "z"]), BATCH.drop_columns(["x"])):
        with pytest.raises(aggregator.SequenceConflictError):
            topic.append(other, producer="p", sequence=1)
    catalog.close()
