"""Rows become events: each column gets its role, and each row that cannot become an event is reported."""

from __future__ import annotations

from datetime import UTC, date, datetime
from time import process_time

import pyarrow as pa
import pytest

from esformat.convert.events import make_events, no_events, read_times
from esformat.convert.plan import Plan
from esformat.convert.roles import Roles
from esformat.convert.rows import Origin, Rows

NOT_TEXT = "space 'u' is not UTF-8 text: take bytes with --keys binary"
NOON = datetime(2006, 4, 7, 12, tzinfo=UTC)


def make(columns, roles: Roles, types=None):
    """Return the events of columns as a reader returns them, and the reasons of bad rows by number from 1."""
    batch = pa.RecordBatch.from_pydict(columns)
    types = types or {field.name: field.type for field in batch.schema}
    rows = Rows(batch, types, Origin("file", "row", lambda row: (row + 1, f"text of {row + 1}")))
    times = read_times(rows, roles)
    events, rejects = make_events(rows, times, Plan(roles).widened(types, has_nanos=times.has_nanos))
    return events, {row.number: row.reason for row in rejects}


def roles(**options) -> Roles:
    return Roles(**{"space": "u", "timestamp": "t", **options})


def test_columns():
    """Columns are ordered: keys, payload, indexes, typed columns."""
    events, bad = make(
        {"a": [1], "i": ["x"], "t": [NOON], "d": ["payload"], "g": ["app"], "u": ["me"]},
        roles(grouping="g", indexes=("i",), data="d", columns=("a",)),
    )
    assert bad == {}
    assert events.to_pylist() == [
        {"space": "me", "grouping": "app", "timestamp": NOON, "data": b"payload", "i": "x", "a": 1}
    ]
    assert [field.nullable for field in events.schema] == [False, False, False, False, True, True]


KEYS = [
    (pa.array([7, None]), "text", ["7"], {2: "no space: 'u' has no value"}),
    (pa.array([1.5, 2.0]), "text", ["1.5", "2"], {}),
    (pa.array([True]), "text", ["true"], {}),
    (pa.array([date(2006, 4, 7)]), "text", ["2006-04-07"], {}),
    (pa.array(["é", ""]), "text", ["é", ""], {}),
    (pa.array(["a", "b"]).dictionary_encode(), "text", ["a", "b"], {}),
    (pa.array([b"a", b"\xff"]), "text", ["a"], {2: NOT_TEXT}),
    (pa.array([b"a", b"\xff"]), "binary", [b"a", b"\xff"], {}),
    (pa.array(["é"]), "binary", ["é".encode()], {}),
    (pa.array([7]), "binary", [b"7"], {}),
    (pa.array(["a" * 65536, "a" * 65537]), "text", ["a" * 65536], {2: "space 'u' is longer than 65536 bytes"}),
    (pa.nulls(1), "text", [], {1: "no space: 'u' has no value"}),
]  # fmt: skip


@pytest.mark.parametrize(("keys", "kind", "expected", "reasons"), KEYS, ids=range(len(KEYS)))
def test_keys(keys, kind, expected, reasons):
    """Keys of any type become text or bytes; null and invalid keys are reported."""
    events, bad = make({"u": keys, "t": [NOON] * len(keys)}, roles(keys=kind))
    assert events.column("space").to_pylist() == expected
    assert bad == reasons


def test_grouping():
    """A row without a grouping has the empty one; a number becomes text."""
    events, bad = make({"u": ["a"] * 3, "t": [NOON] * 3, "g": [5, None, 7]}, roles(grouping="g"))
    assert events.column("grouping").to_pylist() == ["5", "", "7"]
    assert bad == {}


def test_timestamps():
    """Missing and unreadable times are reported differently."""
    events, bad = make({"u": ["a"] * 4, "t": ["2006-04-07 12:00", None, "x", "2006-04-07T14:00+02:00"]}, roles())
    assert events.column("timestamp").to_pylist() == [NOON, NOON]
    assert bad[2] == "no timestamp: 't' has no value"
    assert bad[3].startswith("timestamp 'x' is neither an ISO 8601 time nor a number since 1970: give")


def test_timestamp_bytes():
    """Times in text formats are read from bytes. Only a file of text can be converted as a whole."""
    columns = {"u": pa.array([b"a", b"b"]), "t": pa.array([b"2006-04-07 12:00", b"\xff"])}
    events, bad = make(columns, roles(), {"u": pa.string(), "t": pa.string()})
    assert events.column("timestamp").to_pylist() == [NOON]
    assert bad == {2: "timestamp 't' is not UTF-8 text"}


def test_no_timestamp_column():
    """If no object of a batch has the timestamp key, every row reports it."""
    assert make({"u": ["a"]}, roles())[1] == {1: "no timestamp: 't' has no value"}


def test_nanoseconds():
    """Digits below the microsecond go to a separate column."""
    events, _ = make({"u": ["a", "b"], "t": ["2006-04-07T12:00:00.123456789Z", "2006-04-07T12:00Z"]}, roles())
    assert events.column("t_ns").to_pylist() == [1144411200123456789, 1144411200000000000]
    assert events.column("timestamp").cast(pa.int64()).to_pylist() == [1144411200123456, 1144411200000000]


PAYLOADS = [
    (pa.array(["é", "", None]), ["é".encode(), b"", b""]),
    (pa.array([b"\xff"]), [b"\xff"]),
    (pa.array([5, None]), [b"5", b""]),
    (pa.array([[1, 2]]), [b"[1,2]"]),
    (pa.array([{"a": "x"}]), [b'{"a":"x"}']),
]


@pytest.mark.parametrize(("payload", "expected"), PAYLOADS, ids=range(len(PAYLOADS)))
def test_data(payload, expected):
    """Bytes are the payload as they are; text becomes UTF-8, other values become JSON, null becomes empty."""
    count = len(payload)
    events, bad = make({"u": ["a"] * count, "t": [NOON] * count, "d": payload}, roles(data="d"))
    assert events.column("data").to_pylist() == expected
    assert bad == {}


def test_data_json():
    """Columns without another role become one JSON object, in input order."""
    columns = {"b": [1, None], "u": ["a", "a"], "t": [NOON] * 2, "a": ["x", 'y"'], "i": ["p", "q"]}
    events, _ = make(columns, roles(data_json=True, indexes=("i",)))
    assert events.column("data").to_pylist() == [b'{"b":1,"a":"x"}', b'{"b":null,"a":"y\\""}']
    assert events.schema.names == ["space", "timestamp", "data", "i"]


def test_indexes():
    """Index columns are text, integers or booleans, and may be null."""
    columns = {
        "u": ["a"] * 2,
        "t": [NOON] * 2,
        "i": [1, None],
        "f": [1.5, None],
        "b": [True, None],
        "d": [date(2006, 4, 7), None],
    }
    events, bad = make(columns, roles(indexes=("i", "f", "b", "d")))
    assert events.drop_columns(["space", "timestamp"]).to_pylist() == [
        {"i": 1, "f": "1.5", "b": True, "d": "2006-04-07"},
        {"i": None, "f": None, "b": None, "d": None},
    ]
    assert bad == {}


TYPED = [
    (
        pa.array([b"1", b"x"]),
        pa.int64(),
        [1],
        "column 'a': cannot read b'x' as int64; give --type a=string to keep it as text",
    ),
    (pa.array(["1", "x"]), pa.float64(), [1.0], "column 'a': cannot read 'x' as double; give --type a=string"),
    (
        pa.array([b"1", b"\xff"]),
        pa.string(),
        ["1"],
        "column 'a' is not UTF-8 text: give --type a=binary",
    ),
    (pa.array([b"2006-04-07 12:00", b"x"]), pa.timestamp("us", "UTC"), [NOON], "timestamp 'x' is neither an ISO 8601"),
    (pa.array([b"2006-04-07", b"x"]), pa.date32(), [date(2006, 4, 7)], "column 'a': cannot read b'x' as date32"),
    (pa.array([1, 2]), pa.string(), ["1", "2"], None),
    (pa.array([b"1", b"\xff"]), pa.binary(), [b"1", b"\xff"], None),
]


@pytest.mark.parametrize(("values", "type_", "expected", "reason"), TYPED, ids=range(len(TYPED)))
def test_asked_for_types(values, type_, expected, reason):
    """A requested type is used; values that do not fit are reported; the error suggests a fix."""
    events, bad = make({"u": ["a"] * 2, "t": [NOON] * 2, "a": values}, roles(types={"a": type_}))
    assert events.column("a").type == type_
    assert events.column("a").to_pylist() == expected
    assert (reason is None and bad == {}) or bad[2].startswith(reason)


def test_null_times_of_typed_columns():
    """Times in other columns than the timestamp may be missing."""
    columns = {"u": ["a"], "t": [NOON], "a": pa.array([None], pa.binary())}
    events, bad = make(columns, roles(types={"a": pa.timestamp("us", "UTC")}))
    assert events.column("a").to_pylist() == [None]
    assert bad == {}


def test_first_reason_counts():
    """A row with several faults is one bad row."""
    _, bad = make({"u": [None, "a"], "t": ["x", "y"]}, roles())
    assert bad[1] == "no space: 'u' has no value"
    assert len(bad) == 2


def test_reserved_names():
    """A typed column with a reserved name is renamed."""
    events, _ = make({"u": ["a"], "t": [NOON], "space": [1], "grouping": [2]}, roles(grouping="u"))
    assert events.select(["space_", "grouping_"]).to_pylist() == [{"space_": 1, "grouping_": 2}]


def test_no_events():
    """A batch without events has the same columns as one with events."""
    plan = Plan(roles(grouping="g", indexes=("i",))).widened({"a": pa.int64(), "i": pa.int64()}, has_nanos=True)
    events = no_events(plan)
    assert events.num_rows == 0
    assert events.schema.names == ["space", "grouping", "timestamp", "i", "a", "t_ns"]
    assert events.schema.field("i").type == pa.int64()


def test_many_columns():
    """Thousands of columns become events in linear time."""
    columns = {"u": ["a"], "t": ["2026-01-01"], **{f"c{number}": [1] for number in range(4000)}}
    started = process_time()
    make(columns, roles())
    assert process_time() - started < 1.5  # 5 s if each column searched the names of all
