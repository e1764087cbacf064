"""What a scan of a Go ESDB file asks for, checked, and which rows of a batch are the answer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from esformat.customerio.layout import Layout, Layouts
from esformat.errors import UnknownIndexError, UsageError
from esformat.event import to_bound


class Question(NamedTuple):
    """Times are µs, [start, end); `columns` None means all; `grouping` None means any."""

    start: int | None
    end: int | None
    reverse: bool
    limit: int | None
    columns: tuple[str, ...] | None
    grouping: bytes | None
    conditions: tuple[tuple[str, bytes], ...]

    @property
    def filtered(self) -> bool:
        """Whether rows must be looked at to know if they belong to the answer."""
        return bool(self.conditions) or not (self.start is None and self.end is None and self.grouping is None)

    @property
    def conditioned(self) -> tuple[str, ...]:
        """Index columns that have a condition."""
        return tuple(name for name, _ in self.conditions)

    @property
    def looked_at(self) -> tuple[str, ...]:
        """Columns that decide which rows belong to the answer."""
        names = list(self.conditioned)
        if self.grouping is not None:
            names.append("grouping")
        if self.start is not None or self.end is not None:
            names.append("timestamp")
        return tuple(names)

    def select(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows of a batch that belong to the answer; it has the columns of `looked_at`."""
        masks = []
        if self.start is not None or self.end is not None:
            times = batch.column("timestamp").cast(pa.int64())
            if self.start is not None:
                masks.append(pc.greater_equal(times, self.start))
            if self.end is not None:
                masks.append(pc.less(times, self.end))
        if self.grouping is not None:
            masks.append(_equals(batch.column("grouping"), self.grouping))
        masks += [_equals(batch.column(name), value) for name, value in self.conditions]
        for mask in masks[1:]:
            masks[0] = pc.and_(masks[0], mask)
        return batch.filter(masks[0]) if masks else batch


def _equals(column: pa.Array, value: bytes) -> pa.Array:
    return pc.equal(column.cast(pa.binary()), pa.scalar(value, pa.binary()))


def make_question(
    layouts: Layouts,
    path: str,
    *,
    start: Any = None,
    end: Any = None,
    reverse: bool = False,
    limit: int | None = None,
    columns: Any = None,
    grouping: str | bytes | None = None,
    conditions: Mapping[str, Any] | None = None,
) -> Question:
    """A checked question. Raises UsageError, UnknownIndexError or InvalidEventError (naive datetimes)."""
    if limit is not None:
        if not isinstance(limit, int | np.integer) or isinstance(limit, bool) or limit < 0:
            raise UsageError(f"limit must be a whole number from 0, not {limit!r}")
        limit = int(limit)
    wanted = conditions or {}
    layout = layouts.naming(wanted)
    return Question(
        None if start is None else to_bound(start, "start"),
        None if end is None else to_bound(end, "end"),
        bool(reverse),
        limit,
        None if columns is None else _check_columns(columns, layouts, path),
        None if grouping is None else key_bytes(grouping),
        tuple(_check_condition(layout, path, name, value) for name, value in wanted.items()),
    )


def _check_columns(columns: Any, layouts: Layouts, path: str) -> tuple[str, ...]:
    if isinstance(columns, str) or not isinstance(columns, Iterable):
        raise UsageError(f"columns must be a list of names, not {columns!r}")
    checked = tuple(columns)
    known = layouts.naming(checked).schema.arrow.names
    unknown = [name for name in checked if name not in known]
    if unknown:
        raise UsageError(f"no column {unknown[0]!r}", path=path, hint=f"the columns are {', '.join(known)}")
    if not checked or len(set(checked)) != len(checked):
        raise UsageError("columns must name at least one column, and none twice", hint="scan().count() counts events")
    return checked


def _check_condition(layout: Layout, path: str, name: str, value: Any) -> tuple[str, bytes]:
    """The column and the value that the condition means: Go takes any of the colons for the one between them."""
    known = layout.by_name.get(name)
    if isinstance(value, str | bytes) and isinstance(name, str):
        stored, wanted = layout.names.split(
            layout.names.pair(known.stored if known else key_bytes(name), key_bytes(value))
        )
        if stored in layout.by_stored:
            return layout.indexes[layout.by_stored[stored]].name, wanted
    check_index(layout, path, name)
    if not isinstance(value, str | bytes):
        raise UsageError(f"index {name!r} holds text, not {value!r}")
    return name, key_bytes(value)


def check_index(layout: Layout, path: str, name: str) -> None:
    """Raise UnknownIndexError where the file has no such index."""
    if name not in layout.by_name:
        known = ", ".join(layout.by_name) or "none"
        raise UnknownIndexError(f"no index {name!r}", path=path, hint=f"the indexes are: {known}")


def make_conditions(name: str | Mapping[str, Any], value: Any) -> dict[str, Any]:
    """What `scan_index` was asked: a name and a value, or a mapping of several."""
    if not isinstance(name, Mapping):
        return {name: value}
    if value is not None:
        raise UsageError("give either a mapping of conditions or a name and a value, not both")
    if not name:
        raise UsageError("a mapping of conditions must not be empty", hint="use scan() for all events")
    return dict(name)


def key_bytes(key: Any) -> bytes:
    """A space, grouping or value as the file stores it. Raises UsageError for other types."""
    if isinstance(key, str):
        try:
            return key.encode()
        except UnicodeEncodeError:
            raise UsageError(f"key {key!r} is not Unicode text") from None
    if isinstance(key, bytes | bytearray | memoryview):
        return bytes(key)
    raise UsageError(f"a key must be str or bytes, not {type(key).__name__}")
