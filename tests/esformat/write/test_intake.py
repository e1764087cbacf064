"""Tables and events that callers pass to a writer are checked first; errors say what is wrong and where."""

# ruff: noqa: E501 - tables read better in one line per case

from __future__ import annotations

import datetime as dt
import re
import struct
import uuid
from decimal import Decimal

import duckdb
import numpy as np
import pyarrow as pa
import pytest

from esformat.errors import InvalidEventError
from esformat.format.schema import EventSchema, Field, make_schema, normalise_type
from esformat.write.intake import EventRows, check_table, stream_of, to_arrow

SCHEMA = EventSchema(
    (
        Field("data", pa.binary(), nullable=False),
        Field("type", pa.string(), indexed=True),
        Field("n", pa.int8()),
    )
)
BINARY = EventSchema((Field("data", pa.binary()),), binary_keys=True)
US = pa.timestamp("us", "UTC")


def table(**columns: object) -> pa.Table:
    """Two valid events with some columns replaced; None removes one."""
    good = {"space": ["a", "b"], "timestamp": pa.array([1, 2], US), "data": [b"x", b"y"]}
    return pa.table({name: column for name, column in (good | columns).items() if column is not None})


GOOD = [
    ("keys as they are", {}, "space", ["a", "b"]),
    ("no grouping", {}, "grouping", ["", ""]),
    ("grouping of type null without rows is none", {"space": pa.array([], pa.null()), "timestamp": pa.array([], US), "data": pa.array([], pa.binary())}, "space", []),
    ("bytes that are text", {"space": [b"a", "é".encode()]}, "space", ["a", "é"]),
    ("large text", {"space": pa.array(["a", "b"], pa.large_string())}, "space", ["a", "b"]),
    ("dictionary", {"space": pa.array(["a", "b"]).dictionary_encode()}, "space", ["a", "b"]),
    ("views", {"space": pa.array(["a", "b"], pa.string_view())}, "space", ["a", "b"]),
    ("run ends", {"space": pa.RunEndEncodedArray.from_arrays([2], ["a"])}, "space", ["a", "a"]),
    ("no data is empty data", {"data": None}, "data", [b"", b""]),
    ("data as text", {"data": ["x", "é"]}, "data", [b"x", "é".encode()]),
    ("missing index is null", {}, "type", [None, None]),
    ("index as dictionary", {"type": pa.array(["p", None]).dictionary_encode()}, "type", ["p", None]),
    ("index without a type", {"type": pa.nulls(2)}, "type", [None, None]),
    ("numbers that are whole", {"n": [1.0, None]}, "n", [1, None]),
    ("numbers that fit", {"n": pa.array([-128, None], pa.int64())}, "n", [-128, None]),
]  # fmt: skip


@pytest.mark.parametrize(("columns", "name", "expected"), [c[1:] for c in GOOD], ids=[c[0] for c in GOOD])
def test_tables_are_brought_to_the_schema(columns, name, expected):
    """Tables get the schema's column order and types, whatever their memory layout."""
    checked = check_table(table(**columns), SCHEMA)
    assert checked.schema.equals(SCHEMA.arrow)
    assert checked[name].to_pylist() == expected


TIMES = [
    ("µs", pa.array([1, -5], US), [1, -5]),
    ("whole numbers are µs", pa.array([1, -(2**63)], pa.int64()), [1, -(2**63)]),
    ("small whole numbers", pa.array([1, 2], pa.uint8()), [1, 2]),
    ("s", pa.array([1, -2], pa.timestamp("s", "UTC")), [1_000_000, -2_000_000]),
    ("ms in another zone is the same moment", pa.array([1, 2], pa.timestamp("ms", "Asia/Tokyo")), [1000, 2000]),
    ("ns without a rest", pa.array([1000, -2000], pa.timestamp("ns", "UTC")), [1, -2]),
]


@pytest.mark.parametrize(("times", "expected"), [c[1:] for c in TIMES], ids=[c[0] for c in TIMES])
def test_times(times, expected):
    """Times of any unit are kept to the microsecond."""
    checked = check_table(table(timestamp=times), SCHEMA)
    assert checked["timestamp"].cast(pa.int64()).to_pylist() == expected


BAD = [
    ("no space", {"space": None}, "no column 'space'; its columns are timestamp, data; rename one"),
    ("no timestamp", {"timestamp": None}, "no column 'timestamp'"),
    ("column of no schema", {"typo": ["a", "b"]}, "column 'typo' is not in the segment's schema; drop it"),
    ("null space", {"space": ["a", None]}, "column 'space' is null in row 1"),
    ("spaces of type null", {"space": pa.nulls(2)}, "column 'space' must contain text, not null"),
    ("null grouping", {"grouping": [None, "a"]}, "column 'grouping' is null in row 0"),
    ("space of numbers", {"space": [1, 2]}, "column 'space' must contain text, not int64"),
    ("space that is not UTF-8", {"space": [b"a", b"\xff"]}, 'not UTF-8 text.*keys="binary"'),
    ("space that is too long", {"space": ["a", "é" * 32_769]}, "space in row 1 has 65538 bytes, more than 65536"),
    ("null time", {"timestamp": pa.array([None, 1], US)}, "column 'timestamp' is null in row 0"),
    ("time without a zone", {"timestamp": pa.array([1, 2], pa.timestamp("us"))}, "'timestamp' has no time zone; say which"),
    ("ns with a rest", {"timestamp": pa.array([1, 2], pa.timestamp("ns", "UTC"))}, "does not fit microseconds.*separate column"),
    ("s beyond 64 bits", {"timestamp": pa.array([2**62, 2], pa.timestamp("s", "UTC"))}, "does not fit microseconds.*; 64-bit microseconds"),
    ("time as text", {"timestamp": ["2014-06-23", "2014-06-24"]}, "must be a timestamp with a zone or int64 microseconds, not string"),
    ("time as a float", {"timestamp": [1.5, 2.0]}, "not double"),
    ("number beyond 64 bits", {"timestamp": pa.array([2**63, 1], pa.uint64())}, "does not fit 64 bits"),
    ("null data", {"data": [b"x", None]}, "column 'data' is null in row 1; the schema forbids it"),
    ("data of another type", {"data": [1.5, 2.5]}, "column 'data' of type double does not fit the schema's binary"),
    ("number that does not fit", {"n": [1, 128]}, "column 'n' of type int64 does not fit the schema's int8"),
    ("number where text is wanted", {"type": [5, 6]}, "column 'type' of type int64 does not fit the schema's string: cast it first"),
    ("truth where a number is wanted", {"n": [True, False]}, "column 'n' of type bool does not fit"),
    ("time where a number is wanted", {"n": pa.array([1, 2], US)}, "column 'n' of type timestamp"),
    ("index of bytes that are no text", {"type": [b"\xff", b"a"]}, "column 'type' of type binary does not fit"),
]  # fmt: skip


@pytest.mark.parametrize(("columns", "message"), [c[1:] for c in BAD], ids=[c[0] for c in BAD])
def test_tables_that_do_not_fit(columns, message):
    """A table that does not fit is refused with the column, the row if there is one, and a fix."""
    with pytest.raises(InvalidEventError, match=message):
        check_table(table(**columns), SCHEMA)


def test_row_of_a_bad_key_counts_over_chunks():
    """The row in the error counts over the whole table, not within a chunk."""
    chunked = pa.chunked_array([["a", "b"], ["c", None]])
    with pytest.raises(InvalidEventError, match="null in row 3"):
        check_table(pa.table({"space": chunked, "timestamp": pa.array([1, 2, 3, 4])}), SCHEMA)


def test_two_columns_of_one_name():
    """Two columns with one name are refused."""
    doubled = pa.Table.from_arrays([pa.array(["a"])] * 2 + [pa.array([1])], names=["space", "space", "timestamp"])
    with pytest.raises(InvalidEventError, match="unique"):
        check_table(doubled, SCHEMA)


def test_tables_with_broken_memory():
    """Invalid offsets are detected before they are used."""
    offsets = pa.py_buffer(struct.pack("<3i", 0, 2**31 - 1, 2))
    broken = pa.Array.from_buffers(pa.string(), 2, [None, offsets, pa.py_buffer(b"ab")])
    with pytest.raises(InvalidEventError, match="the table is broken"):
        check_table(pa.table({"space": broken, "timestamp": [1, 2]}), SCHEMA)


HOUR_MS = 3_600_000
IMPOSSIBLE = [
    (pa.date64(), HOUR_MS, "date64[ms] 3600000 does not represent a whole number of days"),
    (pa.time32("ms"), 24 * HOUR_MS, "time32[ms] 86400000 is not within"),
    (pa.time64("us"), -1, "time64[us] -1 is not within"),
]


def test_numbers_with_more_digits_than_their_type():
    """DuckDB's HUGEINT of 39 digits, which it exports as a decimal of 38, is named; it is no damage."""
    table = duckdb.sql(f"SELECT 'a' AS space, 1::BIGINT AS timestamp, {2**127 - 1}::HUGEINT AS v").to_arrow_table()
    with pytest.raises(InvalidEventError, match=f"column 'v': Decimal value {2**127 - 1} does not fit") as refused:
        check_table(table, SCHEMA)
    assert "or text" in refused.value.hint


@pytest.mark.parametrize(("kind", "value", "why"), IMPOSSIBLE)
@pytest.mark.parametrize("nested", [False, True])
def test_dates_and_times_that_their_types_do_not_allow(kind, value, why, nested):
    """Such values, which some programs write, are named; they are no damage."""
    column = pa.array([0, value], f"int{kind.bit_width}").view(kind)
    column = pa.ListArray.from_arrays([0, 2], column) if nested else column.slice(1)
    table = pa.table({"space": ["a"], "timestamp": [1], "v": column})
    with pytest.raises(InvalidEventError, match=re.escape(f"column 'v': {why}")) as refused:
        check_table(table, SCHEMA)
    assert "another type" in refused.value.hint


def test_text_that_is_not_utf_8():
    """Bytes declared as text are checked."""
    lying = pa.Array.from_buffers(pa.string(), 1, [None, pa.py_buffer(b"\0\0\0\0\2\0\0\0"), pa.py_buffer(b"\xff\xfe")])
    for columns in ({"space": lying, "timestamp": [1]}, {"space": ["a"], "timestamp": [1], "type": lying}):
        with pytest.raises(InvalidEventError, match="the table is broken"):
            check_table(pa.table(columns), SCHEMA)


def test_required_columns():
    """A column that may not be null must exist, except `data`."""
    schema = EventSchema((Field("n", pa.int8(), nullable=False),))
    with pytest.raises(InvalidEventError, match="no column 'n'; the segment's schema requires it"):
        check_table(pa.table({"space": ["a"], "timestamp": [1]}), schema)


class OnlyStream:
    """An object that can only be read as a stream."""

    def __init__(self, table):
        self._table = table

    def __arrow_c_stream__(self, requested_schema=None):
        return self._table.__arrow_c_stream__(requested_schema)


class OnlyArray:
    """An object that is a single batch."""

    def __init__(self, batch):
        self._batch = batch

    def __arrow_c_array__(self, requested_schema=None):
        return self._batch.__arrow_c_array__(requested_schema)


def test_anything_with_an_arrow_interface():
    """Tables, batches, readers, streams and struct arrays are accepted."""
    expected = table()
    (batch,) = expected.to_batches()
    for given in (expected, batch, expected.to_reader(), OnlyStream(expected), OnlyArray(batch)):
        assert to_arrow(given).equals(expected)


@pytest.mark.parametrize(
    "given", [None, 5, "a,b", [{"space": "a"}], np.zeros(3), {"space": ["a"]}], ids=lambda x: type(x).__name__
)
def test_what_is_no_table(given):
    """Other objects are refused with their type and the accepted ones."""
    with pytest.raises(InvalidEventError, match=f"from {type(given).__name__}; give a pyarrow table, or anything"):
        to_arrow(given)


def test_stream_that_breaks_off():
    """An error of the stream is raised as pyarrow reports it, not as a fault of the events."""

    def batches():
        yield table().to_batches()[0]
        raise RuntimeError("connection lost")

    with pytest.raises(pa.ArrowInvalid, match="connection lost"):
        to_arrow(pa.RecordBatchReader.from_batches(table().schema, batches()))


WAYS = [
    pa.array(["a", "b", None]).dictionary_encode(),
    pa.DictionaryArray.from_arrays(pa.array([1, 0, None]), pa.array([None, "a"])),
    pa.RunEndEncodedArray.from_arrays([2, 3], pa.array(["a", None])),
    pa.array(["a", None], pa.string_view()),
    pa.array([["a"], None, [], ["b", None]], pa.list_view(pa.string_view())),
    pa.array([["a"], None, [], ["b", None]], pa.large_list_view(pa.string())),
    pa.array([["a"], None, [], ["b", None]], pa.list_(pa.string_view())),
    pa.StructArray.from_arrays([pa.array(["a", None]).dictionary_encode()], ["x"]),
    pa.array([[("a", b"x")], None], pa.map_(pa.string_view(), pa.binary_view())),
    pa.array([Decimal("1.5"), None], pa.decimal32(5, 2)),
    pa.array([[Decimal("-1.5"), None]], pa.list_(pa.decimal64(18, 4))),
    pa.ExtensionArray.from_storage(pa.json_(), pa.array(["{}", None])),
    pa.ExtensionArray.from_storage(pa.uuid(), pa.array([b"0123456789abcdef", None], pa.binary(16))),
]


@pytest.mark.parametrize("array", WAYS, ids=lambda array: str(array.type).replace("\n", " "))
def test_ways_of_lying_in_memory(array):
    """Dictionaries, run ends, views and extensions become plain values and nulls."""
    given = pa.table({"space": ["a"] * len(array), "timestamp": range(len(array)), "x": array})
    schema = make_schema(given.schema, [], binary_keys=False)
    checked = check_table(given, schema)
    checked.validate(full=True)
    assert checked["x"].type == schema.fields[0].type == normalise_type(array.type)
    expected = [value.bytes if isinstance(value, uuid.UUID) else value for value in array.to_pylist()]
    assert checked["x"].to_pylist() == expected


def test_slices_of_list_views():
    """List views may point anywhere in their values, in any order."""
    views = pa.ListViewArray.from_arrays(
        pa.array([3, 0, 1], pa.int32()), pa.array([1, 2, 0], pa.int32()), pa.array([5, 6, 7, 8])
    )
    given = pa.table({"space": ["a"] * 2, "timestamp": [1, 2], "x": views.slice(0, 2)})
    checked = check_table(given, make_schema(given.schema, [], binary_keys=False))
    assert checked["x"].to_pylist() == [[8], [5, 6]]


def test_nulls_that_hide_in_a_dictionary():
    """A key that is null through its dictionary or run end is refused."""
    hidden = pa.DictionaryArray.from_arrays(pa.array([0, 1]), pa.array(["a", None]))
    with pytest.raises(InvalidEventError, match="column 'space' is null in row 1"):
        check_table(table(space=hidden), SCHEMA)
    ends = pa.RunEndEncodedArray.from_arrays([1, 2], pa.array([b"x", None]))
    with pytest.raises(InvalidEventError, match="column 'data' is null in row 1"):
        check_table(table(data=ends), SCHEMA)
    times = pa.DictionaryArray.from_arrays(pa.array([0, 1]), pa.array([5, None], US))
    with pytest.raises(InvalidEventError, match="column 'timestamp' is null in row 1"):
        check_table(table(timestamp=times), SCHEMA)


def test_run_ends_within_lists():
    """Run ends within lists become plain values."""
    inner = pa.RunEndEncodedArray.from_arrays([2, 3], pa.array(["a", "b"]))
    nested = pa.ListArray.from_arrays(pa.array([0, 3], pa.int32()), inner)
    given = pa.table({"space": ["a"], "timestamp": [1], "x": nested})
    checked = check_table(given, make_schema(given.schema, [], binary_keys=False))
    assert checked["x"].to_pylist() == [["a", "a", "b"]]


def test_one_large_value_among_many_small_ones():
    """A small dictionary that would expand to a terabyte is refused before anything is allocated."""
    values = pa.array(["x" * (1 << 20), *map(str, range(10_000))], pa.large_string())
    rows = pa.DictionaryArray.from_arrays(pa.array([0] * 100_000, pa.int32()), values)
    with pytest.raises(InvalidEventError, match="its values take more than 2147483647 bytes; give smaller batches"):
        check_table(pa.table({"space": rows, "timestamp": range(100_000)}), SCHEMA)


# ---------------------------------------------------------------- events one at a time


def added(
    schema: EventSchema = SCHEMA, space="a", data=b"x", timestamp=1, grouping="", indexes=None, columns=None
) -> dict:
    """The row made from one event."""
    rows = EventRows(schema)
    rows.add(space, data, timestamp, grouping, indexes, columns)
    assert len(rows) == 1
    taken = rows.take()
    assert len(rows) == 0
    assert taken.schema.equals(schema.arrow)
    return taken.set_column(2, "timestamp", taken["timestamp"].cast(pa.int64())).to_pylist()[0]


ONE_BY_ONE = [
    ({"space": "é"}, "space", "é"),
    ({"space": "é".encode()}, "space", "é"),
    ({"space": bytearray(b"a")}, "space", "a"),
    ({"grouping": memoryview(b"web")}, "grouping", "web"),
    ({"space": "k" * 65536}, "space", "k" * 65536),
    ({"data": None}, "data", b""),
    ({"data": "é"}, "data", "é".encode()),
    ({"data": memoryview(b"abc")[1:]}, "data", b"bc"),
    ({"data": bytearray(b"abc")}, "data", b"abc"),
    ({"timestamp": np.int32(-5)}, "timestamp", -5),
    ({"timestamp": dt.datetime(1969, 12, 31, 23, 59, 59, 999_999, dt.UTC)}, "timestamp", -1),
    ({"timestamp": dt.datetime(1970, 1, 1, 1, tzinfo=dt.timezone(dt.timedelta(hours=1)))}, "timestamp", 0),
    ({"indexes": {"type": "page"}}, "type", "page"),
    ({"indexes": {"type": None}}, "type", None),
    ({"columns": {"n": 127}}, "n", 127),
    ({"columns": {"n": np.int64(3)}}, "n", 3),
]


@pytest.mark.parametrize(("given", "name", "expected"), ONE_BY_ONE, ids=map(str, range(len(ONE_BY_ONE))))
def test_events_one_at_a_time(given, name, expected):
    """Keys and payloads are accepted in all of Python's forms."""
    assert added(**given)[name] == expected


NAIVE = dt.datetime(2014, 6, 23)
BAD_EVENTS = [
    ({"space": 5}, "space must be text, not int"),
    ({"space": None}, "space must be text, not NoneType"),
    ({"space": b"\xff"}, r"space b'\\xff' is not UTF-8 text; create the file with keys=\"binary\""),
    ({"space": "\ud800"}, "is not UTF-8 text"),
    ({"grouping": 1.5}, "grouping must be text, not float"),
    ({"grouping": "k" * 65537}, "grouping has 65537 bytes, more than 65536"),
    ({"data": 5}, "data must be bytes, not int; encode it first"),
    ({"data": ["a"]}, "data must be bytes, not list"),
    ({"data": "\ud800"}, "data .*UTF-8"),
    ({"timestamp": NAIVE}, "timestamp 2014-06-23T00:00:00 has no time zone; use an aware datetime"),
    ({"timestamp": None}, "timestamp must be microseconds as an int or an aware datetime, not NoneType"),
    ({"timestamp": 1.5}, "not float"),
    ({"timestamp": True}, "not bool"),
    ({"timestamp": "2014"}, "not str"),
    ({"timestamp": 2**63}, f"timestamp {2**63} does not fit 64 bits"),
    ({"timestamp": -(2**63) - 1}, "does not fit 64 bits"),
    ({"indexes": {"typo": "a"}}, "unknown index 'typo'; declared when the file was created: type"),
    ({"indexes": {"n": 5}}, "unknown index 'n'"),
    (
        {"indexes": {"type": 5}},
        "index 'type' must be string, not int; convert it to text, or create the file with a schema",
    ),
    ({"indexes": {"type": "\ud800"}}, "index 'type' must be string"),
    ({"indexes": {"type": b"\xff"}}, "index 'type' must be string"),
    ({"columns": {"type": "a"}}, "unknown column 'type'; declared when the file was created: n"),
    ({"columns": {"n": 128}}, "column 'n' must be int8"),
    ({"columns": {"n": "x"}}, "column 'n' must be int8"),
]


@pytest.mark.parametrize(("given", "message"), BAD_EVENTS, ids=str)
def test_events_that_do_not_fit(given, message):
    """A wrong event is refused immediately with what was found and expected; nothing of it is kept."""
    rows = EventRows(SCHEMA)
    event = {"space": "a", "data": b"x", "timestamp": 1, "grouping": "", "indexes": None, "columns": None}
    rows.add(*event.values())
    with pytest.raises(InvalidEventError, match=message):
        rows.add(*(event | given).values())
    assert len(rows) == 1
    assert rows.take()["space"].to_pylist() == ["a"]


@pytest.mark.parametrize("kind", [pa.timestamp("ns"), pa.duration("ns"), US, pa.timestamp("s"), pa.duration("s")])
def test_whole_numbers_as_times(kind):
    """Integers are accepted as times over all 64 bits, even if Python or pandas cannot represent them."""
    given = [-(2**63), -(2**63) + 1, -1, 2**63 - 1]
    rows = EventRows(EventSchema((Field("at", kind),)))
    for value in given:
        rows.add("a", None, 1, "", None, {"at": value})
    stored = rows.take()["at"]
    assert stored.type == kind
    assert stored.cast(pa.int64()).to_pylist() == given


def test_numpy_numbers_are_no_times():
    """NumPy integers are refused as times with an InvalidEventError, because Arrow does not support them."""
    rows = EventRows(EventSchema((Field("at", US),)))
    with pytest.raises(InvalidEventError, match="column 'at' must be timestamp"):
        rows.add("a", None, 1, "", None, {"at": np.int64(3)})


def test_binary_keys():
    """Binary keys may be any bytes; text stands for its UTF-8 bytes."""
    assert added(BINARY, space=b"\xff\0")["space"] == b"\xff\0"
    assert added(BINARY, space="é")["space"] == "é".encode()
    with pytest.raises(InvalidEventError, match="space must be bytes, not int"):
        added(BINARY, space=5)
    with pytest.raises(InvalidEventError, match="UTF-8"):
        added(BINARY, space="\ud800")


def test_data_that_may_be_null():
    """None as data is null if the schema allows it."""
    assert added(BINARY, data=None)["data"] is None
    assert added(BINARY, data=b"")["data"] == b""


DATA_TYPES = [
    (pa.string(), "é", "é"), (pa.large_binary(), b"x", b"x"), (pa.int64(), 5, 5), (pa.binary(2), b"ab", b"ab"),
    (pa.struct([("a", pa.int8())]), {"a": 1}, {"a": 1}), (pa.decimal128(5, 2), Decimal("1.50"), Decimal("1.50")),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "given", "expected"), DATA_TYPES, ids=str)
def test_data_of_other_types(kind, given, expected):
    """A column named `data` may have any type."""
    assert added(EventSchema((Field("data", kind),)), data=given)["data"] == expected
    with pytest.raises(InvalidEventError, match=r"data'? must be"):
        added(EventSchema((Field("data", kind),)), data=object())


def test_schema_without_data():
    """Data is refused if the schema has no such column."""
    with pytest.raises(InvalidEventError, match="no 'data' column; give columns= instead"):
        added(EventSchema((Field("n", pa.int8()),)), data=b"x")
    assert added(EventSchema((Field("n", pa.int8()),)), data=None, columns={"n": 1})["n"] == 1


def test_column_that_must_not_be_null():
    """A required column that is missing or None is refused."""
    schema = EventSchema((Field("n", pa.int8(), nullable=False),))
    for columns in (None, {}, {"n": None}):
        with pytest.raises(InvalidEventError, match="column 'n' must not be null"):
            added(schema, data=None, columns=columns)


def test_rows_are_taken_in_good_time():
    """Rows must be taken after a number of events or bytes."""
    rows = EventRows(SCHEMA, 5000)
    rows.FLUSH_EVENTS = 3
    for data, full in ((b"", False), (b"", False), (b"", True)):
        rows.add("a", data, 1, "", None, None)
        assert rows.full == full
    for space, data, grouping in (("a", b"x" * 5000, ""), ("k" * 5000, b"", ""), ("a", b"", "k" * 5000)):
        rows.take()
        rows.add("a", b"", 1, "", None, None)
        assert not rows.full
        rows.add(space, data, 1, grouping, None, None)
        assert rows.full


def test_messages_do_not_break_lines():
    """Every error is one line, as the command line prints it."""
    for given, _ in BAD_EVENTS:
        with pytest.raises(InvalidEventError) as caught:
            added(**given)
        assert re.fullmatch(r"[^\n]+", str(caught.value))


@pytest.mark.parametrize("kind", [pa.string_view(), pa.binary_view()])
def test_dictionary_of_views(kind):
    """A dictionary of views, as from Polars categories, is accepted."""
    values = pa.array(["x", "yy"]).cast(kind)
    column = pa.DictionaryArray.from_arrays(pa.array([0, None, 1, 0], pa.uint32()), values)
    schema = make_schema(pa.schema([("v", column.type)]), (), binary_keys=False)
    table = check_table(pa.table({"space": ["a"] * 4, "timestamp": [1] * 4, "v": column}), schema)
    assert table["v"].type == schema.fields[0].type
    assert [v.decode() if isinstance(v, bytes) else v for v in table["v"].to_pylist()] == ["x", None, "yy", "x"]


@pytest.mark.parametrize("read", [to_arrow, stream_of])
def test_what_arrow_cannot_make_a_table_of(read):
    """Input that Arrow or pandas cannot convert is refused as InvalidEventError with the reason."""
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"space": ["a", "b"], "x": [1, "y"]})
    for given, reason in (
        (pa.chunked_array([[1.5]]), "Cannot import schema"),
        (frame, r"Conversion failed for column x .*'y'.*astype"),
        (frame.assign(x=[2**70, 1]), "Python int too large .*astype"),
        (pandas.concat([frame, frame["x"]], axis=1), "Duplicate column names"),
        (frame.assign(x=pandas.arrays.SparseArray([0, 1])), "Sparse pandas data"),
    ):
        with pytest.raises(InvalidEventError, match=f"{type(given).__name__} cannot be read as a table: {reason}"):
            read(given)
