"""Values at a path of JSON payloads as Arrow columns, and the fields of payloads."""

from __future__ import annotations

import json
from collections import Counter

import pyarrow as pa
import pytest
from effort import examples
from field_counts import count_fields
from hypothesis import given
from hypothesis import strategies as st

from esformat import UsageError
from esformat.format.json_fields import MOST_FIELDS, PayloadField
from esformat.format.json_values import JsonValues, parse_path, values_column

names = st.sampled_from(["a", "b", "odd key", "é", '"', "\n", "[*]", "\U0001f600"])
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=8,
)
documents = st.lists(st.dictionaries(names, values, max_size=3) | values, max_size=8)


def text_of(value: object, *, ascii_only: bool) -> str | None:
    return value if value is None or isinstance(value, str) else json.dumps(value, ensure_ascii=ascii_only)


@examples(200)
@given(documents, names, st.booleans())
def test_texts(held, name, ascii_only):
    """Every kind of value becomes its text in the document, strings without escapes, also in slices and among nulls."""
    texts = [None, "{", *(json.dumps(each, ensure_ascii=ascii_only) for each in held if _is_text(each))]
    held = [None, None, *(each for each in held if _is_text(each))]
    found = [text_of(each.get(name), ascii_only=ascii_only) if isinstance(each, dict) else None for each in held]
    for type_ in (pa.string(), pa.large_binary()):
        array = pa.array([None if text is None else text.encode() for text in texts], pa.binary()).cast(type_)
        assert JsonValues(array, [name]).texts().to_pylist() == found
        assert JsonValues(array.slice(1), [name]).texts().to_pylist() == found[1:]


def _is_text(value: object) -> bool:
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return False
    return True


@pytest.mark.parametrize(
    ("held", "type_", "expected"),
    [
        ([1, None, -0, 2**63 - 1], pa.int64(), [1, None, 0, 2**63 - 1]),
        ([1, 0.5, -1e300], pa.float64(), [1.0, 0.5, -1e300]),
        ([2**53 + 1, 0.5], pa.large_string(), ["9007199254740993", "0.5"]),
        ([2**53, 1e22, 0.5], pa.float64(), [2.0**53, 1e22, 0.5]),
        ([2**63], pa.large_string(), ["9223372036854775808"]),
        ([True, None, False], pa.bool_(), [True, None, False]),
        ([True, 1], pa.large_string(), ["true", "1"]),
        (["1", 1], pa.large_string(), ["1", "1"]),
        (["x", {"a": [1, "é"]}, "\n"], pa.large_string(), ["x", '{"a": [1, "\\u00e9"]}', "\n"]),
        ([None], pa.large_string(), [None]),
    ],
)
def test_types(held, type_, expected):
    """A column has the one type that represents all values exactly, even over several chunks."""
    texts = [json.dumps({"v": value}) for value in held]
    for chunks in ([texts], [[text] for text in texts], [[], texts]):
        column = values_column([JsonValues(pa.array(chunk, pa.string()), ("v",)) for chunk in chunks], "$.v")
        assert (column.type, column.to_pylist()) == (type_, expected)


def test_a_chosen_type():
    documents = pa.array(['{"at": "2024-03-01T00:00:00", "n": 1.10}', "{}"])
    at, n = ([JsonValues(documents, (name,))] for name in ("at", "n"))
    assert values_column(n, "$.n", pa.decimal128(4, 2)).to_pylist()[1] is None
    assert str(values_column(n, "$.n", pa.decimal128(4, 2))[0]) == "1.10"
    assert values_column(at, "$.at", pa.timestamp("us"))[0].as_py().year == 2024
    with pytest.raises(UsageError, match=r"the values of \$\.at are not int64.*2024-03-01"):
        values_column(at, "$.at", pa.int64())


WRITTEN = ["1" * 5000, f'[{"1" * 5000}]', "1.50", "-0", "1E+2", "0.1000000000000000055", "1e400", "NaN",
           '{ "b" : 1e400,"b":[ -0.0 ,"\\u00e9\\ud800" ] }']  # fmt: skip


def test_values_as_written():
    """Numbers, objects and arrays keep every character: digits, duplicate keys, spaces and escapes."""
    array = pa.array([f'{{"v": {written} }}' for written in WRITTEN])
    assert JsonValues(array, ["v"]).texts().to_pylist() == WRITTEN
    column = values_column([JsonValues(array, ["v"])], "$.v")
    assert (column.type, column.to_pylist()) == (pa.large_string(), WRITTEN)


@pytest.mark.parametrize("number", ["1e400", "-1e400", "12345678901234567890.5"])
def test_numbers_that_floats_lack(number):
    """A column with a large number that is not exactly a float is text."""
    array = pa.array([f'{{"v":{number}}}', '{"v":1.50}'])
    assert values_column([JsonValues(array, ["v"])], "$.v").to_pylist() == [number, "1.50"]


def test_bytes_that_are_no_text():
    """Bytes that are not UTF-8 are not JSON (RFC 8259); values of other documents are valid text."""
    array = pa.array([b'{"v":"\xff"}', b'{"v":"x"}', b"\xff"])
    assert JsonValues(array, ["v"]).texts().to_pylist() == [None, "x", None]


@pytest.mark.parametrize(
    ("path", "steps"),
    [
        ("$.a", ("a",)),
        ("$.user.id", ("user", "id")),
        ("$.items[0].id", ("items", 0, "id")),
        ("$[-1]", (-1,)),
        ('$["odd \\"key"].x', ('odd "key', "x")),
        ("$['a.b']", ("a.b",)),
        ("$.é-1", ("é-1",)),
    ],
)
def test_paths(path, steps):
    assert parse_path(path) == steps


@pytest.mark.parametrize(
    "path", ["", "$", "a", "$a", "$.", "$..a", "$.a[", "$.a[x]", "$.a[*]", "$ .a", "$.a ", '$["\\x"]', "$.a$"]
)
def test_paths_that_are_none(path):
    with pytest.raises(UsageError, match="invalid path"):
        parse_path(path)


def walk(value: object, path: str, found: Counter[tuple[str, str]]) -> None:
    """Count fields in plain Python."""
    kinds = {type(None): "null", bool: "boolean", int: "integer", float: "number", str: "string", list: "array"}
    found[path, kinds.get(type(value), "object")] += 1
    if isinstance(value, dict):
        for key, inner in value.items():
            plain = key in ("a", "b", "é", "\U0001f600")
            walk(inner, f"{path}.{key}" if plain else f"{path}[{json.dumps(key, ensure_ascii=False)}]", found)
    elif isinstance(value, list):
        for inner in value:
            walk(inner, f"{path}[*]", found)


@examples(200)
@given(st.lists(documents, max_size=3), st.booleans())
def test_fields(batches, ascii_only):
    """Every field is counted by kind of value over all batches; broken documents are counted separately."""
    expected: Counter[tuple[str, str]] = Counter()
    columns = []
    for held in batches:
        known = [each for each in held if _is_text(each)]
        for each in known:
            walk(each, "$", expected)
        columns.append(pa.array([*(json.dumps(each, ensure_ascii=ascii_only) for each in known), None, '{"a":']))
    found = count_fields(columns)
    assert {(field.path, kind): n for field in found.fields for kind, n in field.kinds.items()} == dict(expected)
    assert (found.no_json, found.left_out) == (len(batches), 0)
    assert [field.path for field in found.fields] == sorted({path for path, _ in expected})


@pytest.mark.parametrize(
    "document",
    [
        '{"a":1,"a":"x","b":1e400}',
        '{"a":{"b":1,"b":2},"\\u0061":[{"é":1}]}',
        '{"é":1,"\\u00e9":{"\\ud83d\\ude00":null,"\U0001f600":0.5}}',
        '[{"a":1},{"a":1,"a":1},{}]',
        f'{{"a":{"1" * 5000},"a":{"1" * 5000}}}',
        '{"a":' * 511 + '{"b":1,"b":"x"}' + "}" * 511,
        '{"a":' * 511 + '{"b":1,"b":"x"}' + ',"a":2}' * 511,
    ],
)  # fmt: skip
def test_equal_keys(document):
    """Of equal keys in an object, escaped or not, the last one counts, as for the values at a path."""
    expected: Counter[tuple[str, str]] = Counter()
    for each in (document, '{"a":true}', document):
        walk(json.loads(each, parse_int=lambda _: 0), "$", expected)
    found = count_fields([pa.array([document, '{"a":true}']), pa.array([document])])
    assert {(field.path, kind): n for field in found.fields for kind, n in field.kinds.items()} == dict(expected)
    assert (found.payloads, found.no_json, found.left_out) == (3, 0, 0)


def test_keys_that_are_no_text():
    """A key with half of a surrogate pair is escaped in its path, which finds its value."""
    document = pa.array(['{"\\ud800":{"a\\udfff é":7}}'])
    path = count_fields([document]).fields[-1].path
    assert ascii(path) == ascii('$["\\ud800"]["a\\udfff é"]')
    assert JsonValues(document, parse_path(path)).texts().to_pylist() == ["7"]


def test_more_fields_than_are_counted():
    """Beyond the limit the first fields are counted, the number of the others reported."""
    many = json.dumps({f"k{i}": i for i in range(MOST_FIELDS + 9)})
    found = count_fields([pa.array([many, many, '{"k0": null}'])])
    assert len(found.fields) == MOST_FIELDS
    assert found.left_out == 2 * 10
    assert found.fields[1] == PayloadField("$.k0", {"null": 1, "integer": 2})
    long = count_fields([pa.array([json.dumps({"x" * 2_000_000: 1, "y": 2})])])
    assert ([field.path for field in long.fields], long.left_out) == (["$", "$.y"], 1)
