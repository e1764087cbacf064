"""Check the arguments of a scan against the columns and indexes of what is scanned. Nothing is read."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as pt

from esformat.core.cached_segment import CheckedQueries, Query
from esformat.errors import UnknownIndexError, UsageError
from esformat.event import to_bound
from esformat.format.schema import EventSchema

__all__ = ["Checks", "Query", "can_hold", "conditions_of", "index_type", "make_query"]


class Checks(CheckedQueries):
    """The columns and indexes that queries may name."""

    def __init__(self, name: str, schema: EventSchema) -> None:
        """name: of the file or files, for error messages."""
        self.name = name
        self._schema = schema

    def known_columns(self, names: Sequence[str]) -> Sequence[str]:
        """The columns that exist: at least those of `names`, here all."""
        known: Sequence[str] = self._schema.arrow.names
        return known

    def conditions(self, wanted: Mapping[str, Any]) -> Iterable[tuple[str, Any]]:
        """The names of indexes, and the values to look up in them, in the indexes' types.

        Raises UnknownIndexError, and UsageError for a value that the index cannot contain.
        """
        for name, value in wanted.items():
            kind = self.index_type(name)
            if not can_hold(kind, value):
                raise UsageError(f"index {name!r} holds values of type {kind}, not {value!r}")
            yield name, int(value) if isinstance(value, np.integer) else value

    def index_type(self, name: str) -> pa.DataType:
        """Type of the values of an index. Raises UnknownIndexError."""
        return index_type(self._schema, name, self.name)


def make_query(
    checks: Checks,
    *,
    start: Any = None,
    end: Any = None,
    reverse: bool = False,
    limit: int | None = None,
    columns: Any = None,
    conditions: Mapping[str, Any] | None = None,
) -> Query:
    """A checked query. Raises UsageError, UnknownIndexError or InvalidEventError (naive datetimes)."""
    if limit is not None:
        if not isinstance(limit, int | np.integer) or isinstance(limit, bool) or limit < 0:
            raise UsageError(f"limit must be a whole number from 0, not {limit!r}")
        limit = min(int(limit), sys.maxsize)  # no scan has more rows
    made = Query(
        None if start is None else to_bound(start, "start"),
        None if end is None else to_bound(end, "end"),
        bool(reverse),
        limit,
        None if columns is None else _checked_columns(checks, columns),
        tuple(checks.conditions(conditions)) if conditions else (),
    )
    if len(made.conditions) == 1 and conditions == dict(made.conditions):
        checks.remember(None, *made.conditions[0])
    return made


def _checked_columns(checks: Checks, columns: Any) -> tuple[str, ...]:
    """The columns that a query names. Raises UsageError for one that is unknown or named twice."""
    if isinstance(columns, str) or not isinstance(columns, Iterable):
        text = "the text " if isinstance(columns, str) else ""
        raise UsageError(f"columns must be a list of names, not {text}{columns!r}")
    checked = tuple(columns)
    if checks.has_columns(checked):
        return checked
    if not checked:
        raise UsageError("columns must name at least one column", hint="to count events use scan().count()")
    known = checks.known_columns(checked)
    for name in checked:
        if name not in known:
            raise UsageError(f"no column {name!r}", path=checks.name, hint=f"the columns are {', '.join(known)}")
    if len(set(checked)) != len(checked):
        raise UsageError(f"a column is named twice in {list(checked)}")
    checks.remember(checked, None, None)
    return checked


def conditions_of(name: str | Mapping[str, Any], value: Any) -> dict[str, Any]:
    """The conditions of `scan_index`, from a mapping or a name and a value. Raises UsageError."""
    if not isinstance(name, Mapping):
        return {name: value}
    if value is not None:
        raise UsageError("give either a mapping of conditions or a name and a value, not both")
    if not name:
        raise UsageError("a mapping of conditions must not be empty", hint="use scan() for all events")
    return dict(name)


def index_type(schema: EventSchema, name: str, path: str) -> pa.DataType:
    """Type of the values of an index. Raises UnknownIndexError, which names the file."""
    if name not in schema.indexes:
        known = ", ".join(schema.indexes) or "none"
        raise UnknownIndexError(f"no index {name!r}", path=path, hint=f"the indexes are: {known}")
    return schema.fields[schema.positions[name]].type


def can_hold(kind: pa.DataType, value: Any) -> bool:
    """Whether an index of a type can contain a value. Texts, integers and booleans are never mixed."""
    if pt.is_boolean(kind):
        return isinstance(value, bool)
    if pt.is_integer(kind):
        return isinstance(value, int | np.integer) and not isinstance(value, bool)
    return isinstance(value, str)
