"""Arrow columns as JSON and plain text, without losing anything that JSON can express."""

from __future__ import annotations

import base64
import json
import math
from datetime import date, datetime, time
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from esformat.format.json_text import as_text, fragments, objects

CASES = [
    (pa.array([1, None, -(2**63)]), ["1", "null", "-9223372036854775808"]),
    (pa.array([2**64 - 1], pa.uint64()), ["18446744073709551615"]),
    (pa.array([1.0, 0.1, 1e22, 1e-7, -0.0, None]), ["1.0", "0.1", "1e+22", "1e-7", "-0.0", "null"]),
    (pa.array([math.nan, math.inf, -math.inf]), ["null", "null", "null"]),
    (pa.array([1.5], pa.float16()), ["1.5"]),
    (pa.array([True, False, None]), ["true", "false", "null"]),
    (pa.array([Decimal("1.10")]), ["1.10"]),
    (pa.array(["", "é", 'a"\\\n\t\x01', None]), ['""', '"é"', '"a\\"\\\\\\n\\t\\u0001"', "null"]),
    (pa.array(["a"], pa.large_string()), ['"a"']),
    (pa.array(["a"], pa.string_view()), ['"a"']),
    (pa.array(["a", None, "a"]).dictionary_encode(), ['"a"', "null", '"a"']),
    (pa.array([b"", b"a", None]), ['""', '"a"', "null"]),
    (pa.array([b"a", b"\xff", None]), ['"a"', '{"base64":"/w=="}', "null"]),
    (pa.array([b"\xff\xfe"], pa.binary(2)), ['{"base64":"//4="}']),
    (pa.array([date(2006, 4, 7)]), ['"2006-04-07"']),
    (pa.array([time(1, 2, 3)]), ['"01:02:03.000000"']),
    (
        pa.array([0, 86_399, 86_400, -1]).cast(pa.int32()).view(pa.time32("s")),
        ['"00:00:00"', '"23:59:59"', '"86400"', '"-1"'],
    ),
    (pa.array([86_400 * 10**9, None]).view(pa.time64("ns")), ['"86400000000000"', "null"]),
    (pa.array([datetime(2006, 4, 7)], pa.timestamp("s")), ['"2006-04-07T00:00:00"']),
    (pa.array([0], pa.timestamp("us", "Europe/Stockholm")), ['"1970-01-01T00:00:00.000000Z"']),
    (pa.array([-1], pa.timestamp("ns", "UTC")), ['"1969-12-31T23:59:59.999999999Z"']),
    (pa.array([5], pa.duration("ms")), ['"5"']),
    (pa.nulls(2), ["null", "null"]),
    (pa.array([[1, None], None, []]), ["[1,null]", "null", "[]"]),
    (pa.array([[1], [2, 3], None]).slice(1), ["[2,3]", "null"]),
    (pa.array([[1, 2], None], pa.list_(pa.int64(), 2)), ["[1,2]", "null"]),
    (pa.array([["a"]], pa.large_list(pa.string())), ['["a"]']),
    (pa.array([[1]], pa.list_view(pa.int8())), ["[1]"]),
    (pa.array([{"a": 1, "b": [{"c": None}]}, None]), ['{"a":1,"b":[{"c":null}]}', "null"]),
    (pa.array([{"a": 1}, {"a": 2}]).slice(1), ['{"a":2}']),
    (pa.array([{}], pa.struct([])), ["{}"]),
    (pa.array([[("k", 1)], None, []], pa.map_(pa.string(), pa.int64())), ['{"k":1}', "null", "{}"]),
    (pa.array([[("k", 1)], [("l", 2)]], pa.map_(pa.string(), pa.int64())).slice(1), ['{"l":2}']),
    (pa.array([{"a": [("k", b"x")]}], pa.struct([("a", pa.map_(pa.string(), pa.binary()))])), ['{"a":{"k":"x"}}']),
    (pa.array([[[(1, [2])], None]], pa.list_(pa.map_(pa.int64(), pa.list_(pa.int8())))), ['[{"1":[2]},null]']),
    (pa.MapArray.from_arrays([0, 1, 2], ["k", "l"], [1, 2], mask=pa.array([True, False])), ["null", '{"l":2}']),
]


def repr_type(case):
    return str(getattr(case, "type", ""))


@pytest.mark.parametrize(("column", "expected"), CASES, ids=repr_type)
def test_fragments(column, expected):
    """Each value is written as the expected, valid JSON."""
    assert fragments(column).to_pylist() == expected
    for text in expected:
        json.loads(text)


def slice_of(column, rows):
    """A slice from the middle of a column that repeats these rows 1,000 times."""
    many = pa.concat_arrays([column] * 1000)
    return many.slice(500 * len(column), rows)


@pytest.mark.parametrize("write", [fragments, as_text])
@pytest.mark.parametrize("column", [column for column, _ in CASES if pa.types.is_nested(column.type)], ids=repr_type)
def test_slices(column, write):
    """A slice is written like an array of the same values, and allocates no more than twice as much."""
    part, whole = slice_of(column, len(column)), pa.concat_arrays([column])
    assert write(part).to_pylist() == write(whole).to_pylist()
    pool = pa.default_memory_pool()
    costs = []
    for each in (whole, part):
        before = pool.total_bytes_allocated()
        write(each)
        costs.append(pool.total_bytes_allocated() - before)
    assert costs[1] <= 2 * costs[0]


def values():
    scalars = st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text()
    return st.one_of(
        st.lists(st.none() | st.booleans()),
        st.lists(st.none() | st.integers(-(2**63), 2**63 - 1)),
        st.lists(st.none() | st.floats(allow_nan=False, allow_infinity=False)),
        st.lists(st.none() | st.text()),
        st.lists(st.lists(st.text())),
        st.lists(st.fixed_dictionaries({"a": st.text(), "b": st.none() | st.integers(0, 5)})),
        st.lists(st.none()) | st.lists(scalars, max_size=0),
    )


@given(values())
def test_reads_back(given_values):
    """Any JSON reader reads back the same values."""
    column = pa.array(given_values)
    assert [json.loads(text) for text in fragments(column).to_pylist()] == given_values


@given(st.lists(st.none() | st.binary()))
def test_bytes_read_back(given_values):
    """Any bytes are written so that they can be restored."""

    def value(text):
        found = json.loads(text)
        if isinstance(found, dict):
            return base64.b64decode(found["base64"])
        return None if found is None else found.encode()

    assert [value(text) for text in fragments(pa.array(given_values, pa.binary())).to_pylist()] == given_values


def test_objects():
    """Rows become objects with escaped keys, in order; without columns the objects are empty."""
    columns = {'a"': pa.array([1, None]), "é": pa.array(["x", "y"])}
    assert objects(columns, 2).to_pylist() == ['{"a\\"":1,"é":"x"}', '{"a\\"":null,"é":"y"}']
    assert objects({}, 2).to_pylist() == ["{}", "{}"]
    assert objects({"a": pa.array([], pa.int64())}, 0).to_pylist() == []


TEXTS = [
    (pa.array(["a", None, ""]), ["a", None, ""]),
    (pa.array([7, None]), ["7", None]),
    (pa.array([5.0, 5.5, 1e22]), ["5", "5.5", "1e+22"]),
    (pa.array([True]), ["true"]),
    (pa.array([Decimal("1.10")]), ["1.10"]),
    (pa.array([b"a", b"\xff", None]), ["a", '{"base64":"/w=="}', None]),
    (pa.array([0], pa.timestamp("us", "UTC")), ["1970-01-01T00:00:00.000000Z"]),
    (pa.array([date(2006, 4, 7)]), ["2006-04-07"]),
    (pa.array([[1], None]), ["[1]", None]),
    (pa.array([{"a": "x"}]), ['{"a":"x"}']),
    (pa.array([5, None], pa.duration("ms")), ["5", None]),
    (pa.nulls(1), [None]),
]


@pytest.mark.parametrize(("column", "expected"), TEXTS, ids=repr_type)
def test_as_text(column, expected):
    """Keys are plain text without quotes; null stays null."""
    assert as_text(column).to_pylist() == expected
