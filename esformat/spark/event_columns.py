"""Mapping of a DataFrame's columns to columns of events, decided before any task runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import pyarrow as pa
import pyarrow.types as pt

from esformat.errors import UsageError
from esformat.format.schema import KEY_COLUMNS, make_schema, without_keys
from esformat.spark.options import WriteOptions


@dataclass(frozen=True, slots=True)
class EventColumns:
    """The event names of a DataFrame's columns, in its order, and whether keys are binary."""

    names: tuple[str, ...]
    binary_keys: bool

    @classmethod
    def choose(cls, schema: pa.Schema, options: WriteOptions) -> Self:
        """Find the column of each role. Raises UsageError or InvalidEventError if one is missing or unsuitable."""
        grouping = options.grouping or ("grouping" if "grouping" in schema.names else None)
        roles = {options.space: "space", options.timestamp: "timestamp"} | ({grouping: "grouping"} if grouping else {})
        if len(roles) < 2 + (grouping is not None):
            raise UsageError("space, grouping and timestamp must be different columns")
        for name, role in roles.items():
            if name not in schema.names:
                raise UsageError(
                    f"missing column {name!r} for the {role}",
                    hint=f'set .option("{role}", …) to one of {", ".join(schema.names)}',
                )
        names = tuple(roles.get(name, name) for name in schema.names)
        for name, given in zip(names, schema.names, strict=True):
            if name == given and name in KEY_COLUMNS and name not in roles:
                raise UsageError(f"column {name!r} conflicts with the {name}", hint="rename or drop it")
        kind = schema.field(options.space).type
        _check_key(options.space, kind)
        if grouping:
            _check_key(grouping, schema.field(grouping).type)
        _check_time(options.timestamp, schema.field(options.timestamp).type)
        binary_keys = pt.is_binary(kind) if options.keys is None else options.keys == "binary"
        chosen = cls(names, binary_keys)
        make_schema(chosen.arrow(schema), options.indexes, binary_keys=binary_keys)  # raises if it cannot be stored
        return chosen

    def arrow(self, schema: pa.Schema) -> pa.Schema:
        """The DataFrame's schema with the event names."""
        return pa.schema([field.with_name(name) for name, field in zip(self.names, schema, strict=True)])

    def payload(self, schema: pa.Schema) -> pa.Schema:
        """The payload and index columns, as for `esformat.create`."""
        return without_keys(self.arrow(schema))


def _check_key(name: str, kind: pa.DataType) -> None:
    if not (pt.is_string(kind) or pt.is_binary(kind)):
        raise UsageError(
            f"column {name!r} of type {kind} cannot be a key", hint="keys are text or binary: cast it to string first"
        )


def _check_time(name: str, kind: pa.DataType) -> None:
    if not (kind == pa.int64() or (pt.is_timestamp(kind) and kind.tz)):
        naive = "it has no time zone: " if pt.is_timestamp(kind) else ""
        raise UsageError(
            f"column {name!r} of type {kind} cannot be the timestamp",
            hint=f"{naive}cast it to timestamp first, or give microseconds since 1970 as bigint",
        )


def column_name(column: str) -> str:
    """Quote a column's name for Spark, so that dots do not refer to fields of structs."""
    return "`" + column.replace("`", "``") + "`"
