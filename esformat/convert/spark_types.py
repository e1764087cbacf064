"""Columns written by Spark in types that Parquet or ORC lack: Spark records such types in the file's metadata."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

import pyarrow as pa

from esformat.convert.errors import InputError

_ROW_METADATA = b"org.apache.spark.sql.parquet.row.metadata"
_ORC_TYPE = b"spark.sql.catalyst.type"
_DAY_TIME = "interval day", "interval hour", "interval minute", "interval second"
_FOREIGN = {
    "variant": "to_json",
    "geometry": "st_asbinary",
    "geography": "st_asbinary",
    "interval year": "CAST(… AS STRING)",
    "interval month": "CAST(… AS STRING)",
}


@dataclass(frozen=True, slots=True)
class SparkTypes:
    """Spark's types of a file's columns, where they differ from the file's own types."""

    durations: frozenset[str] = field(default_factory=frozenset)  # columns of microseconds

    @classmethod
    def of(cls, schema: pa.Schema, path: str) -> Self:
        """Read the types from a file's schema. Raises InputError for a column whose values would lose their meaning."""
        noted = dict(_noted(schema))
        for name, type_ in noted.items():
            for known in _leaves(type_):
                _check(name, known, path)
        for column in schema:
            _check(column.name, _extension_name(column), path)
        return cls(frozenset(name for name, type_ in noted.items() if str(type_).startswith(_DAY_TIME)))

    def type_of(self, column: pa.Field) -> pa.DataType:
        """The real type of a column."""
        is_duration = column.name in self.durations and column.type == pa.int64()
        return pa.duration("us") if is_duration else column.type

    def applied(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return a batch with its columns in their real types."""
        for place, column in enumerate(batch.schema if self.durations else ()):
            known = self.type_of(column)
            if known != column.type:
                batch = batch.set_column(place, column.name, batch.column(place).view(known))
        return batch


def _check(name: str, known: str, path: str) -> None:
    for foreign, function in _FOREIGN.items():
        if known.startswith(foreign):
            raise InputError(
                f"column {name!r} is {known}, which events cannot hold",
                path=path,
                hint=f"leave it out by naming the columns to keep, or write it with {function}",
            )


def _noted(schema: pa.Schema) -> Iterator[tuple[str, Any]]:
    """Yield each column with Spark's type of it, as decoded from JSON."""
    stored = (schema.metadata or {}).get(_ROW_METADATA)
    try:
        fields = json.loads(stored)["fields"] if stored else []
        yield from ((each["name"], each["type"]) for each in fields)
    except (ValueError, KeyError, TypeError):  # not written by Spark: the file's own types apply
        return
    for column in schema:
        noted = (column.metadata or {}).get(_ORC_TYPE)
        if noted is not None:
            yield column.name, noted.decode("utf-8", "replace")


def _leaves(type_: Any) -> Iterator[str]:
    """Yield the names of all types nested in a type."""
    if isinstance(type_, str):
        yield type_
    elif isinstance(type_, Mapping):
        for name in ("elementType", "keyType", "valueType"):
            yield from _leaves(type_.get(name))
        yield from (leaf for each in type_.get("fields", ()) for leaf in _leaves(each.get("type")))


def _extension_name(column: pa.Field) -> str:
    """Spark's name of an extension type that Arrow reads only as its storage type; "" for other columns."""
    name = (column.metadata or {}).get(b"ARROW:extension:name", b"").decode("utf-8", "replace")
    if isinstance(column.type, pa.BaseExtensionType):
        name = column.type.extension_name
    if name.startswith("geoarrow"):
        return "geometry"
    return "variant" if name.endswith("variant") else ""
