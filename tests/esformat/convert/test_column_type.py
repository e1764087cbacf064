"""Types of text columns, the common type of two batches, and conversions without silent loss."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from esformat.convert.column_type import convert, join, nesting, plain, text_type
from esformat.convert.json_words import take
from esformat.convert.typed_text import without_base64

INT, FLOAT, BOOL, TEXT, NULL = pa.int64(), pa.float64(), pa.bool_(), pa.string(), pa.null()

LOOKS = [
    (["1", "-5", "0"], INT),
    (["1", None, "2"], INT),
    (["9223372036854775807"], INT),
    (["9223372036854775808"], TEXT),  # beyond int64, and float64 would lose digits
    (["007"], TEXT),
    (["1", "007"], TEXT),
    (["+46"], TEXT),
    (["-0"], FLOAT),
    ([" 1"], TEXT),
    (["0x1F"], TEXT),
    (["1_000"], TEXT),
    (["1.5", "2", "-1e5", "nan", "-inf"], FLOAT),
    (["1.5", "12345678901234567"], TEXT),
    (["1.5", "1e400"], TEXT),  # beyond all floats
    (["-1E+0309"], TEXT),
    (["9" * 320 + ".5"], TEXT),
    (["1e308", "-1.5e+0307", "inf", "-Infinity"], FLOAT),
    ([".5"], TEXT),
    (["1."], TEXT),
    (["01.5"], TEXT),
    (["true", "False", "TRUE"], BOOL),
    (["true", "1"], TEXT),
    (["yes"], TEXT),
    (["2006-04-07"], TEXT),
    ([""], TEXT),
    (["1", ""], TEXT),
    ([b"\xff"], TEXT),
    ([None, None], NULL),
    ([], NULL),
]


@pytest.mark.parametrize(("values", "type_"), LOOKS)
def test_text_type(values, type_):
    """Text is a number only if the number preserves the text exactly."""
    values = [value.encode() if isinstance(value, str) else value for value in values]
    assert text_type(pa.array(values, pa.binary())) == type_


def test_numbers_beyond_all_floats_do_not_fit():
    """A number beyond all floats does not become infinity; only a text for infinity does."""
    converted, unfit = convert(pa.array(["1e400", "inf", "-1e308", None, "-2e309"]).cast(pa.binary()), FLOAT)
    assert converted.to_pylist() == [None, float("inf"), -1e308, None, None]
    assert unfit is not None
    assert unfit.tolist() == [True, False, False, False, True]


JOINS = [
    (INT, INT, INT),
    (NULL, INT, INT),
    (INT, NULL, INT),
    (INT, FLOAT, FLOAT),
    (pa.int8(), pa.int32(), pa.int32()),
    (INT, TEXT, TEXT),
    (BOOL, INT, TEXT),
    (TEXT, pa.large_string(), TEXT),
    (TEXT, pa.dictionary(pa.int8(), TEXT), TEXT),
    (pa.binary(), TEXT, pa.binary()),
    (pa.binary(), INT, pa.binary()),
    (pa.list_(INT), pa.binary(4), pa.binary()),
    (pa.decimal128(5, 2), FLOAT, TEXT),  # a float does not keep every digit
    (pa.float32(), pa.decimal32(5, 2), TEXT),
    (pa.list_(pa.decimal128(5, 2)), pa.list_(FLOAT), TEXT),
    (pa.struct([("a", FLOAT), ("b", FLOAT)]), pa.struct([("b", pa.decimal128(5, 2))]), TEXT),
    (
        pa.struct([("a", FLOAT)]),
        pa.struct([("b", pa.decimal128(5, 2))]),
        pa.struct([("a", FLOAT), ("b", pa.decimal128(5, 2))]),
    ),
    (NULL, pa.struct([("a", INT), ("a", INT)]), pa.struct([("a", INT), ("a", INT)])),
    (INT, pa.decimal128(5, 2), pa.decimal128(21, 2)),
    (pa.decimal128(5, 2), pa.int8(), pa.decimal128(5, 2)),
    (pa.uint64(), pa.decimal128(38, 2), pa.decimal128(38, 2)),
    (pa.timestamp("s"), pa.timestamp("us"), pa.timestamp("us")),
    (pa.timestamp("us"), pa.timestamp("us", "UTC"), TEXT),
    (pa.list_(NULL), pa.list_(TEXT), pa.list_(TEXT)),
    (pa.struct([("a", INT)]), pa.struct([("b", TEXT)]), pa.struct([("a", INT), ("b", TEXT)])),
    (pa.list_(INT), INT, TEXT),
]


@pytest.mark.parametrize(("a", "b", "joined"), JOINS)
def test_join(a, b, joined):
    """Two batches share the narrowest type that fits both."""
    assert join(a, b) == joined


TYPES = st.sampled_from([
    NULL, INT, FLOAT, BOOL, TEXT, pa.binary(), pa.decimal128(5, 2), pa.list_(INT), pa.list_(FLOAT),
    pa.struct([("a", INT)]),
])  # fmt: skip


@given(TYPES, TYPES)
def test_join_has_no_direction(a, b):
    """The common type does not depend on the order of the batches, nor on repetition."""
    assert join(a, b) == join(b, a)
    assert join(join(a, b), b) == join(a, b)
    assert join(join(a, b), a) == join(a, b)


CONVERSIONS = [
    (pa.array([b"1", None]), INT, [1, None], None),
    (pa.array([b"1", b"x", b"\xff"]), INT, [1, None, None], [False, True, True]),
    (pa.array([b"1.5", b"12345678901234567"]), FLOAT, [1.5, None], [False, True]),
    (pa.array([b"true", b"no"]), BOOL, [True, None], [False, True]),
    (pa.array([b"a", b"\xff", b"b", b"\xfe"]), TEXT, ["a", None, "b", None], [False, True, False, True]),
    (pa.array(["a"]), pa.binary(), [b"a"], None),
    (pa.array([7, None]), pa.binary(), [b"7", None], None),
    (pa.array([7]), TEXT, ["7"], None),
    (pa.array([1.0, 2.5]), TEXT, ["1", "2.5"], None),
    (pa.array([[1, 2]]), TEXT, ["[1,2]"], None),
    (pa.array([1, 2]), FLOAT, [1.0, 2.0], None),
    (pa.array([2**60 + 1, 2]), FLOAT, [None, 2.0], [True, False]),
    (pa.array([1.5, 2.0]), INT, [None, 2], [True, False]),
    (pa.array(["a", "b"]).dictionary_encode(), TEXT, ["a", "b"], None),
    (pa.array(["5"], pa.large_string()), INT, [5], None),
    (pa.array([b"ab"], pa.binary(2)), pa.binary(), [b"ab"], None),
    (pa.array([{"a": 1}]), pa.struct([("a", FLOAT), ("b", TEXT)]), [{"a": 1.0, "b": None}], None),
    (pa.array([{"a": 1}, {"b": 2}]), pa.struct([("a", INT)]), [{"a": 1}, None], [False, True]),
    (pa.array([1.25, 1.234]), pa.decimal128(5, 2), [Decimal("1.25"), None], [False, True]),
    (pa.array([[1]]), pa.list_(FLOAT), [[1.0]], None),
    (pa.nulls(2), INT, [None, None], None),
    (pa.nulls(2), pa.binary(), [None, None], None),
    (pa.array([], pa.binary()), INT, [], None),
    (pa.array([[1]]), INT, [None], [True]),
    (pa.array(["5", "x"]), pa.duration("s"), [dt.timedelta(seconds=5), None], [False, True]),
    (pa.array(["23:59:59.5", None]), pa.time64("us"), [dt.time(23, 59, 59, 500_000), None], None),
    (
        pa.array([b"23:59:59", b"24:00:00", b"noon"]),
        pa.time32("s"),
        [dt.time(23, 59, 59), None, None],
        [False, True, True],
    ),
]


@pytest.mark.parametrize(("column", "type_", "expected", "unfit"), CONVERSIONS, ids=range(len(CONVERSIONS)))
def test_convert(column, type_, expected, unfit):
    """Values that fit are converted; the others become null and are reported."""
    converted, found = convert(column, type_)
    assert converted.type == type_
    assert converted.to_pylist() == expected
    assert (None if found is None else found.tolist()) == unfit


def test_extension_types_are_what_they_store():
    """An extension type is stored as its storage type."""
    column = pa.ExtensionArray.from_storage(pa.uuid(), pa.array([b"0123456789abcdef"], pa.binary(16)))
    assert plain(column.type) == pa.binary()
    assert convert(column, pa.binary())[0].to_pylist() == [b"0123456789abcdef"]


def test_nesting():
    """The nesting of a type is its number of list and struct levels."""
    assert [nesting(type_) for type_ in (INT, pa.list_(INT), pa.list_(pa.struct([("a", INT)])))] == [0, 1, 2]


def test_bytes_in_base64():
    """Base64 objects that `json_text` writes become bytes again; objects that only look similar stay unchanged."""
    own = [b'{"base64":1}', b'{"base64":"?"}', b'{"base64":"/w==","x":1}', b'{"base64":', b"plain", None]
    own.append(b'{"base64":"/w==","x":%s}' % (b"[" * 100_000 + b"]" * 100_000))
    written = [b'{"base64":"/w=="}', b'{"base64": ""}']
    column = pa.array([*own, *written], pa.binary())
    assert without_base64(column).to_pylist() == [*own, b"\xff", b""]
    assert without_base64(pa.array(own, pa.binary())).to_pylist() == own


@pytest.mark.parametrize("cell", [
    b'{"base64":"/w=="}', b' {"base64":"/w=="}', b'{"base64":"/w=="}\n', b'\t{ "base64"\r\n: "/w==" } ',
    b' {"base64":"/w==", "x":1}', b' {"base64":"?"}', b'{"base64":"/w==","base64":"/w=="}', b' { "base64" : 1 }',
    rb'{"base6\u0034":"/w=="}', rb'{"\u0062\u0061\u0073\u0065\u0036\u0034":"/w=="}', rb'{"base6\u0035":"/w=="}',
])  # fmt: skip
def test_base64_in_a_cell_and_in_a_line(cell):
    """An object of base64 in a cell of CSV means the same as in a JSON line, with white space around and inside it."""
    (of_line,) = take(pa.array([b'{"d":' + cell + b"}"]).cast(pa.string()), {"d"}, ()).columns["d"].to_pylist()
    (of_cell, other) = without_base64(pa.array([cell, b" \xff"], pa.binary())).to_pylist()
    assert other == b" \xff"
    assert of_cell == (cell if of_line == cell.strip() else of_line)
