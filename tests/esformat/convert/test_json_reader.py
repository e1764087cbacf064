"""JSON lines become rows; the fast parser and the line-by-line parser have the same results."""

from __future__ import annotations

import io
import json
from contextlib import closing
from dataclasses import replace

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from esformat.convert import json_reader, records
from esformat.convert.errors import InputError
from esformat.convert.json_reader import JsonReader
from esformat.convert.roles import Roles
from esformat.convert.source import Source

ALL = Roles(space="u", timestamp="t")
NAMED = Roles(space="u", timestamp="t", columns=("x",))
JSON = Roles(space="u", timestamp="t", data_json=True)


def read(data: bytes, roles: Roles = ALL):
    """Read all batches of rows."""
    with closing(Source("-", stdin=io.BytesIO(data))) as source:
        return list(JsonReader(source, roles).rows())


def rows_of(batches) -> list[dict]:
    return [row for rows in batches for row in rows.batch.to_pylist()]


def bad_of(batches) -> list[tuple[int, str]]:
    return [(row.number, row.reason) for rows in batches for row in rows.bad]


def lines_of(batches) -> list[int]:
    return [rows.origin.locate(row)[0] for rows in batches for row in range(rows.batch.num_rows)]


@pytest.fixture
def slow(monkeypatch):
    """Make the line-by-line parser fail, so that only the fast one can succeed."""

    def refuse(*_, **__):
        raise AssertionError("parsed line by line")

    monkeypatch.setattr(json_reader, "parse_object", refuse)


def test_types(slow):
    """Values have the types of JSON; text that looks like a time stays text."""
    line = b'{"u":"a","t":"2006-04-07","i":1,"f":1.5,"b":true,"n":null,"l":["2006-04-07"],"s":{"x":"2006-04-07"}}\n'
    (rows,) = read(line * 3)
    assert {name: str(type_) for name, type_ in rows.types.items()} == {
        "u": "string", "t": "string", "i": "int64", "f": "double", "b": "bool", "n": "null",
        "l": "list<item: string>", "s": "struct<x: string>",
    }  # fmt: skip
    assert rows.batch.to_pylist()[2]["s"] == {"x": "2006-04-07"}


def test_blank_lines(slow):
    """Blank lines yield no rows, but count in line numbers."""
    found = read(b'\n{"u":"a"}\n\r\n  \n  {"u":"b"}\r\n')
    assert rows_of(found) == [{"u": "a"}, {"u": "b"}]
    assert lines_of(found) == [2, 5]


def test_only_what_is_wanted():
    """Keys without a role are ignored, and may have any value."""
    (rows,) = read(b'{"u":"a","t":1,"z":[1]}\n{"u":"b","x":{"y":1},"z":"q"}\n', NAMED)
    assert rows.batch.to_pylist() == [{"u": "a", "t": 1, "x": None}, {"u": "b", "t": None, "x": {"y": 1}}]


BAD = b"""{"u":"a","t":1}
xx
{"u":"b"} {"u":"c"}
{"u":"\xff"}
[1]
{"u":1,"u":2}

{"u":"d","t":2}
"""


@pytest.mark.parametrize("roles", [ALL, NAMED, JSON], ids=["all", "named", "json"])
def test_bad_lines(roles):
    """Lines that are not objects are reported with their number and text; the others are kept."""
    found = read(BAD, roles)
    assert [row["u"] for row in rows_of(found)] == ["a", "d"]
    assert lines_of(found) == [1, 8]
    assert bad_of(found) == [
        (2, "broken JSON: Expecting value at character 1"),
        (3, "broken JSON: Extra data at character 11"),
        (4, "byte 7 of the line is not UTF-8 text"),
        (5, "a JSON array where an object is expected"),
        (6, "duplicate key 'u'"),
    ]
    assert found[0].bad[2].text == '{"u":"\\xff"}'


def test_negative_zero_beside_bad_lines():
    """-0 is an integer unless its column is known to have floats, whether or not a line is bad."""
    data = b'{"u":"a","n":-0,"l":[-0]}\n{"u":"b","n":9007199254740993,"l":[9007199254740993]}\n'
    for bad in (b"", b"xx\n"):
        (rows,) = read(data + bad)
        assert rows.batch.to_pylist() == [
            {"u": "a", "n": 0, "l": [0]},
            {"u": "b", "n": 9007199254740993, "l": [9007199254740993]},
        ]
        (rows,) = read(data.replace(b"9007199254740993", b"2") + bad, replace(ALL, known={"n": pa.float64()}))
        assert repr(rows.batch["n"].to_pylist()) == "[-0.0, 2.0]"


def test_two_objects_on_a_line_and_a_blank_one():
    """Two objects on one line are one bad line, even beside a blank one."""
    assert bad_of(read(b'{"u":1}{"u":2}\n \n'))[0][0] == 1


MIXED = [
    (b'{"u":1}\n{"u":"x"}\n', ["1", "x"]),
    (b'{"u":true}\n{"u":1}\n', ["true", "1"]),
    (b'{"u":12345678901234567890}\n{"u":5}\n', ["12345678901234567890", "5"]),
    (b'{"u":9007199254740993}\n{"u":1.5}\n', ["9007199254740993", "1.5"]),
    (b'{"u":{"a":12345678901234567890}}\n', ['{"a":12345678901234567890}']),
    (b'{"u":[1]}\n{"u":{"a":1}}\n', ["[1]", '{"a":1}']),
]


@pytest.mark.parametrize(("data", "expected"), MIXED)
def test_mixed_types(data, expected):
    """A key with values of several types, or with numbers too long for their type, becomes text with every digit."""
    assert [row["u"] for row in rows_of(read(data))] == expected


def test_deep_nesting():
    """Thousands of nested brackets are a bad line, not a crash."""
    line = b'{"u":' + b"[" * 200_000 + b"]" * 200_000 + b"}\n"
    assert bad_of(read(line)) == [(1, "nested deeper than 100 levels")]
    found = read(line + b'{"u":"a"}\n')
    assert bad_of(found) == [(1, "nested deeper than 100 levels")]
    assert rows_of(found) == [{"u": "a"}]


def test_rest_is_word_for_word():
    """The JSON of the members without a role is the original text."""
    data = b'{"u":"a","n": 1.10,"t":1}\n{"t":2, "z":{"u":[1, 2]}}\nxx\n{"u":"c"}\n'
    found = [text for rows in read(data, JSON) for text in rows.rest.to_pylist()]
    assert found == ['{"n": 1.10}', '{"z":{"u":[1, 2]}}', "{}"]


def test_types_are_remembered(monkeypatch, slow):
    """A column keeps its type in later blocks, even if its text looks like a time there or its key is missing."""
    monkeypatch.setattr(records, "BLOCK_BYTES", 20)
    found = read(b'{"u":"a","t":"x"}\n{"u":"b","t":"2006-04-07"}\n{"u":"c"}\n')
    assert {str(rows.types["t"]) for rows in found if "t" in rows.types} == {"string"}
    assert rows_of(found)[1] == {"u": "b", "t": "2006-04-07"}


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        (b'[{"u":1}]', r"is a JSON array, .* put one object on each line, for example with jq -c '\.\[\]'"),
        (b'  \n [\n{"u":1}]', "is a JSON array"),
        (b'{\n  "u": 1\n}\n', r"is pretty-printed JSON, .* put one object on each line, for example with jq -c \."),
        ('{"u":1}'.encode("utf-16"), "is UTF-16 text"),
    ],
)
def test_bad_files(data, complaint):
    """JSON that is not one object per line is refused; the error suggests a fix."""
    with pytest.raises(InputError, match=complaint):
        read(data)


@pytest.mark.parametrize("data", [b"", b"\n\n", b" \n"])
def test_no_lines(data):
    """A file without lines has no rows."""
    assert rows_of(read(data)) == []


def test_byte_order_mark(slow):
    """A byte order mark does not belong to the first line."""
    assert rows_of(read(b'\xef\xbb\xbf{"u":1}\n')) == [{"u": 1}]


def test_line_without_end(monkeypatch):
    """A line above the size limit is reported, not read."""
    monkeypatch.setattr(records, "LONGEST_RECORD_BYTES", 50)
    monkeypatch.setattr(records, "BLOCK_BYTES", 20)
    found = read(b'{"u":"' + b"x" * 100 + b'"}\n{"u":"a"}\n')
    assert bad_of(found)[0] == (1, "the line is too long")
    assert rows_of(found)[-1] == {"u": "a"}


VALUES = (
    st.none()
    | st.booleans()
    | st.integers(-(2**65), 2**65)
    | st.text(max_size=5)
    | st.lists(st.integers(0, 9), max_size=2)
)


@given(st.lists(st.dictionaries(st.sampled_from("utx"), VALUES), max_size=8), st.integers(1, 200))
def test_agrees_with_the_json_module(objects, block_bytes):
    """Every object becomes one row, in order, whatever its values and wherever blocks end."""
    data = "".join(json.dumps(each) + "\n" for each in objects).encode()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(records, "BLOCK_BYTES", block_bytes)
        found = read(data)
    assert bad_of(found) == []
    assert lines_of(found) == list(range(1, len(objects) + 1))
    for row, given_object in zip(rows_of(found), objects, strict=True):
        for name in "utx":
            value, given_value = row.get(name), given_object.get(name)
            as_text = given_value if isinstance(given_value, str) else json.dumps(given_value, separators=(",", ":"))
            assert value in (given_value, as_text) or (given_value is None and value is None)
    for rows in found:
        rows.batch.validate(full=True)
        assert {name: rows.batch.schema.field(name).type for name in rows.types} == dict(rows.types)
        assert isinstance(rows.batch, pa.RecordBatch)


def test_numbers_beyond_all_floats_become_text():
    """Numbers beyond all floats keep their digits as text, also if nested, and so do the others of their column."""
    lines = [{"u": "a", "t": 1, "x": 1.5, "n": {"y": [2.5]}}] * 2
    data = (
        "".join(f"{json.dumps(line)}\n" for line in lines)
        .replace("1.5", "-1e400", 1)
        .replace("2.5", "3E+999", 1)
        .encode()
    )
    found = rows_of(read(data))
    assert [row["x"] for row in found] == ["-1e400", "1.5"]
    assert "3E+999" in str(found[0]["n"])
    assert "2.5" in str(found[1]["n"])


PAYLOAD = Roles(space="u", timestamp="t", data="d")
WHOLE = b'{"u":"a","t":1,"d":{"b":1.50,"b":2}}\n'


@pytest.mark.parametrize(
    ("lines", "words", "bad"),
    [
        (WHOLE, ['{"b":1.50,"b":2}'], []),
        (WHOLE + b'{"u":\n', ['{"b":1.50,"b":2}'], [2]),  # beside a broken line
        (b'{"u":"a","t":1,"d":"\\ud800"}\n' + WHOLE, ['{"b":1.50,"b":2}'], [1]),  # half of a surrogate pair
        (b'{"u":"a","t":1,"d":{},"d":{}}\n' + WHOLE, ['{"b":1.50,"b":2}'], [1]),
        (b'{"u":"a","t":1,"d":"\xff"}\n' + WHOLE, ['{"b":1.50,"b":2}'], [1]),  # not UTF-8
        (WHOLE + b'{"u":"a","t":1,"d":' + b"[" * 100 + b"]" * 100 + b"}\n" + WHOLE, ['{"b":1.50,"b":2}'] * 2, [2]),
        (b'\n{"u":"a","t":1,"d":"\\n"}\n \v\n' + WHOLE, ["\n", '{"b":1.50,"b":2}'], []),
        (b'{"u":"a","t":"x"}\n{"u":"a","t":1,"d":"z"}\n' + WHOLE, [None, "z", '{"b":1.50,"b":2}'], []),
    ],
)
@pytest.mark.parametrize("block_bytes", [1, 1 << 20])
def test_payloads_whatever_is_beside_them(monkeypatch, lines, words, bad, block_bytes):
    """Payloads and bad lines do not depend on the other lines of the block."""
    monkeypatch.setattr(records, "BLOCK_BYTES", block_bytes)
    batches = read(lines, PAYLOAD)
    assert [number for number, _ in bad_of(batches)] == bad
    found: list[bytes | None] = []
    for rows in batches:
        given = rows.words.get(
            "d", rows.batch["d"] if "d" in rows.batch.schema.names else pa.nulls(rows.batch.num_rows)
        )
        found += given.cast(pa.binary()).to_pylist()
    assert found == [None if word is None else word.encode() for word in words]
