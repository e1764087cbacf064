"""Values of every type as text in CSV and back, and text that does not fit a type."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa
import pytest
from effort import examples
from hypothesis import given
from hypothesis import strategies as st

from esformat.convert.typed_text import from_json, from_text
from esformat.format.json_text import as_text

KINDS = {
    "struct": (pa.struct({"a": pa.timestamp("us", "UTC"), "b": pa.decimal128(9, 2)}), [{"a": 1, "b": Decimal("1.50")}]),
    "struct of structs": (pa.struct({"a": pa.struct({"b": pa.binary()})}), [{"a": None}, {"a": {"b": b"\xff"}}]),
    "map": (pa.map_(pa.string(), pa.int64()), [[("k", 1), ("l", None)], []]),
    "map of numbers": (pa.map_(pa.int8(), pa.list_(pa.string())), [[(1, ["a"]), (-2, None)]]),
    "list": (pa.list_(pa.binary()), [[b"a", b"\xff", None], []]),
    "large list": (pa.large_list(pa.string()), [["a", None], []]),
    "lists of nothing": (pa.struct({"a": pa.list_(pa.string(), 0)}), [{"a": []}, {"a": None}]),
    "pair": (pa.list_(pa.float32(), 2), [[0.5, None], [1e30, -0.0]]),
    "halves": (pa.list_(pa.float16()), [[0.5, None]]),
    "empty lists": (pa.list_(pa.struct({"a": pa.int8(), "b": pa.list_(pa.int8(), 2)})), [[], []]),
    "nulls": (pa.list_(pa.null()), [[None, None], []]),
    "large bytes": (pa.large_binary(), [b"a", b"\xfe"]),
    "bytes of a width": (pa.binary(2), [b"ab", b"\xff\xff"]),
    "bytes": (pa.binary(), [b"a", b"\xff"]),
    "half": (pa.float16(), [0.5, 2.0]),
    "date": (pa.date32(), [0, 1]),
    "time": (pa.time64("ns"), [5, 86_399_999_999_999]),
    "times": (pa.list_(pa.time32("ms")), [[43_200_000, None], []]),
    "duration": (pa.duration("us"), [-1, 86_400_000_000]),
    "durations": (pa.struct({"a": pa.duration("s")}), [{"a": 5}, {"a": None}]),
}


@pytest.mark.parametrize("kind", KINDS)
def test_there_and_back(kind):
    """Values and nulls are preserved."""
    type_, values = KINDS[kind]
    for some in (values, [None, *values, None]):
        array = pa.array(some, type_)
        found = from_text(as_text(array).cast(pa.binary()), type_)
        found.validate(full=True)
        assert found.type == type_
        assert found.equals(array)


REFUSED = {
    "member": (pa.struct({"a": pa.int8()}), [{"b": 1}], ValueError, "unknown member 'b'"),
    "missing": (pa.struct({"a": pa.int8()}), [{}], KeyError, "a"),
    "length": (pa.list_(pa.int8(), 2), [[1]], ValueError, "a list has 1 values, expected 2"),
    "lengths that add up": (pa.list_(pa.int8(), 2), [[1], [2, 3, 4]], ValueError, "a list has 1 values, expected 2"),
    "lengths beside null": (
        pa.list_(pa.int8(), 2),
        [None, [1, 2, 3, 4]],
        ValueError,
        "a list has 4 values, expected 2",
    ),
    "length of nothing": (pa.list_(pa.int8(), 0), [[1]], ValueError, "a list has 1 values, expected 0"),
    "range": (pa.list_(pa.int8()), [[300]], pa.ArrowInvalid, "300 too large"),
    "fraction": (pa.decimal128(3, 1), [Decimal("1.25")], pa.ArrowInvalid, "precision|scale|truncate|data loss"),
    "base64": (pa.binary(), [{"base64": "?"}], ValueError, "base64|padding|Only"),
}


@pytest.mark.parametrize("why", REFUSED)
def test_refused(why):
    """A value that does not fit is refused with the reason, so that nothing false is stored."""
    kind, values, error, message = REFUSED[why]
    with pytest.raises(error, match=message):
        from_json(values, kind)


FAR = [pa.timestamp(unit, zone) for unit in ("s", "ms", "us", "ns") for zone in (None, "UTC")] + [pa.date32()]
ENDS = [-(2**63), 2**63 - 1, -62_167_219_201, -62_135_596_801, 253_402_300_800, 3 * 10**11, 0]


@pytest.mark.parametrize("kind", FAR, ids=str)
@examples(40)
@given(st.lists(st.integers(-(2**63), 2**63 - 1) | st.sampled_from(ENDS) | st.none(), min_size=1))
def test_times_of_any_year(kind, numbers):
    """Years beyond 9999 and before 0 are preserved, and so are values outside every calendar."""
    dates = pa.types.is_date(kind)
    stored = pa.array([n if n is None or not dates else n >> 32 for n in numbers], pa.int32() if dates else pa.int64())
    times = stored.view(kind)
    assert from_text(as_text(times).cast(pa.binary()), kind).equals(times)
    nested = pa.array([None if n is None else [n] for n in stored.to_pylist()], pa.list_(stored.type)).view(
        pa.list_(kind)
    )
    assert from_text(as_text(nested).cast(pa.binary()), pa.list_(kind)).equals(nested)


@pytest.mark.parametrize("zone", [None, "UTC"])
@pytest.mark.parametrize("number", [-(2**63), -(2**63) + 1, -9_223_372_036_000_000_001, -9_223_372_036_000_000_000])
def test_first_nanoseconds(number, zone):
    """The earliest nanoseconds are preserved, although Arrow cannot read the first second of their range."""
    times = pa.array([number], pa.int64()).view(pa.timestamp("ns", zone))
    assert from_text(as_text(times).cast(pa.binary()), times.type).equals(times)


@pytest.mark.parametrize(
    "text", ["2026", "5", "12026-13-01T00:00:00", "12026-01-01T25:00:00", "999999999-01-01T00:00:00", "9" * 19, "x"]
)
def test_what_is_no_time(text):
    """A number or a long year that is not a time is refused."""
    with pytest.raises(pa.ArrowInvalid):
        from_text(pa.array([text.encode()]), pa.timestamp("us"))


FLOATS = [pa.float16(), pa.float32(), pa.float64()]


@pytest.mark.parametrize("kind", FLOATS, ids=str)
@examples(40)
@given(st.lists(st.integers(0, 2**64 - 1), min_size=1))
def test_floats_of_any_bits(kind, numbers):
    """Floats of any size are preserved exactly."""
    bits = [n >> (64 - kind.bit_width) for n in numbers]
    floats = pa.array(bits, {16: pa.uint16(), 32: pa.uint32(), 64: pa.uint64()}[kind.bit_width]).view(kind)
    whole = pa.array([None if x != x else x for x in floats.to_pylist()], kind)  # NaN has many bit patterns
    assert from_text(as_text(whole).cast(pa.binary()), kind).equals(whole)


ROUNDED = [
    (pa.float64(), "9007199254740993"),
    (pa.float64(), "12345678901234567890.5"),
    (pa.float64(), "1e400"),
    (pa.float32(), "16777217"),
    (pa.float16(), "2049"),
]


@pytest.mark.parametrize(("kind", "text"), ROUNDED)
def test_floats_that_are_another_number(kind, text):
    """Text that a float cannot represent is refused, in CSV and JSON."""
    with pytest.raises(ValueError, match=f"is not exactly representable as {kind}"):
        from_text(pa.array([None, b"0.5", text.encode()]), kind)
    with pytest.raises(ValueError, match=f"is not exactly representable as {kind}"):
        from_text(pa.array([f"[0.5, {text}]".encode()]), pa.list_(kind))
