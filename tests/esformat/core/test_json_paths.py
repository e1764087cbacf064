"""Values at a path of JSON documents agree with `json.loads`."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from effort import examples
from hypothesis import example, given
from hypothesis import strategies as st

from esformat.core import json_paths
from tests.fuzz.json_paths import depth_of, value_at

Step = str | int
_KINDS = {
    json_paths.NULL: type(None), json_paths.FALSE: bool, json_paths.TRUE: bool, json_paths.INTEGER: int,
    json_paths.FLOAT: float, json_paths.STRING: str, json_paths.ESCAPED: str, json_paths.ARRAY: list,
    json_paths.OBJECT: dict,
}  # fmt: skip

PIECES = [
    *'{}[]":,\\ \n\t\r\x00\x1f', '"a"', '"a":', '"\\u0061":', "1", "-", "0", "01", "1.", ".5", "e1", "E-2", "2e+",
    "null", "true", "false", "NaN", "-Infinity", "nul", "\\u12", "\\ud83d\\ude00", "\\x", "é", '"12345678',
]  # fmt: skip

names = st.sampled_from(["a", "b", "", "é", "0", "1", "-1", "a\n", '"', "\\", "\U0001f600", "\ud800", "\x7f"])
plain = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=12) | names
    | st.sampled_from(["x" * 7, "x" * 8, "x" * 9 + "\n", "x" * 15 + '"', "\x1f" * 9, "é" * 9])
)  # fmt: skip
documents = st.recursive(
    plain, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(names, inner, max_size=4), max_leaves=12
)
paths = st.lists(names | st.integers(-3, 3), max_size=4)


def find(texts: list[bytes], steps: list[Step]) -> list[tuple[int, bytes]]:
    """The kind and bytes of the value at a path, for each document."""
    data, n = b"".join(texts), len(texts)
    edges = np.cumsum([0, *map(len, texts)])
    starts, ends, kinds = np.zeros(n, np.int64), np.zeros(n, np.int64), np.zeros(n, np.uint8)
    keys = [str(step).encode("utf-8", "surrogatepass") for step in steps]
    places = [step if isinstance(step, int) else json_paths.NOWHERE for step in steps]
    json_paths.find_values(data, edges, keys, places, starts, ends, kinds)
    return [(int(kind), data[a:b]) for kind, a, b in zip(kinds, starts, ends, strict=True)]


def expect(text: bytes, steps: list[Step]) -> tuple[bool, object]:
    """Whether there is a value at the path, and the value."""
    try:
        value = json.loads(text.decode("utf-8", "surrogatepass"))
    except ValueError:
        return False, None
    return value_at(value, steps)


def check(text: bytes, steps: list[Step]) -> None:
    ((kind, found),) = find([text], steps)
    there, value = expect(text, steps)
    assert (kind != json_paths.MISSING) == there
    if there:
        quoted = b'"' + found + b'"' if kind in (json_paths.STRING, json_paths.ESCAPED) else found
        assert type(value) is _KINDS[kind]
        assert repr(json.loads(quoted.decode("utf-8", "surrogatepass"))) == repr(value)
        assert kind != json_paths.STRING or value == found.decode("utf-8", "surrogatepass")


@examples(400)
@given(documents, paths, st.booleans(), st.sampled_from([None, 1]))
@example({"a": {"b": [1, {"c": "\n"}]}}, ["a", "b", -1, "c"], True, None)
def test_values(document, steps, ascii_only, indent):
    """Values of all kinds are found, with and without escapes and spaces, at existing and other paths."""
    check(json.dumps(document, ensure_ascii=ascii_only, indent=indent).encode("utf-8", "surrogatepass"), steps)


@examples(400)
@given(
    st.lists(
        st.sampled_from(PIECES),
        max_size=12,
    ),
    paths,
)
@example(["[", "1.", "]"], [0])
@example(["{", '"a":', "1", ",", '"\\u0061":', "null", "}"], ["a"])
@example(["{", '"a":', '{"b":1}', ",", '"a":', '{"c":1}', "}"], ["a", "b"])
def test_broken_documents(pieces, steps):
    """A document that is not valid JSON as a whole has no value at any path."""
    text = "".join(pieces).encode()
    check(text, steps)
    for end in range(len(text)):
        check(text[:end], steps)


def test_each_document_by_itself():
    """A document is read without its neighbours or state from the one before."""
    texts = [b'{"a":1}', b"{", b'"a":2}', b"", b'{"b":{"a":3}}', b'{"a":"x"}', b'{"a":']
    assert [kind for kind, _ in find(texts, ["a"])] == [4, 0, 0, 0, 0, 6, 0]


@pytest.mark.parametrize(("open_", "close"), [("[", "]"), ('{"a":', "}")])
def test_levels(open_, close):
    """Documents up to the depth limit are read; deeper ones are invalid, even if the path is shallow."""
    for levels, kind in (
        (json_paths.MOST_LEVELS - 1, json_paths.INTEGER),
        (json_paths.MOST_LEVELS, json_paths.MISSING),
    ):
        deep = open_ * levels + "1" + close * levels
        assert find([f'{{"b":1,"c":{deep}}}'.encode()], ["b"])[0][0] == kind
    assert find([b"[" * 1_000_000], [0]) == [(json_paths.MISSING, b"")]


@pytest.mark.parametrize("edges", [[0, 3], [-1, 1], [2, 1], [0, 1 << 62], [], [0, 1, 1]])
def test_edges_outside(edges):
    """Edges outside the bytes, and outputs of other sizes, are refused."""
    outputs = np.zeros(1, np.int64), np.zeros(1, np.int64), np.zeros(1, np.uint8)
    with pytest.raises(ValueError, match=r"outside|one place"):
        json_paths.find_values(b"[]", np.array(edges, np.int64), [b"a"], [0], *outputs)


def test_long_paths():
    outputs = np.zeros(1, np.int64), np.zeros(1, np.int64), np.zeros(1, np.uint8)
    for keys, places in (([b"a"] * 101, [0] * 101), ([b"a"], [])):
        with pytest.raises(ValueError, match="100 steps"):
            json_paths.find_values(b"[]", np.array([0, 2]), keys, places, *outputs)
    assert find([b"[" * 100 + b"7" + b"]" * 100], [0] * 100) == [(json_paths.INTEGER, b"7")]


def count_outputs() -> list[np.ndarray]:
    """The parents, key edges, keys, counts, slots, seen, state and repeats: a table for two fields and one document."""
    return [
        np.zeros(2, np.int64), np.zeros(3, np.int64), np.zeros(8, np.uint8), np.zeros(2 * json_paths.KINDS, np.int64),
        np.full(4, -1, np.int64), np.zeros(2, np.int64), np.array([1, 0, 0]), np.zeros(1, np.uint8),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (0, np.zeros(0, np.int64)),
        (1, np.zeros(2, np.int64)),
        (1, np.array([0, 9, 9])),
        (1, np.array([-1, 0, 0])),
        (2, np.zeros(0, np.uint8)),
        (3, np.zeros(json_paths.KINDS, np.int64)),
        (4, np.full(2, -1, np.int64)),
        (4, np.full(5, -1, np.int64)),
        (4, np.array([-1, -1, -1, 1])),
        (5, np.zeros(1, np.int64)),
        (6, np.array([0, 0, 0])),
        (6, np.array([3, 0, 0])),
        (6, np.array([1, 0])),
        (7, np.zeros(2, np.uint8)),
    ],
)
def test_tables_that_do_not_fit(place, value):
    """Inconsistent tables are refused, so that nothing is counted outside them."""
    document, edges, kinds = b'{"a":1,"b":2}', np.array([0, 13]), np.full(1, json_paths.OBJECT, np.uint8)
    outputs = count_outputs()
    json_paths.count_fields(document, edges, kinds, *outputs)
    assert outputs[-2].tolist() == [2, 1, 1]  # no room for b
    outputs = count_outputs()
    outputs[place] = value
    with pytest.raises(ValueError, match=r"room|table|slot|outside"):
        json_paths.count_fields(document, edges, kinds, *outputs)


@pytest.mark.parametrize(
    ("edges", "key_edges", "lengths"),
    [
        ([0, 8], [0, 1], 1), ([-1, 7], [0, 1], 1), ([3, 2], [0, 1], 1), ([0, 7], [0, 2], 1), ([0, 7], [-1, 1], 1),
        ([0, 7], [1, 0], 1), ([0, 7], [], 1), ([0, 7], [0, 1], 0), ([0, 7], [0, 1], 2), ([], [0, 1], 0),
    ],
)  # fmt: skip
def test_members_outside(edges, key_edges, lengths):
    """Edges and lengths outside the arguments are refused."""
    given = (b'{"a":1}', np.array(edges, np.int64), b"a", np.array(key_edges, np.int64), np.zeros(lengths, np.int64))
    with pytest.raises(ValueError, match=r"outside|needed"):
        json_paths.without_members(*given)


@pytest.mark.parametrize(
    ("lines", "found"),
    [
        (b"", (0, False, False)),
        (b" \n\t\n", (0, False, False)),
        (b"{}\n", (1, False, False)),
        (b'{"a":[[]]}\n{}\n', (3, False, False)),
        (b"[\n[\n[\n", (1, False, False)),  # depth is counted per line
        (b"]]]]\n[[\n", (2, False, False)),
        (b'{"a":"[[ null"}\n', (1, False, False)),
        (b'{"a":"[[\\x","b":[[null\n"[["\n', (5, False, True)),  # after a broken string every bracket counts
        (b'{"a":null,"b":[1,null]}\n', (2, False, False)),
        (b'{"a":[ \tnull]}\n', (2, False, True)),
        (b"null\n", (0, True, False)),
        (b'{"a":1} \n null', (1, True, False)),
        (b'{"a":1}} nu', (1, True, False)),
    ],
)
def test_outline(lines, found):
    """Depth is per line and ignores strings; a null outside brackets and one that is first in a list are reported."""
    assert json_paths.outline(lines) == found


@given(st.lists(documents, max_size=4))
def test_outline_of_documents(values):
    """The outline of lines agrees with their documents."""
    lines = "".join(json.dumps(value) + "\n" for value in values).encode()
    depth, bare, first = json_paths.outline(lines)
    assert depth == max(map(depth_of, values), default=0)
    assert bare == any(value in (None, math.inf, -math.inf) for value in values)  # Infinity contains an n, too
    assert first == any(map(begins_with_null, values))


PLAIN = ["0", "-1", "9999999999999999999", "-999999999999999999", "0.0", "-0.5", "0.0001", "1234567.12345678", '"1e5"']
ODD = ["1e5", "1E5", "1.5e3", "1.50", "1.00", "0.00001", "12345678.5", "0.123456789", "99999999999999999999", "1e400",
       "-9999999999999999999", "-0.00001", "-0"]  # fmt: skip


@pytest.mark.parametrize("around", ["%s", '{"a":%s}', "[1, %s ]", '{"\\"":[%s,"2e5"]}'])
@pytest.mark.parametrize("number", [*PLAIN, *ODD])
def test_odd_numbers(number, around):
    """Numbers that Python or 64 bits do not preserve are found; those within strings are not."""
    assert json_paths.has_odd_numbers((around % number).encode()) == (number in ODD)


@given(st.from_regex(r"\A-?(0|[1-9][0-9]{0,20})(\.[0-9]{1,10})?([eE][+-]?[0-9]{1,3})?\Z"))
@examples(2000)
def test_plain_numbers_come_back(number):
    """A number that is not reported keeps its digits as a float or a 64-bit integer."""
    if not json_paths.has_odd_numbers(number.encode()):
        found = json.loads(number)
        assert -(2**63) <= found < 2**64
        assert json.dumps(found) == number


def begins_with_null(value: object) -> bool:
    """Whether any list within it begins with null."""
    inner = list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else []
    return (isinstance(value, list) and value[:1] == [None]) or any(map(begins_with_null, inner))
