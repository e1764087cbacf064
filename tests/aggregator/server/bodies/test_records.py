"""Records from shippers: names that several fields share."""

from __future__ import annotations

import json

from aggregator.server.bodies.bulk import Action, record_of
from aggregator.server.bodies.shared.records import free_name


def test_free_names():
    """A taken name gets a prefix; names that are often taken do not grow longer and longer."""
    record = {"msg": "x", "a": 1}
    assert free_name("b", "p.", record) == "b"
    assert free_name("a", "p.", record) == "p.a"
    assert free_name("msg", "p.", record) == "p.msg"
    assert free_name("ts", "p.", record) == "p.ts"
    for _ in range(100):
        record[free_name("a", "p.", record)] = 2
    assert len(record) == 102
    assert max(map(len, record)) < 20


def ways(count):
    """A document that writes a name of `count` parts in every way that dots and objects allow."""
    last = "a" if count == 1 else ".".join("a" * count)
    return {last: count, **{".".join("a" * first): ways(count - first) for first in range(1, count)}}


def test_a_document_with_one_name_in_many_ways():
    """A small document can write one name in thousands of ways: all values are kept under short names."""
    document = json.dumps(ways(13)).encode()
    _, record = record_of(Action("index", "i", None, document, 1))
    assert len(record) == 2**12
    assert max(map(len, record)) < 60
