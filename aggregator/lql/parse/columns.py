"""The columns of batches by role: time, message, tags, fields."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from aggregator.lql.text.layout import MOST_US, Layout
from aggregator.lql.text.predicate import as_string

_MICROS = {"s": 1_000_000, "ms": 1000, "us": 1}


@dataclass(frozen=True, slots=True)
class Columns:
    """Names of the columns with a special role; all other columns of `schema`, except `hidden` ones, are fields.

    `timestamp`: timestamp("us", "UTC") or int64 microseconds. `message`: binary or string. `tags`: the canonical text
    of the stream's tag set, plain or dictionary-encoded; None: batches do not have it. `extra`: a map of text to text
    or bytes for the fields without a column; None: there is none. `tag_names`: tags that a condition may name.
    """

    schema: pa.Schema
    timestamp: str = "timestamp"
    message: str = "data"
    tags: str | None = "space"
    extra: str | None = None
    hidden: frozenset[str] = field(default=frozenset({"grouping", "record_index"}))
    tag_names: frozenset[str] = frozenset()

    @property
    def fields(self) -> list[str]:
        """Names of the columns that are fields, in the order of the schema."""
        special = {self.timestamp, self.message, self.tags, self.extra}
        return [name for name in self.schema.names if name not in special and name not in self.hidden]

    @property
    def names(self) -> list[str]:
        """The names that a condition may use: fields, and hidden columns."""
        return [*self.fields, *sorted(self.hidden & set(self.schema.names))]


def decoded(array: pa.Array) -> pa.Array:
    """The array without a dictionary, view or run-end encoding around its values."""
    type_ = array.type
    if pa.types.is_dictionary(type_):
        return decoded(array.dictionary_decode())
    if pa.types.is_string_view(type_):
        return array.cast(pa.large_string())
    if pa.types.is_binary_view(type_):
        return array.cast(pa.large_binary())
    return pc.run_end_decode(array) if pa.types.is_run_end_encoded(type_) else array


def is_text(type_: pa.DataType) -> bool:
    """Whether values are text or bytes, which compare as text."""
    return bool(
        pa.types.is_string(type_)
        or pa.types.is_large_string(type_)
        or pa.types.is_binary(type_)
        or pa.types.is_large_binary(type_)
        or pa.types.is_string_view(type_)
        or pa.types.is_binary_view(type_)
    )


def as_text(array: pa.Array) -> pa.Array:
    """Any array as valid UTF-8, string or large_string; nulls stay.

    Broken bytes become U+FFFD; lists, structs and maps become JSON.
    """
    array = decoded(array)
    type_ = array.type
    if pa.types.is_string(type_) or pa.types.is_large_string(type_):
        return array
    if pa.types.is_fixed_size_binary(type_):
        array, type_ = array.cast(pa.binary()), pa.binary()
    if pa.types.is_binary(type_) or pa.types.is_large_binary(type_):
        text = pa.string() if pa.types.is_binary(type_) else pa.large_string()
        try:
            return array.cast(text)
        except pa.ArrowInvalid:  # some bytes are not UTF-8: rare, so value by value
            return pa.array([None if v is None else v.decode("utf-8", "replace") for v in array.to_pylist()], text)
    if pa.types.is_timestamp(type_):
        return _iso(array)
    try:
        if not pa.types.is_date(type_):  # Arrow writes an error message for dates beyond any calendar
            return array.cast(pa.string())
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid):  # lists, structs, maps
        pass
    from esformat.parts import as_text as json_text  # here: rarely needed

    return json_text(array)


def value_type(type_: pa.DataType) -> pa.DataType:
    """The type of the values in a dictionary or in runs."""
    while pa.types.is_dictionary(type_) or pa.types.is_run_end_encoded(type_):
        type_ = type_.value_type
    return type_


def changed_case(texts: pa.Array, functions: Iterable[str]) -> pa.Array:
    """Apply UPPER and LOWER to text or bytes, by Unicode's mapping of single letters; ten times as fast for ASCII."""
    for function in functions:
        if _is_ascii(texts):
            texts = (pc.ascii_upper if function == "UPPER" else pc.ascii_lower)(as_string(texts))
        else:
            texts = _upper(as_text(texts)) if function == "UPPER" else pc.utf8_lower(as_text(texts))
    return texts


def _upper(texts: pa.Array) -> pa.Array:
    """Uppercase; ß stays, because Unicode's simple mapping has no single capital for it, unlike Arrow, which uses ẞ."""
    if not pc.any(pc.match_substring(texts, "ß")).as_py():
        return pc.utf8_upper(texts)
    pieces = pc.split_pattern(texts, "ß")
    capital = pa.ListArray.from_arrays(pieces.offsets, pc.utf8_upper(pieces.values), mask=pieces.is_null())
    return pc.binary_join(capital, pa.scalar("ß", texts.type))


def _is_ascii(texts: pa.Array) -> bool:
    """Whether no byte of a string or binary array has its highest bit set."""
    _, offsets, stored = texts.buffers()
    if stored is None or len(texts) == 0:
        return True
    large = pa.types.is_large_string(texts.type) or pa.types.is_large_binary(texts.type)
    bounds = np.frombuffer(offsets, np.int64 if large else np.int32)
    begin, end = bounds[texts.offset], bounds[texts.offset + len(texts)]
    return begin == end or bool(np.frombuffer(stored, np.int8)[begin:end].min() >= 0)


def _iso(times: pa.Array) -> pa.Array:
    """RFC 3339 with as many fraction digits as needed, up to microseconds; times beyond any calendar as numbers."""
    numbers = times.cast(pa.int64())
    if times.type.unit == "ns":
        return Layout.rfc3339().render(times.cast(pa.timestamp("us"), safe=False).cast(pa.int64()))
    size = _MICROS[times.type.unit]
    near = pc.and_(pc.less_equal(numbers, MOST_US // size), pc.greater_equal(numbers, -MOST_US // size))
    micros = pc.multiply(pc.if_else(near, numbers, pa.scalar(None, pa.int64())), size)
    texts = Layout.rfc3339().render(micros)
    return texts if pc.all(near).as_py() else pc.if_else(near, texts, numbers.cast(texts.type))
