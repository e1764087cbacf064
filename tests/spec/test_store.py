"""Catalogs in stores: the tables and examples of `spec/store.md`, and its independent reader."""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import read_esdb
import read_store
from shipped_catalogs import events
from spec_document import ROOT, examples, struct_format

import aggregator
from aggregator.storage.store.lease import Terms
from aggregator.storage.store.shipped import LogObject

TEXT = (ROOT / "spec" / "store.md").read_text("utf-8")


def example(name: str) -> str:
    """An example as text."""
    (found,) = re.findall(rf"<!-- example: {name} -->\n\n```json\n(.*?)```", TEXT, re.DOTALL)
    return str(found)


def test_an_object_of_the_log():
    """The code writes the example, both readers read it, and the code has the fields of the table."""
    ((name, facts, stored),) = examples(TEXT)
    assert (name, facts) == ("store log object", {"sequence": "7"})
    one = LogObject(2, 7, "5e" * 16, 1_772_000_000_000_000, 4720, pieces=[(4128, b"LFRM")])
    assert one.encode() == stored
    assert LogObject.decode(stored, 7) == one
    read = read_store.read_object(stored, 7)
    assert read.pieces == [(4128, b"LFRM")]
    assert json.loads(example("head")) == read.head
    assert stored[: struct.calcsize(struct_format("store log object", TEXT))] == stored[:16]
    for at in range(len(stored)):
        with pytest.raises((read_store.Corrupt, read_store.TooNew, ValueError)):
            read_store.read_object(stored[:at] + bytes([stored[at] ^ 1]) + stored[at + 1 :], 7)


def test_the_lease():
    """The code writes the example of a lease."""
    shown = example("lease")
    assert json.loads(Terms.decode(shown.encode()).encode()) == json.loads(shown)


def product(folder: Path) -> Iterator[dict[str, Any]]:
    """Every event, in the form of the independent reader."""
    with aggregator.open(folder.as_uri(), read_only=True) as catalog:
        for topic in catalog.topics():
            for partition in catalog.topic(topic).partitions:
                for row in catalog.topic(topic).read(partition).to_table().to_pylist():
                    keys = {name: row.pop(name) for name in ("record_index", "space", "grouping")}
                    time = int(row.pop("timestamp").timestamp() * 1_000_000)
                    yield {"topic": topic, "partition": partition, **keys, "timestamp": time, "columns": row}


def shown(found: Iterator[dict[str, Any]]) -> list[dict[str, Any]]:
    """Events as JSON, by topic, partition and record index."""
    lines = [json.loads(read_esdb.line(event)) for event in found]
    return sorted(lines, key=lambda event: (event["topic"], event["partition"], event["record_index"]))


def test_the_independent_reader(tmp_path: Path):
    """The independent reader sees the product's events at all times: sealed or not, erased, merged, of two writers."""
    folder = tmp_path / "store"
    how: dict[str, Any] = {"store": folder.as_uri(), "durability": "store", "ship_interval": "1h", "lease": "1h"}

    def compare(count: int) -> None:
        found = shown(read_store.Store(folder).events())
        assert found == shown(product(folder))
        assert len(found) == count

    with aggregator.open(tmp_path / "a", **how) as catalog:
        topic = catalog.create_topic("t", indexes=["kind"])
        for first in range(0, 40, 10):
            rows = [event | {"kind": f"k{first}", "n": first or None, "f": 0.5} for event in events(first)]
            topic.append(rows, partition=f"p{first % 20}", producer="p", sequence=first)
            catalog.seal("t") if first != 20 else None
        compare(40)
        catalog.create_topic("gone").append(events(0))
        catalog.create_topic("bytes", keys="binary").append([{"space": b"\xff", "timestamp": 5, "data": b"\x00"}])
        catalog.write({"app": "web"}, [{"ts": number, "msg": f"line {number}", "more": "x"} for number in range(5)])
        compare(56)
        catalog.delete_topic("gone")
        topic.erase("s1")
        topic.append(events(0, 4), partition="new")
        catalog.compact()
        compare(27 + 1 + 5 + 4)
        facts = read_store.Store(folder).facts()
        assert facts["end"] == catalog._backend.shipper.shipped
        assert (facts["epoch"], facts["in_store"], facts["released"]) == (1, True, False)
    with aggregator.open(tmp_path / "a") as catalog:
        catalog.topic("t").append(events(100), partition="new")
        catalog._backend.shipper.ship()
        compare(47)
        assert read_store.Store(folder).facts()["epoch"] == 2
    compare(47)
    named = set(read_store.Store(folder).facts()["segments"])
    assert named
    assert named < {path.relative_to(folder).as_posix() for path in folder.glob("segments/*/*")}  # merged ones remain
