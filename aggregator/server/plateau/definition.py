"""`Definition`: a schema as a client sent it, and the columns in which its records are stored. Pure values.

The event of a record has an empty space, the id of its definition as grouping, and the record's time in µs as
timestamp. Other columns are stored under their own names, or under `name:2` … if the name is taken by our own columns
or by a column of another type. The first event of each batch contains the definition itself in the column
`plateau_schema`, so that a segment alone is enough to restore its records.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import count

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from aggregator.model import RESERVED_COLUMNS
from aggregator.server.plateau.layouts import restore_layout
from aggregator.storage.state.schema import small_types, topic_schema
from esformat import InvalidEventError
from esformat.parts import KEY_COLUMNS, TIMESTAMP_TYPE

TIME = "time"
SCHEMA_COLUMN = "plateau_schema"
STORED = b"aggregator.column"
"""Key in a field's metadata: the name of the column that stores it. Absent for a time that the timestamp represents
exactly."""
_OWN = frozenset((*KEY_COLUMNS, *RESERVED_COLUMNS, SCHEMA_COLUMN))
_ID_BYTES = 6  # eight characters in base64; the chance that two of a thousand schemas share one is 2e-9


@dataclass(frozen=True)
class Definition:
    """A client's schema and its stored columns. `annotated`: the schema; each field's metadata names its column."""

    annotated: pa.Schema

    @cached_property
    def encoded(self) -> bytes:
        """The definition in serialized form."""
        return self.annotated.serialize().to_pybytes()  # type: ignore[no-any-return]

    @classmethod
    def decode(cls, stored: bytes) -> Definition:
        """Parse what `encoded` returned. Raises pyarrow.ArrowInvalid."""
        return cls(pa.ipc.read_schema(pa.py_buffer(stored)))

    @cached_property
    def id(self) -> str:
        """The grouping of its events."""
        return base64.urlsafe_b64encode(hashlib.sha256(self.encoded).digest()[:_ID_BYTES]).decode()

    @cached_property
    def schema(self) -> pa.Schema:
        """The schema as the client sent it."""
        fields = [field.with_metadata(_own_metadata(field) or None) for field in self.annotated]
        return pa.schema(fields, metadata=self.annotated.metadata)

    @cached_property
    def columns(self) -> dict[str, str]:
        """Names of stored columns by field name."""
        return {
            field.name: field.metadata[STORED].decode()
            for field in self.annotated
            if field.metadata and STORED in field.metadata
        }

    # ------------------------------------------------------------ conversion

    def events(self, table: pa.Table) -> pa.Table:
        """Convert records to events. The table has the schema's names and the types in which they are stored.

        Raises InvalidEventError.
        """
        length = len(table)
        columns: dict[str, pa.Array | pa.ChunkedArray] = {
            "space": pa.repeat(pa.scalar(""), length),
            "grouping": pa.repeat(pa.scalar(self.id), length),
            "timestamp": microseconds(table.column(TIME)),
        }
        for name, stored in self.columns.items():
            columns[stored] = table.column(name)
        if length:
            first = pa.array([self.encoded], pa.binary())
            columns[SCHEMA_COLUMN] = pa.chunked_array([pa.concat_arrays([first, pa.nulls(length - 1, pa.binary())])])
        return pa.table(columns)

    def records(self, events: pa.Table, names: Container[str]) -> pa.Table:
        """Convert events back to records, limited to the fields in `names`. Columns missing from the table are null."""
        fields = [field for field in self.schema if field.name in names]
        columns = []
        for field in fields:
            stored = self.columns.get(field.name)
            if field.name == TIME and stored is None:
                columns.append(record_time(events.column("timestamp"), field.type))
            elif stored not in events.column_names:
                columns.append(pa.chunked_array([pa.nulls(len(events), field.type)]))
            else:
                columns.append(restore_layout(_single(events.column(stored)), field.type))
        fields = [field.with_type(column.type) for field, column in zip(fields, columns, strict=True)]
        return pa.table(columns, schema=pa.schema(fields, metadata=self.schema.metadata))


def define(schema: pa.Schema, plain: pa.Schema, taken: Mapping[str, pa.DataType]) -> Definition:
    """Return the definition of a client's schema.

    plain: the same columns as they are appended, with dictionaries and the like unpacked. taken: types of the topic's
    existing columns, by name. Raises InvalidEventError for a schema that plateau does not allow, or that cannot be
    stored.
    """
    _check(schema)
    kinds = stored_types(plain)
    used: set[str] = set()
    fields = []
    for field in schema:
        if field.name == TIME and not _is_ns(field.type):
            fields.append(field.with_metadata(_own_metadata(field) or None))
            continue
        free = (name for name in _names(field.name) if name not in used)
        stored = next(name for name in free if taken.get(name, kinds[field.name]) == kinds[field.name])
        used.add(stored)
        fields.append(field.with_metadata({**_own_metadata(field), STORED: stored.encode()}))
    return Definition(pa.schema(fields, metadata=schema.metadata))


def _own_metadata(field: pa.Field) -> dict[bytes, bytes]:
    """Return the client's metadata of a field, without the key that names our column."""
    return {key: value for key, value in (field.metadata or {}).items() if key != STORED}


def stored_types(plain: pa.Schema) -> dict[str, pa.DataType]:
    """Return the types in which a topic stores columns, by name. Raises InvalidEventError."""
    numbered = pa.schema([pa.field(f"{place}", field.type) for place, field in enumerate(plain)])
    try:
        stored = topic_schema(small_types(numbered), (), binary_keys=False).fields
    except InvalidEventError as error:
        names = ", ".join(
            f"{place} is {name!r}" for place, name in enumerate(plain.names) if f"'{place}'" in error.message
        )
        raise InvalidEventError(error.message + (f" ({names})" if names else ""), hint=error.hint) from None
    return {name: field.type for name, field in zip(plain.names, stored, strict=True)}


def microseconds(times: pa.ChunkedArray) -> pa.ChunkedArray:
    """Convert record times, int64 milliseconds or timestamps of any unit, to event timestamps.

    Nanoseconds are rounded down. Raises InvalidEventError for nulls and for times outside 64 bits of µs.
    """
    if times.null_count:
        row = pc.index(times.is_null(), True).as_py()
        raise InvalidEventError(f"chunk error: column {TIME!r} is null in row {row}", hint="every record needs a time")
    try:
        if pt.is_int64(times.type):
            return pc.multiply_checked(times, 1000).cast(TIMESTAMP_TYPE)
        return _rounded_down(times) if _is_ns(times.type) else times.cast(TIMESTAMP_TYPE)
    except pa.ArrowInvalid:
        raise InvalidEventError(
            f"chunk error: column {TIME!r} has times that do not fit into 64-bit microseconds"
        ) from None


def _rounded_down(times: pa.ChunkedArray) -> pa.ChunkedArray:
    """Convert nanoseconds to microseconds, rounding down before 1970 as well."""
    down = np.floor_divide(times.cast(pa.int64()).to_numpy(), 1000)
    return pa.chunked_array([pa.array(down)]).cast(TIMESTAMP_TYPE)


def record_time(timestamps: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    """Convert event timestamps to record times: milliseconds, rounded down, or any type of timestamps."""
    if pt.is_int64(kind):
        return pa.chunked_array([np.floor_divide(timestamps.cast(pa.int64()).to_numpy(), 1000)])
    return timestamps.cast(kind)


def _single(column: pa.ChunkedArray) -> pa.Array:
    """Return a column as one array."""
    if column.num_chunks == 1:
        return column.chunk(0)
    found = column.combine_chunks()
    return found if isinstance(found, pa.Array) else pa.concat_arrays(found.chunks)


def _check(schema: pa.Schema) -> None:
    if not len(schema) or schema.names[0] != TIME:
        found = repr(schema.names[0][:100]) if len(schema) else "none"
        raise InvalidEventError(
            f"chunk error: column 0 must be {TIME!r}", hint=f"expected int64 milliseconds; the first column is {found}"
        )
    kind = schema.field(0).type
    if not (pt.is_int64(kind) or pt.is_timestamp(kind)):
        raise InvalidEventError(
            f"chunk error: column {TIME} type i64 != {kind}", hint="expected int64 milliseconds, or timestamps"
        )
    for field in schema:
        if _has_null_type(field.type):
            raise InvalidEventError(
                "schema includes null datatypes", hint=f"column {field.name[:100]!r} needs a type: it is {field.type}"
            )


def _has_null_type(kind: pa.DataType) -> bool:
    if pt.is_dictionary(kind) or pt.is_run_end_encoded(kind):
        return _has_null_type(kind.value_type)
    return pt.is_null(kind) or any(_has_null_type(kind.field(place).type) for place in range(kind.num_fields))


def _is_ns(kind: pa.DataType) -> bool:
    return bool(pt.is_timestamp(kind) and kind.unit == "ns")


def _names(name: str) -> Iterator[str]:
    """Yield names under which a column may be stored, the best first."""
    if name not in _OWN:
        yield name
    yield from (f"{name}:{number}" for number in count(2))
