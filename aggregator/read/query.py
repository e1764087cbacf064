"""The checked options of a scan: one `Query` for sealed and unsealed events."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Generic, TypedDict, TypeVar, Unpack

import pyarrow as pa

from aggregator.errors import InvalidRequestError
from aggregator.model import PARTITION, RECORD_INDEX
from aggregator.storage.segments.table import Bounds
from esformat import UnknownIndexError, UsageError
from esformat.parts import EventSchema, as_text, can_hold, to_bound

S = TypeVar("S")


class ScanOptions(TypedDict, total=False):
    """The options of a scan.

    space, grouping, partition: only that one. start, end: half-open [start, end), int µs, aware datetimes or ISO 8601.
    reverse: the newest first. limit: maximum number of events. columns: names of the columns to read; `record_index`
    and `partition` are only returned if named.
    """

    space: str | bytes | None
    grouping: str | bytes | None
    start: Any
    end: Any
    reverse: bool
    limit: int | None
    columns: Any
    partition: str | None


class Scans(ABC, Generic[S]):
    """The scans of a topic, the same in a catalog and on a server. Each returns a lazy result."""

    @abstractmethod
    def _scan(self, conditions: Mapping[str, Any], options: Mapping[str, Any]) -> S:
        """The result for these `ScanOptions`, of events that have all values of `conditions` in indexes."""

    def scan(self, **options: Unpack[ScanOptions]) -> S:
        """Events by time, oldest first, of all partitions; ties by partition, then record index; `reverse` mirrors it.

        options: `space`, `grouping` and `partition`: only that one. `start`, `end`: half-open [start, end), int µs,
            aware datetimes or ISO 8601. `reverse`, `limit`. `columns`: names of the columns to read; `record_index` and
            `partition` are only returned if named.
        Raises esformat.UsageError, InvalidEventError or PartitionNotFoundError immediately for invalid arguments.
        """
        return self._scan({}, _known(options))

    def scan_index(self, name: str | Mapping[str, Any], value: Any = None, **options: Unpack[ScanOptions]) -> S:
        """Events with a value in an index; with a mapping, events that have all its values. Otherwise like `scan`.

        Values are compared as scans show them: if the index has numbers and texts, both 5 and "5" find all that show 5.
        Raises esformat.UnknownIndexError, and the errors of `scan`, immediately.
        """
        if isinstance(name, Mapping) == (value is not None) or name == {}:
            raise UsageError("give either a mapping of conditions or a name and a value")
        return self._scan(name if isinstance(name, Mapping) else {name: value}, _known(options))


def _known(options: ScanOptions) -> ScanOptions:
    """Return the options. Raises TypeError for one that scans do not have."""
    if unknown := options.keys() - ScanOptions.__annotations__:
        known = ", ".join(ScanOptions.__annotations__)
        raise TypeError(f"a scan has no option {min(unknown)!r}: its options are {known}")
    return options


@dataclass(frozen=True, slots=True)
class Query(Bounds):
    """What to read within bounds, and how.

    by_index: read one partition in the order of record indexes; else by time.
    """

    grouping: bytes | None = None
    reverse: bool = False
    limit: int | None = None
    columns: tuple[str, ...] | None = None
    conditions: tuple[tuple[str, Any], ...] = ()
    by_index: bool = False

    @property
    def filtered(self) -> bool:
        """Whether it may exclude events."""
        keys = self.space is not None or self.grouping is not None or bool(self.conditions)
        return keys or self.start is not None or self.end is not None or self.by_index


def make_query(
    *,
    binary_keys: bool,
    indexes: tuple[str, ...],
    space: Any = None,
    grouping: Any = None,
    start: Any = None,
    end: Any = None,
    reverse: bool = False,
    limit: Any = None,
    columns: Any = None,
    conditions: Mapping[str, Any] | None = None,
    first_index: Any = None,
    end_index: Any = None,
    by_index: bool = False,
) -> Query:
    """Check options and return the query. Raises UsageError, UnknownIndexError, InvalidEventError (naive datetimes),
    InvalidRequestError (a limit or record index).
    """
    for name in conditions or {}:
        check_index(name, indexes)
    return Query(
        space=_key(space, "space", binary_keys),
        grouping=_key(grouping, "grouping", binary_keys),
        start=None if start is None else to_bound(start, "start"),
        end=None if end is None else to_bound(end, "end"),
        reverse=bool(reverse),
        limit=_whole(limit, "limit"),
        columns=_columns(columns),
        conditions=tuple((conditions or {}).items()),
        first_index=_whole(first_index, "from_index"),
        end_index=_whole(end_index, "end_index"),
        by_index=by_index,
    )


def check_index(name: str, indexes: Sequence[str]) -> None:
    """Raise UnknownIndexError for an index that the topic lacks."""
    if name not in indexes:
        known = f"the indexes are {', '.join(indexes)}" if indexes else "the topic has no indexes"
        raise UnknownIndexError(f"no index {name!r}", hint=known)


def _key(key: Any, what: str, binary: bool) -> bytes | None:
    if key is None or isinstance(key, bytes):
        return key
    if isinstance(key, str):
        try:
            return key.encode()
        except UnicodeEncodeError:
            raise UsageError(f"{what} {key!r} is not Unicode text") from None
    raise UsageError(f"{what} must be {'bytes' if binary else 'text'}, not {type(key).__name__}")


def _whole(number: Any, what: str) -> int | None:
    if number is None:
        return None
    if isinstance(number, bool) or not hasattr(number, "__index__") or number < 0:
        raise InvalidRequestError(f"{what} must be a whole number from 0, not {number!r}")
    return min(int(number.__index__()), sys.maxsize)  # there is never more


def _columns(columns: Any) -> tuple[str, ...] | None:
    if columns is None:
        return None
    if isinstance(columns, str) or not isinstance(columns, Iterable):
        raise UsageError(f"columns must be a list of names, not {columns!r}")
    checked = tuple(columns)
    if not checked:
        raise UsageError("columns must name at least one column", hint="to count events use scan().count()")
    if not all(isinstance(name, str) for name in checked):
        raise UsageError(f"columns must be a list of names, not {list(checked)!r}")
    if len(set(checked)) != len(checked):
        raise UsageError(f"a column is named twice in {list(checked)}")
    return checked


def check_columns(columns: tuple[str, ...], known: Iterable[str]) -> None:
    """Raise UsageError for a column that the topic lacks."""
    names = [*known, RECORD_INDEX, PARTITION]
    for name in columns:
        if name not in names:
            raise UsageError(f"no column {name!r}", hint=f"the columns are {', '.join(names)}")


def check_conditions(conditions: Iterable[tuple[str, Any]], schemas: Sequence[EventSchema], union: pa.Schema) -> None:
    """Raise UsageError for a value that no event of `schemas` can have in that index. union: the columns as read."""
    for name, value in conditions:
        fields = [schema.fields[schema.positions[name]] for schema in schemas if name in schema.positions]
        kinds = {field.type for field in fields if field.indexed}  # else no event had a value
        if len(kinds) > 1:
            kinds.add(union.field(name).type)
        if not any(_can_show(kind, value) for kind in kinds or {pa.string(), pa.int64(), pa.bool_()}):
            types = f" of type {' or '.join(sorted(map(str, kinds)))}" if kinds else ""
            raise UsageError(f"index {name!r} holds values{types}, not {value!r}")


def _can_show(kind: pa.DataType, value: Any) -> bool:
    """Whether reads can show a value of an index in a type. Only whole numbers of several types become decimals."""
    return isinstance(value, Decimal) if pa.types.is_decimal(kind) else can_hold(kind, value)


def stored_value(kind: pa.DataType, value: Any) -> Any:
    """The value of an index of type `kind` that reads show as `value`; None if there is none.

    If an index has values of several types, reads show those of other types as text.
    """
    if can_hold(kind, value):
        return value
    try:
        shown = as_text(pa.array([value])) if isinstance(value, bool) else pa.array([str(value)])
        stored = shown.cast(kind)
    except (pa.ArrowException, UnicodeError):
        return None
    return stored[0].as_py() if as_text(stored) == shown else None
