"""Values of every kind of type as text in CSV and back; and what is refused as none of the type."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa
import pytest

from esformat.convert.typed_text import from_json, from_text
from esformat.format.json_text import as_text

KINDS = {
    "struct": (pa.struct({"a": pa.timestamp("us", "UTC"), "b": pa.decimal128(9, 2)}), [{"a": 1, "b": Decimal("1.50")}]),
    "struct of structs": (pa.struct({"a": pa.struct({"b": pa.binary()})}), [{"a": None}, {"a": {"b": b"\xff"}}]),
    "map": (pa.map_(pa.string(), pa.int64()), [[("k", 1), ("l", None)], []]),
    "map of numbers": (pa.map_(pa.int8(), pa.list_(pa.string())), [[(1, ["a"]), (-2, None)]]),
    "list": (pa.list_(pa.binary()), [[b"a", b"\xff", None], []]),
    "large list": (pa.large_list(pa.string()), [["a", None], []]),
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
    """Nulls among them stay nulls."""
    type_, values = KINDS[kind]
    for given in (values, [None, *values, None]):
        array = pa.array(given, type_)
        found = from_text(as_text(array).cast(pa.binary()), type_)
        found.validate(full=True)
        assert found.type == type_
        assert found.equals(array)


REFUSED = {
    "member": (pa.struct({"a": pa.int8()}), [{"b": 1}], ValueError, "unknown member 'b'"),
    "missing": (pa.struct({"a": pa.int8()}), [{}], KeyError, "a"),
    "length": (pa.list_(pa.int8(), 2), [[1]], pa.ArrowInvalid, "length|size"),
    "range": (pa.list_(pa.int8()), [[300]], pa.ArrowInvalid, "300 too large"),
    "fraction": (pa.decimal128(3, 1), [Decimal("1.25")], pa.ArrowInvalid, "precision|scale|truncate|data loss"),
    "base64": (pa.binary(), [{"base64": "?"}], ValueError, "base64|padding|Only"),
}


@pytest.mark.parametrize("why", REFUSED)
def test_refused(why):
    """With an error that names what is wrong, so that nothing is stored that is not there."""
    kind, values, error, message = REFUSED[why]
    with pytest.raises(error, match=message):
        from_json(values, kind)
