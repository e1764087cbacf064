"""Members are removed from JSON objects; the text of the others stays as written."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from esformat.convert.json_members import without

CASES = [
    ('{"u":1}', "{}"),
    ('{"u":1,"a":2}', '{"a":2}'),
    ('{"a":2,"u":1}', '{"a":2}'),
    ('{"a":2,"u":1,"b":3}', '{"a":2,"b":3}'),
    ('{"u":1,"t":"x","a":2}', '{"a":2}'),
    ('{"a":2,"t":"x","u":1}', '{"a":2}'),
    ('{"a": 1.10, "u": "x", "b": 12345678901234567890}', '{"a": 1.10, "b": 12345678901234567890}'),
    ('{"a":"\\"u\\":5, "}', '{"a":"\\"u\\":5, "}'),
    ('{"u":"a,\\"b\\":1}","a":",\\\\"}', '{"a":",\\\\"}'),
    ('{"a":"u","b":"t"}', '{"a":"u","b":"t"}'),
    ('{"q\\"u":7,"u":1}', '{"q\\"u":7}'),
    ('{"uu":1,"u u":2}', '{"uu":1,"u u":2}'),
    ('{"a":{"u":1},"u":{"x":[1,2]},"b":[{"u":2}]}', '{"a":{"u":1},"b":[{"u":2}]}'),
    ('{"u":{"x":1}, "a":2}', '{"a":2}'),
    ('{"u":[1, 2],"a":3}', '{"a":3}'),
    ('{"a":"{", "u":1}', '{"a":"{"}'),
    ('  {"a":2}\r\n', '{"a":2}'),
    ("{}", "{}"),
    ('{ "u" : null , "a" : 1 }', '{"a" : 1 }'),
    ('{"a":true,"u":false}', '{"a":true}'),
    ('{"\\u0075":1,"\\u0061":2}', '{"\\u0061":2}'),
    ("{ }", "{ }"),
]


@pytest.mark.parametrize(("text", "left"), CASES)
def test_without(text, left):
    """Only the named members are removed, each with its comma."""
    assert without(pa.array([text]), ["u", "t"]).to_pylist() == [left]


def test_several():
    """Objects keep their positions, also in a slice of a column; without names only the outer space is removed."""
    texts = pa.array(['{"a":1,"u":2}', '{"a":[1],"u":2}', '{"u":2}', '{"u":{}}\n'])
    assert without(texts, ["u"]).to_pylist() == ['{"a":1}', '{"a":[1]}', "{}", "{}"]
    assert without(texts.slice(1), ["u"]).to_pylist() == ['{"a":[1]}', "{}", "{}"]
    assert without(texts, []).to_pylist() == [*texts.to_pylist()[:3], '{"u":{}}']
    assert without(texts[:0], ["u"]).to_pylist() == []


@pytest.mark.parametrize("text", [
    "", "1", '["u"]', '{"u":1', '{"u":1,}', '{"u":1 "a":2}', '{,"u":1}', '{"u":1}}', '{"u":1} 2', '{"u"}', '{"u":}',
    '{"u":"', '{u:1}', '{"u":1,"a":[1,]}',
])  # fmt: skip
def test_what_is_no_object_stays(text):
    """A value that is not an object stays unchanged."""
    assert without(pa.array([f" {text}\n", '{"u":1}']), ["u"]).to_pylist() == [text, "{}"]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)
KEYS = st.sampled_from(["u", "t", "a", 'u"', '"u', ',"u', "\\", "u:", "", " u", "é", "{u", "}"])


@given(
    st.dictionaries(KEYS, JSON, max_size=5),
    st.lists(KEYS, max_size=3, unique=True),
    st.sampled_from([(",", ":"), (", ", ": "), (" , ", " : ")]),
    st.booleans(),
)
@example({"a": ',"u":1', "u": '"u":1'}, ["u"], (",", ":"), True)
@example({"\\": 1, "u": "\\"}, ["u"], (",", ":"), True)
def test_any_object(members, names, separators, ascii_only):
    """The result is the object without those members, whatever its spelling."""
    text = json.dumps(members, separators=separators, ensure_ascii=ascii_only)
    (left,) = without(pa.array([text]), names).to_pylist()
    expected = {name: value for name, value in members.items() if name not in names}
    assert json.loads(left) == expected
    assert list(json.loads(left)) == list(expected)
