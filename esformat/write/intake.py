"""Check what callers pass to a writer, and convert it to the segment's schema. Nothing is stored here."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from esformat.errors import InvalidEventError
from esformat.event import to_microseconds
from esformat.format.arrays import is_bytes, is_numeric
from esformat.format.layout import MAX_FRAME_BYTES, MAX_KEY_BYTES
from esformat.format.schema import (
    DATA_COLUMN,
    KEY_COLUMNS,
    EventSchema,
    Field,
    check_names,
    lacks_arrow_type,
    normalise_type,
)
from esformat.write.lossless import are_misread, array_of, losing
from esformat.write.plain_array import IMPOSSIBLE_HINT, impossible_value, plain_column


def to_arrow(table: Any) -> pa.Table:
    """Convert anything with the Arrow C stream or array interface to a pyarrow table. Raises InvalidEventError."""
    if isinstance(table, pa.Table):
        return table
    if isinstance(table, pa.RecordBatch):
        return pa.Table.from_batches([table])
    if hasattr(table, "__arrow_c_stream__"):
        return stream_of(table).read_all()
    if hasattr(table, "__arrow_c_array__"):
        with _table_errors(table):
            return pa.Table.from_batches([pa.record_batch(table)])
    raise InvalidEventError(
        f"cannot read events from {type(table).__name__}",
        hint="give a pyarrow table, or anything with __arrow_c_stream__ (pandas, Polars, DuckDB …)",
    )


def stream_of(table: Any) -> pa.RecordBatchReader:
    """The batches of anything with the Arrow C stream; those of a pandas frame include its index if that has a name.

    pandas exports an index as a column unless it counts in equal steps, and whether an index of integers does so
    depends on its values. Raises InvalidEventError for anything that is not a table, and for a name that the stream
    would cut. Reading the stream raises its own errors.
    """
    library = type(table).__module__.partition(".")[0].lstrip("_")
    if isinstance(table, pa.RecordBatch | pa.RecordBatchReader):
        check_names(table.schema)
    elif library == "polars":
        kinds = getattr(table, "schema", {})
        check_names(pa.field(name, _names_in(kind)) for name, kind in kinds.items())
        _check_kinds(kinds)
    elif library == "duckdb":
        _check_kinds(dict(zip(table.columns, table.types, strict=True)))
    elif library == "pandas" and hasattr(table, "columns"):
        _check_kinds(table.dtypes)
        with _table_errors(table), warnings.catch_warnings():
            warnings.filterwarnings("ignore", r"(Series|DatetimeIndex)\.values ")  # of pyarrow; pandas ignores it too
            made = pa.Table.from_pandas(table)  # pandas exports this table as its stream, but that cuts names
            name = table.index.name
            if name is not None and str(name) not in made.column_names:
                made = pa.Table.from_pandas(table.assign(**{str(name): table.index}))
        check_names(made.schema)
        _check_objects(table, made.schema)
        return made.to_reader()
    with _table_errors(table):
        return pa.RecordBatchReader.from_stream(table)


def _names_in(kind: Any) -> pa.DataType:
    """An Arrow type with the names within a Polars type. Polars itself ends the process for a name with NUL."""
    if hasattr(kind, "fields"):
        return pa.struct([pa.field(field.name, _names_in(field.dtype)) for field in kind.fields])
    return pa.list_(_names_in(kind.inner)) if hasattr(kind, "inner") else pa.null()


@contextmanager
def _table_errors(table: Any) -> Iterator[None]:
    """Raise InvalidEventError for a library's errors on exporting a table: mixed types, duplicate names, no columns."""
    try:
        yield
    except (pa.ArrowException, OverflowError, TypeError, ValueError) as error:
        reasons = ": ".join(map(str, reversed(error.args)))  # of pandas: what is wrong, then in which column
        mixed = len(error.args) > 1 or isinstance(error, OverflowError)
        raise InvalidEventError(
            f"{type(table).__name__} cannot be read as a table: {reasons}",
            hint="give each column one type, such as table.astype({'price': str})" if mixed else None,
        ) from error


def _check_kinds(kinds: Any) -> None:
    """Refuse column types that Arrow does not have, because the stream would contain something else:

    - an Object of Polars, in which it stores UUIDs: an address
    - a period of pandas: a count of months, or of another unit, since 1970
    - some types of DuckDB: see `lacks_arrow_type`
    """
    for name, kind in kinds.items():
        text = str(kind)
        lacking = text in ("Object", "Int128", "UInt128") or text.startswith("period[")
        if lacking or (hasattr(kind, "id") and lacks_arrow_type(kind)):
            raise InvalidEventError(
                f"column {name!r} is {kind}, which Arrow does not have", hint="cast it first, for example to text"
            )


def _check_objects(frame: Any, made: pa.Schema) -> None:
    """Refuse pandas columns of Python objects that Arrow misreads, such as datetimes beside dates, as dates."""
    for place, kind in enumerate(frame.dtypes):
        field = made.field(place)
        risky = kind.name == "object" and (pt.is_floating(field.type) or pt.is_temporal(field.type))
        if risky and are_misread(list(frame.iloc[:, place].dropna()), field.type):
            raise InvalidEventError(
                f"column {field.name!r} has objects of several types, not all of type {field.type}",
                hint="convert them to one type first",
            )


def check_table(table: pa.Table, schema: EventSchema) -> pa.Table:
    """`table` with the columns of `schema`, in its order and types, with keys and timestamps checked.

    A missing grouping becomes "", missing nullable columns become null. Anything else that does not fit raises
    InvalidEventError, which names the column and, if there is one, the first bad row.
    """
    if len(set(table.column_names)) != len(table.column_names):
        raise InvalidEventError("column names must be unique", hint="rename one of the columns of the same name")
    try:
        table.validate(full=True)
    except pa.ArrowInvalid as error:
        value = impossible_value(error, table.column_names)
        if value is not None:
            raise InvalidEventError(value, hint=IMPOSSIBLE_HINT) from None
        raise InvalidEventError(f"the table is broken: {error}") from None
    for name in ("space", "timestamp"):
        if name not in table.column_names:
            raise InvalidEventError(
                f"the table has no column {name!r}", hint=f"its columns are {', '.join(table.column_names)}; rename one"
            )
    known = {*KEY_COLUMNS, *schema.positions}
    unknown = [name for name in table.column_names if name not in known]
    if unknown:
        raise InvalidEventError(
            f"column {unknown[0]!r} is not in the segment's schema",
            hint=f"drop it, or create the file with it; the schema is {', '.join(schema.arrow.names)}",
        )
    columns = [_key_column(table, "space", schema), _key_column(table, "grouping", schema), _timestamps(table)]
    places = {name: place for place, name in enumerate(table.column_names)}
    columns += [_payload_column(table, places.get(field.name), field) for field in schema.fields]
    return pa.table(columns, schema=schema.arrow)


def _plain(column: pa.ChunkedArray, name: str) -> pa.ChunkedArray:
    """A column in its logical type and the plain layout: see `plain_array`."""
    try:
        return plain_column(column, normalise_type(column.type))
    except (pa.ArrowException, ValueError) as error:
        raise InvalidEventError(f"column {name!r} of type {column.type} cannot be read: {error}") from None


def _first_row(mask: Any) -> int:
    return int(pc.index(mask, True).as_py())


def _key_column(table: pa.Table, name: str, schema: EventSchema) -> pa.ChunkedArray:
    kind = schema.key_type
    if name not in table.column_names:
        empty = b"" if schema.binary_keys else ""
        return pa.chunked_array([pa.repeat(pa.scalar(empty, kind), len(table))])
    column = _plain(table.column(name), name)
    given = column.type
    textual = pt.is_string(given) or pt.is_large_string(given)
    if (pt.is_null(given) and len(table)) or not (
        textual or pt.is_binary(given) or pt.is_large_binary(given) or pt.is_null(given)
    ):
        raise InvalidEventError(
            f"column {name!r} must contain {'bytes' if schema.binary_keys else 'text'}, not {column.type}",
            hint="cast it first",
        )
    if column.null_count:
        row = _first_row(column.is_null())
        raise InvalidEventError(f"column {name!r} is null in row {row}", hint="every event needs one; fill or drop it")
    try:
        keys = column.cast(kind)
    except pa.ArrowInvalid as error:
        raise InvalidEventError(
            f"column {name!r} holds bytes that are not UTF-8 text: {error}",
            hint='give text, or create the file or topic with keys="binary"',
        ) from None
    lengths = pc.binary_length(keys)
    longest = pc.max(lengths).as_py() or 0
    if longest > MAX_KEY_BYTES:
        row = _first_row(pc.greater(lengths, MAX_KEY_BYTES))
        raise InvalidEventError(f"{name} in row {row} has {longest} bytes, more than {MAX_KEY_BYTES}")
    return keys


def _timestamps(table: pa.Table) -> pa.ChunkedArray:
    column = _plain(table.column("timestamp"), "timestamp")
    kind = column.type
    if column.null_count:
        raise InvalidEventError(
            f"column 'timestamp' is null in row {_first_row(column.is_null())}", hint="fill or drop it"
        )
    if pt.is_timestamp(kind):
        if kind.tz is None:
            raise InvalidEventError(
                "column 'timestamp' has no time zone",
                hint='say which: cast it to pyarrow.timestamp("us", "UTC"), or in pandas .dt.tz_localize("UTC")',
            )
        try:
            return column.cast(pa.timestamp("us", "UTC"))
        except pa.ArrowInvalid as error:
            raise InvalidEventError(
                f"column 'timestamp' does not fit microseconds: {error}",
                hint="keep the nanoseconds in a separate column and floor this one"
                if kind.unit == "ns"
                else "64-bit microseconds cover some 292,000 years before and after 1970",
            ) from None
    if not (pt.is_integer(kind) or pt.is_null(kind)):  # null: there are no rows
        raise InvalidEventError(
            f"column 'timestamp' must be a timestamp with a zone or int64 microseconds, not {kind}",
            hint="cast it first",
        )
    try:
        return column.cast(pa.int64()).cast(pa.timestamp("us", "UTC"))
    except pa.ArrowInvalid as error:
        raise InvalidEventError(f"column 'timestamp' does not fit 64 bits: {error}") from None


_FAMILIES = (
    is_numeric,
    is_bytes,
    pt.is_timestamp,
    pt.is_date,
    pt.is_time,
    pt.is_duration,
    pt.is_nested,
)
"""Groups of types that are converted to each other if no value is lost; a number never becomes text implicitly."""


def _payload_column(table: pa.Table, place: int | None, field: Field) -> pa.ChunkedArray:
    name, kind = field.name, field.type
    if place is None:
        if field.nullable:
            return pa.chunked_array([pa.nulls(len(table), kind)])
        if name == DATA_COLUMN and pt.is_binary(kind):
            return pa.chunked_array([pa.repeat(pa.scalar(b"", kind), len(table))])
        raise InvalidEventError(f"the table has no column {name!r}", hint="the segment's schema requires it")
    column = _plain(table.column(place), name)
    if column.null_count and not field.nullable:
        raise InvalidEventError(
            f"column {name!r} is null in row {_first_row(column.is_null())}", hint="the schema forbids it"
        )
    if column.type == kind:
        return column
    try:
        if not pt.is_null(column.type) and not any(family(column.type) and family(kind) for family in _FAMILIES):
            raise pa.ArrowInvalid("cast it first")
        return plain_column(column, kind)
    except pa.ArrowException as error:
        raise InvalidEventError(
            f"column {name!r} of type {column.type} does not fit the schema's {kind}: {error}"
        ) from None


class EventRows:
    """Events added one at a time, checked when added and converted to tables many at a time."""

    FLUSH_EVENTS = 16384
    FLUSH_BYTES = 64 << 20

    def __init__(self, schema: EventSchema, most_bytes: int = FLUSH_BYTES) -> None:
        """`most_bytes`: the memory to fill before a flush, if less than FLUSH_BYTES."""
        self._schema = schema
        self._most_bytes = min(most_bytes, self.FLUSH_BYTES)
        self._others = [f for f in schema.fields if f.name != DATA_COLUMN and not f.indexed]
        self._indexed = [f for f in schema.fields if f.name != DATA_COLUMN and f.indexed]
        self._losing = {f.name: losing(f.type) for f in schema.fields}
        self._payload = next((f for f in schema.fields if f.name == DATA_COLUMN), None)
        self._clear()

    def _clear(self) -> None:
        self._columns: dict[str, list[Any]] = {name: [] for name in self._schema.arrow.names}
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._columns["space"])

    @property
    def full(self) -> bool:
        """Whether it is time to call `take`."""
        return len(self) >= self.FLUSH_EVENTS or self._bytes >= self._most_bytes

    def add(
        self,
        space: Any,
        data: Any,
        timestamp: Any,
        grouping: Any,
        indexes: Mapping[str, Any] | None,
        columns: Mapping[str, Any] | None,
    ) -> None:
        """Check and keep one event. Raises InvalidEventError for an event that does not fit, and keeps none of it."""
        row: dict[str, Any] = {
            "space": self._key(space, "space"),
            "grouping": self._key(grouping, "grouping"),
            "timestamp": to_microseconds(timestamp),
        }
        if self._payload is not None:
            row[DATA_COLUMN] = self._data(data, self._payload)
        elif data is not None:
            raise InvalidEventError("the segment's schema has no 'data' column", hint="give columns= instead")
        row |= self._values(indexes, self._indexed, "index")
        row |= self._values(columns, self._others, "column")
        for name, value in row.items():
            self._columns[name].append(value)
        self._bytes += sum(map(_held_bytes, row.values()))

    def _key(self, key: Any, what: str) -> str | bytes:
        binary = self._schema.binary_keys
        if not isinstance(key, str | bytes | bytearray | memoryview):
            raise InvalidEventError(f"{what} must be {'bytes' if binary else 'text'}, not {type(key).__name__}")
        try:
            stored = key.encode() if isinstance(key, str) else bytes(key)
            shown = stored if binary else key if isinstance(key, str) else stored.decode()
        except UnicodeError:
            hint = "encode it first" if binary else 'create the file with keys="binary"'
            raise InvalidEventError(f"{what} {key!r} is not UTF-8 text", hint=hint) from None
        if len(stored) > MAX_KEY_BYTES:
            raise InvalidEventError(f"{what} has {len(stored)} bytes, more than {MAX_KEY_BYTES}")
        return shown

    def _data(self, data: Any, field: Field) -> Any:
        if not (pt.is_binary(field.type) or pt.is_large_binary(field.type)):
            return self._value(data, field, "column")
        if data is None:
            return None if field.nullable else b""
        if isinstance(data, str):
            try:
                data = data.encode()
            except UnicodeError:
                raise InvalidEventError(
                    "data is text that cannot be encoded as UTF-8", hint="encode it first"
                ) from None
        if not isinstance(data, bytes | bytearray | memoryview):
            raise InvalidEventError(
                f"data must be bytes, not {type(data).__name__}", hint="encode it first, e.g. as JSON"
            )
        if len(data) > MAX_FRAME_BYTES:
            raise InvalidEventError(f"data has {len(data)} bytes, more than {MAX_FRAME_BYTES}")
        return bytes(data)

    def _values(self, given: Mapping[str, Any] | None, fields: list[Field], what: str) -> dict[str, Any]:
        given = given or {}
        names = [field.name for field in fields]
        for name in given:
            if name not in names:
                known = ", ".join(names) if names else "none"
                raise InvalidEventError(f"unknown {what} {name!r}", hint=f"declared when the file was created: {known}")
        return {field.name: self._value(given.get(field.name), field, what) for field in fields}

    def _value(self, value: Any, field: Field, what: str) -> Any:
        if value is None:
            if not field.nullable:
                raise InvalidEventError(f"{what} {field.name!r} must not be null")
            return None
        try:
            if type(value) is str and pt.is_string(field.type):
                value.encode()  # raises for unpaired surrogates, much faster than Arrow does
                return value
            made = array_of([value], field.type)[0] if pt.is_nested(field.type) else pa.scalar(value, field.type)
            if self._losing[field.name](value):
                raise ValueError(f"{value!r} cannot be stored exactly: {made.as_py()!r} would remain")
            # Python's times have neither nanoseconds nor all years, and pandas returns NaT for the smallest value.
            return made.value if pt.is_timestamp(field.type) or pt.is_duration(field.type) else made.as_py()
        except (pa.ArrowException, OverflowError, UnicodeError, TypeError, ValueError) as error:
            if pt.is_string(field.type) and not isinstance(value, str | bytes):  # Arrow's error is "Expected bytes"
                reason, hint = f", not {type(value).__name__}", "convert it to text, or create the file with a schema"
            else:
                reason, hint = f": {error}", None
            raise InvalidEventError(f"{what} {field.name!r} must be {field.type}{reason}", hint=hint) from None

    def take(self) -> pa.Table:
        """Return the events so far as a table of the schema, and remove them."""
        arrow = self._schema.arrow
        arrays = []
        for field in arrow:
            values = self._columns[field.name]
            if field.name == "timestamp":
                arrays.append(pa.array(np.array(values, dtype=np.int64)).cast(field.type))
            else:
                arrays.append(pa.array(values, field.type))
        self._clear()
        return pa.table(arrays, schema=arrow)


def _held_bytes(value: Any) -> int:
    """Approximate memory of a value, in bytes."""
    if isinstance(value, bytes | str):
        return 50 + len(value)
    if isinstance(value, list | tuple):
        return 60 + sum(map(_held_bytes, value))
    if isinstance(value, dict):
        return 60 + sum(map(_held_bytes, value.values()))
    return 32
