"""Conversion of columns to types that an engine has, if it lacks theirs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.types as pt

from esformat.errors import UsageError
from esformat.format.json_text import as_text

MOST_DIGITS = 38
"""The most digits of an engine's decimals; longer decimals become text, which keeps all digits."""

TypeOf = Callable[[pa.DataType], pa.DataType]
"""Returns the type in which an engine can read values of a type: nearly always the type itself."""


def retyped(events: Any, type_of: TypeOf) -> Any:
    """Return `Events` with the same rows, whose columns have the types that `type_of` returns."""
    given = events.arrow
    arrow = pa.schema([field.with_type(type_of(field.type)) for field in given], given.metadata)
    return events if arrow.equals(given) else RetypedEvents(events, arrow)


def inner_types(kind: pa.DataType, type_of: TypeOf) -> pa.DataType:
    """Apply `type_of` to a type, or to the types within lists, maps and structs.

    Decimals have at most 38 digits and no negative scale, or become text. Lists of fixed size 0 become lists.
    """

    def inner(field: pa.Field) -> pa.Field:
        return field.with_type(inner_types(field.type, type_of))

    if pt.is_decimal(kind):
        digits = kind.precision - min(kind.scale, 0)
        return pa.decimal128(digits, max(kind.scale, 0)) if digits <= MOST_DIGITS else pa.string()
    if pt.is_struct(kind):
        return pa.struct(list(map(inner, kind)))
    if pt.is_map(kind):
        return pa.map_(inner_types(kind.key_type, type_of), inner_types(kind.item_type, type_of), kind.keys_sorted)
    if pt.is_fixed_size_list(kind) and kind.list_size:
        return pa.list_(inner(kind.value_field), kind.list_size)
    if pt.is_list(kind) or pt.is_fixed_size_list(kind):
        return pa.list_(inner(kind.value_field))
    if pt.is_large_list(kind):
        return pa.large_list(inner(kind.value_field))
    return type_of(kind)


class RetypedEvents:
    """`Events` with some columns converted to other types. Created by `retyped`."""

    def __init__(self, events: Any, arrow: pa.Schema) -> None:
        self._events = events
        self._changed = [after for before, after in zip(events.arrow, arrow, strict=True) if before.type != after.type]
        self.arrow = arrow
        """The schema of the converted columns."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._events, name)

    def requiring(self, required_texts: Any) -> RetypedEvents:
        """The same events, possibly without some that lack required texts."""
        return RetypedEvents(self._events.requiring(required_texts), self.arrow)

    def batches(self, bounds: Any, columns: Sequence[str], *, lazily: bool) -> Iterator[pa.RecordBatch]:
        """Yield the named columns of at least the events within bounds. Raises UsageError for a value out of range."""
        for batch in self._events.batches(bounds, columns, lazily=lazily):
            for field in self._changed:
                place = batch.schema.get_field_index(field.name)
                if place >= 0:
                    batch = batch.set_column(place, field, _converted(batch.column(place), field))
            yield batch


def _converted(column: pa.Array, field: pa.Field) -> pa.Array:
    """A column converted to the type of a field; text is written as in JSON."""
    try:
        return as_text(column) if pt.is_string(field.type) else column.cast(field.type)
    except pa.ArrowInvalid as error:
        raise UsageError(f"column {field.name!r} cannot be read: {error}", hint="select other columns") from None
