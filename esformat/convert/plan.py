"""The columns and types of the new segment: the user's roles combined with the types found in the rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import pyarrow as pa

from esformat.convert.column_type import join, nesting
from esformat.convert.roles import RESERVED, Roles, stored_names

TIMESTAMP = pa.timestamp("us", "UTC")
DEEPEST_TYPE = 30  # deeper types are kept as JSON text; segments allow 32 levels


@dataclass(frozen=True)
class Plan:
    """How rows become events. The plan grows with the rows, so that every batch so far fits."""

    roles: Roles
    types: Mapping[str, pa.DataType] = field(default_factory=dict)  # of source columns, in the order first seen
    has_nanos: bool = False  # some timestamp has digits below the microsecond

    def widened(self, types: Mapping[str, pa.DataType], *, has_nanos: bool) -> Plan:
        """Return a plan that also fits one more batch; this plan itself if it already fits."""
        joined = {**self.types, **{name: join(self.types.get(name, pa.null()), type_) for name, type_ in types.items()}}
        if joined == self.types and has_nanos <= self.has_nanos:
            return self
        return replace(self, types=joined, has_nanos=self.has_nanos or has_nanos)

    @cached_property
    def indexes(self) -> dict[str, pa.DataType]:
        """The index columns with their types: text, unless the source type is integer or boolean."""
        return {name: self._index_type(name) for name in self.roles.indexes}

    @cached_property
    def typed(self) -> dict[str, pa.DataType]:
        """The source columns that are kept as typed columns, with their types."""
        return {name: self._type(name) for name in self.roles.typed(self.types)}

    @property
    def untyped(self) -> list[str]:
        """The typed columns that have no value in any row so far and no given type."""
        requested = {**self.roles.known, **self.roles.types}
        return [name for name in self.typed if name not in requested and pa.types.is_null(self._seen(name))]

    @cached_property
    def json(self) -> dict[str, pa.DataType]:
        """The source columns that form the JSON payload, with their types."""
        return {name: self._type(name) for name in self.roles.json(self.types)}

    @property
    def payload(self) -> str | None:
        """The source column whose bytes are the payload; None if there is none."""
        name = self.roles.payload
        return name if name == self.roles.data or name in self.types else None

    @cached_property
    def stored(self) -> dict[str, str]:
        """The names of the typed columns in the segment, by source name."""
        return stored_names(self.roles, self.typed)

    @cached_property
    def nanos(self) -> str | None:
        """The segment column for the full timestamp in nanoseconds; None if microseconds lose no digits."""
        if not self.has_nanos:
            return None
        name = f"{self.roles.timestamp}_ns"
        while name in {*RESERVED, *self.roles.indexes, *self.stored.values()}:
            name += "_"
        return name

    def _seen(self, name: str) -> pa.DataType:
        return self.types.get(name, pa.null())

    def _type(self, name: str) -> pa.DataType:
        requested = self.roles.types.get(name)
        found = self._seen(name) if requested is None else requested
        if pa.types.is_null(found):
            found = self.roles.known.get(name, found)
        return pa.string() if pa.types.is_null(found) or nesting(found) > DEEPEST_TYPE else found

    def _index_type(self, name: str) -> pa.DataType:
        found = self._type(name)
        return found if pa.types.is_integer(found) or pa.types.is_boolean(found) else pa.string()
