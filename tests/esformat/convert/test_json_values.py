"""JSON lines parsed singly: their faults, and columns that keep every digit."""

from __future__ import annotations

import pyarrow as pa
import pytest

from esformat.convert.json_values import column, columns, parse_object

BAD_LINES = [
    (b"xx", "broken JSON: Expecting value at character 1"),
    (b'{"a":1', "broken JSON: Expecting ',' delimiter at character 7"),
    (b'{"a":1} {"a":2}', "broken JSON: Extra data at character 9"),
    (b'{"a":\xff}', "byte 6 of the line is not UTF-8 text"),
    (b"[1]", "a JSON array where an object is expected"),
    (b'"x"', "a JSON text where an object is expected"),
    (b"5", "a JSON number where an object is expected"),
    (b"true", "a JSON truth value where"),
    (b"null", "a JSON null where"),
    (b'{"a":1,"a":2}', "duplicate key 'a'"),
    (b'{"b":{"a":1,"a":2}}', "duplicate key 'a'"),
    (b'{"a":"\\ud800"}', "unpaired surrogate"),
    (b'{"a":' + b"[" * 200 + b"]" * 200 + b"}", "nested deeper than 100 levels"),
    (b'{"a":' + b'{"a":' * 100_000 + b"1" + b"}" * 100_001, "nested deeper than 100 levels"),
    (b'{"a":' + b"1" * 5000 + b"}", "5000 digits"),
    (b"", "broken JSON: Expecting value at character 1"),
]


@pytest.mark.parametrize(("line", "complaint"), BAD_LINES, ids=range(len(BAD_LINES)))
def test_bad_lines(line, complaint):
    """A line that is not an object is refused; the error names the fault and its place."""
    with pytest.raises(ValueError, match=complaint):
        parse_object(line)


def test_brackets_in_texts_are_no_depth():
    """Brackets within a string do not count as nesting."""
    assert parse_object(b'{"a":"' + b"[" * 500 + b'\\""}') == {"a": "[" * 500 + '"'}


COLUMNS = [
    ([1, None, 2], pa.int64(), [1, None, 2]),
    ([True, None], pa.bool_(), [True, None]),
    (["a", None], pa.string(), ["a", None]),
    ([None, None], pa.null(), [None, None]),
    ([], pa.null(), []),
    ([1, 2.5], pa.float64(), [1.0, 2.5]),
    ([2**53 + 1, 2.5], pa.string(), ["9007199254740993", "2.5"]),
    ([2**63, 5], pa.string(), ["9223372036854775808", "5"]),
    ([1, "x", True, None, 2.0, [1], {"a": "é"}], pa.string(), ["1", "x", "true", None, "2", "[1]", '{"a":"é"}']),
    ([True, 1], pa.string(), ["true", "1"]),
    ([[1], None, []], pa.list_(pa.int64()), [[1], None, []]),
    ([[1, "x"]], pa.string(), ['[1,"x"]']),
    ([{"a": 1}, {"b": "x"}], None, [{"a": 1, "b": None}, {"a": None, "b": "x"}]),
    ([{"a": 2**70}], pa.string(), ['{"a":1180591620717411303424}']),
    ([{"a": 1}, {"a": "x"}], pa.string(), ['{"a":1}', '{"a":"x"}']),
]


@pytest.mark.parametrize(("values", "type_", "expected"), COLUMNS, ids=range(len(COLUMNS)))
def test_column(values, type_, expected):
    """Values get their common type; without one, or if a number is too long, they become text."""
    found = column(values)
    assert found.to_pylist() == expected
    assert type_ is None or found.type == type_


def test_columns():
    """Keys become columns in order of first appearance."""
    found = columns([{"b": 1}, {"a": "x", "b": 2}, {}])
    assert found.schema.names == ["b", "a"]
    assert found.to_pylist() == [{"b": 1, "a": None}, {"b": 2, "a": "x"}, {"b": None, "a": None}]
    assert columns([{}, {}]).num_rows == 2
