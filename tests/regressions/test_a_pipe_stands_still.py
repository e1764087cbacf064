"""A pipe whose catalog closed after the last copy of a round, but before the round's end, never copied again: it
requested the rest of that round in a loop that used a whole processor, even after restarts.
"""

from __future__ import annotations

from unittest import mock

import pytest
from waiting import until

import aggregator
from aggregator.engine.ingest.append import Ingest

pytestmark = pytest.mark.usefixtures("quiet")


def test_closed_behind_the_last_copy_of_a_round(tmp_path):
    """The next opening continues with later records."""
    append = Ingest.append

    def closing(self, topic, given, partition, producer, sequence, note=""):
        receipt = append(self, topic, given, partition, producer, sequence, note)
        if producer is not None and producer.startswith("pipe"):
            catalog._pipes._stopping.set()  # as `close` does in another thread
            catalog._pipes._allowance.cancel("the catalog is closed")
        return receipt

    with aggregator.open(tmp_path) as catalog, mock.patch.object(Ingest, "append", closing):
        catalog.query("CREATE PIPE p FROM app = a")
        catalog.write({"app": "a"}, [{"msg": "1"}, {"msg": "2"}])
        catalog._pipes._thread.join(120)
    with aggregator.open(tmp_path) as catalog:
        catalog.write({"app": "a"}, [{"msg": "3"}])
        until(lambda: catalog.query("DESCRIBE PIPE p")["lag"].to_pylist() == [0])
        assert [event.data for event in catalog.query("SELECT FROM logrange.pipe = p")] == [b"1", b"2", b"3"]
