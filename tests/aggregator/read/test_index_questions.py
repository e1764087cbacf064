"""Arguments of topics are checked immediately, the same for sealed and unsealed events."""

from __future__ import annotations

import pyarrow as pa
import pytest

import aggregator
from esformat import InvalidEventError, UsageError


@pytest.fixture
def catalog(tmp_path):
    with aggregator.open(tmp_path) as catalog:
        yield catalog


@pytest.mark.parametrize("sealed", [False, True])
def test_values_that_an_index_cannot_hold(catalog, sealed):
    """A value of another type than the index's is an error, not an empty answer, sealed or not."""
    schema = pa.schema([("code", pa.int64()), ("ok", pa.bool_())])
    topic = catalog.create_topic("t", schema, indexes=["type", "code", "ok"])
    topic.append([{"space": "a", "timestamp": 1, "type": "x", "code": 5, "ok": True}])
    if sealed:
        catalog.seal()
    for name, value in (("type", 5), ("type", b"x"), ("code", "5"), ("code", 5.0), ("code", True), ("ok", 1)):
        with pytest.raises(UsageError, match=f"index '{name}' holds values of type"):
            topic.scan_index(name, value)
    with pytest.raises(UsageError, match="not None"):
        topic.scan_index({"type": None})
    assert topic.scan_index({"type": "x", "code": 5, "ok": True}).count() == 1
    assert topic.scan_index("code", 2**70).count() == 0


@pytest.mark.parametrize("sealed", [False, True])
def test_an_index_of_two_types(catalog, sealed):
    """In an index of several types, a value matches all that reads show alike: 5 and "5" become the same text."""
    topic = catalog.create_topic("t", indexes=["code"])
    for value in (5, "5", True):
        topic.append([{"space": "a", "timestamp": 1, "code": value}])
    if sealed:
        catalog.seal()
    for value, count in ((5, 2), ("5", 2), (True, 1), ("true", 1), (1, 0), ("True", 0)):
        assert topic.scan_index("code", value).count() == count, value
    with pytest.raises(UsageError, match=r"of type bool or int64 or string, not 5\.0"):
        topic.scan_index("code", 5.0)


@pytest.mark.parametrize("sealed", [False, True])
def test_texts_that_no_event_can_have(catalog, sealed):
    """A lone surrogate matches no event, sealed or not."""
    topic = catalog.create_topic("t", indexes=["type"])
    topic.append([{"space": "a", "timestamp": 1, "type": "x"}])
    if sealed:
        catalog.seal()
    for query in ({}, {"space": "a"}, {"reverse": True, "limit": 1}):
        assert topic.scan_index("type", "\ud800", **query).count() == 0
        assert list(topic.scan_index("type", "\ud800", **query)) == []


def test_limits_beyond_every_count(catalog):
    """Any limit is accepted, however large."""
    topic = catalog.create_topic("t")
    topic.append([{"space": "a", "timestamp": 1}] * 3)
    for scan in (topic.scan(limit=2**70), topic.scan(space="a", limit=2**70), topic.read("0", limit=2**70)):
        assert len(list(scan)) == scan.count() == scan.to_table().num_rows == 3
    assert len(list(topic.read("0", 2**70, reverse=True))) == 3


@pytest.mark.parametrize("name", ["space", "grouping", "timestamp", "record_index", "partition", "", 5, "a\ud800"])
def test_names_that_no_index_can_have(catalog, name):
    """An index must be on a payload column; otherwise no topic is created."""
    with pytest.raises(UsageError, match="cannot be the name of an index"):
        catalog.create_topic("t", indexes=[name])
    assert catalog.topics() == ()


def test_what_is_no_schema_and_no_column(catalog):
    """Invalid arguments raise the library's errors, not Python's."""
    with pytest.raises(UsageError, match=r"schema must be a pyarrow\.Schema, not dict"):
        catalog.create_topic("t", {"x": "int64"})
    topic = catalog.create_topic("t")
    with pytest.raises(InvalidEventError, match="event 1 has a column named 5"):
        topic.append([{"space": "a", "timestamp": 1}, {"space": "a", "timestamp": 1, 5: "x"}])
    with pytest.raises(InvalidEventError, match="its name is not Unicode text"):
        topic.append([{"space": "a", "timestamp": 1}, {"space": "a", "timestamp": 1, "a\ud800": "x"}])
    with pytest.raises(UsageError, match="columns must be a list of names"):
        topic.scan(columns=[["space"]])


class Colour(pa.ExtensionType):
    """A user-defined type; pyarrow gives such types no hash."""

    def __init__(self) -> None:
        super().__init__(pa.int32(), "tests.colour")

    def __arrow_ext_serialize__(self) -> bytes:
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, storage, serialized):
        return cls()


def test_a_type_of_the_callers_own(catalog):
    """Values of an extension type are stored as their storage type."""
    colours = pa.ExtensionArray.from_storage(Colour(), pa.array([255, None], pa.int32()))
    topic = catalog.create_topic("t")
    for _ in range(2):
        topic.append(pa.table({"space": ["a", "b"], "timestamp": [1, 2], "colour": colours}))
    assert topic.scan().to_table()["colour"].to_pylist() == [255, 255, None, None]


def test_categories_are_texts(catalog):
    """Dictionaries of any text type are stored as plain text."""
    topic = catalog.create_topic("t")
    for kind in (pa.string(), pa.large_string(), pa.string_view()):
        values = pa.DictionaryArray.from_arrays(pa.array([0, 1]), pa.array(["x", "y"]).cast(kind))
        topic.append(pa.table({"space": ["a", "b"], "timestamp": [1, 2], "kind": values}))
    assert topic.scan().schema.field("kind").type == pa.string()
    assert topic.stats()["schemas"] == 1
    assert topic.scan().to_table()["kind"].to_pylist() == ["x"] * 3 + ["y"] * 3
