"""The schema of a segment: its columns, in Arrow's terms and in the JSON of the metadata block."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import pyarrow as pa
import pyarrow.types as pt

from esformat.core.blocks import FIRST_COLUMN_CHUNK, TIMESTAMPS_CHUNK
from esformat.errors import CorruptSegmentError, InvalidEventError, UsageError
from esformat.format.layout import MAX_COLUMNS

KEY_COLUMNS = ("space", "grouping", "timestamp")
ROW_COUNT_COLUMNS = ("grouping",)  # column to read if the caller asks for none: the directory has it, mostly empty
TIMESTAMP_TYPE = pa.timestamp("us", "UTC")
DATA_COLUMN = "data"
MAX_NESTING = 32
MAX_FIXED_SIZE = 1 << 24  # bytes of a fixed-size binary, elements of a fixed-size list

MOST_SELECTED = 16  # column selections whose Arrow schema an EventSchema caches
MOST_SAME = 64  # stored schemas that are cached, and the most columns of a schema that is cached

Json = dict[str, Any]

_SIMPLE: dict[str, pa.DataType] = {
    name: getattr(pa, "bool_" if name == "bool" else name)()
    for name in (
        "null", "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16",
        "float32", "float64", "date32", "date64", "binary", "string", "large_binary", "large_string",
        "month_day_nano_interval",
    )
}  # fmt: skip
_SIMPLE_NAMES = {kind: name for name, kind in _SIMPLE.items()}


@dataclass(frozen=True, slots=True)
class Field:
    """One payload or index column: its name, logical Arrow type, and whether it has a secondary index."""

    name: str
    type: pa.DataType
    nullable: bool = True
    indexed: bool = False


@dataclass(frozen=True)
class EventSchema:
    """The columns of a segment other than space, grouping and timestamp, and whether keys are text or binary."""

    fields: tuple[Field, ...]
    binary_keys: bool = False

    @cached_property
    def key_type(self) -> pa.DataType:
        """Arrow type of the space and grouping columns."""
        return pa.binary() if self.binary_keys else pa.string()

    @cached_property
    def arrow(self) -> pa.Schema:
        """The Arrow schema of scan results: space, grouping, timestamp, then the other columns."""
        keys = [
            pa.field("space", self.key_type, nullable=False),
            pa.field("grouping", self.key_type, nullable=False),
            pa.field("timestamp", TIMESTAMP_TYPE, nullable=False),
        ]
        return pa.schema(keys + [pa.field(f.name, f.type, f.nullable) for f in self.fields])

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The names of all columns, in the order of scan results."""
        return tuple(self.arrow.names)

    def select(self, columns: Sequence[str] | None) -> pa.Schema:
        """The Arrow schema of some columns; of all if None."""
        if columns is None or columns == self.names:
            return self.arrow
        names = tuple(columns)
        found = self._selected.get(names)
        if found is None:
            found = pa.schema([self.arrow.field(name) for name in names])
            if len(self._selected) < MOST_SELECTED:
                self._selected[names] = found
        return found

    @cached_property
    def _selected(self) -> dict[tuple[str, ...], pa.Schema]:
        """The cached schemas of selected columns."""
        return {}

    @cached_property
    def indexes(self) -> tuple[str, ...]:
        """Names of the indexed columns, in schema order."""
        return tuple(f.name for f in self.fields if f.indexed)

    @cached_property
    def positions(self) -> dict[str, int]:
        """The position of each payload and index column in `fields`."""
        return {f.name: i for i, f in enumerate(self.fields)}

    @cached_property
    def data_place(self) -> int | None:
        """The position of the column `data` in `fields`; None if there is no such column."""
        return self.positions.get(DATA_COLUMN)

    @cached_property
    def plain_data(self) -> bool:
        """Whether the column `data`, if there is one, has the usual type, binary."""
        return self.data_place is None or self.fields[self.data_place].type == pa.binary()

    @cached_property
    def direct(self) -> bool:
        """Whether events consist only of `data`, indexed columns and numbers, so that creating them needs no Arrow."""
        from esformat.format.node import Shape, shape_of  # imports much that only readers need

        others = (field for place, field in enumerate(self.fields) if place != self.data_place)
        return self.plain_data and all(f.indexed or shape_of(f.type) is Shape.INTS for f in others)

    @cached_property
    def attribute_chunks(self) -> list[int]:
        """The chunks, in a data block, of the columns other than `data`."""
        return [FIRST_COLUMN_CHUNK + place for place in range(len(self.fields)) if place != self.data_place]

    def chunks(self, names: Iterable[str]) -> tuple[int, ...]:
        """The chunks, in a data block, of some columns; keys are read from the directory."""
        return tuple(sorted({self._chunks[name] for name in names if name in self._chunks}))

    @cached_property
    def data_chunks(self) -> tuple[int, ...]:
        """All chunks of a data block but the one of keys, which only repair reads."""
        return tuple(sorted(self._chunks.values()))

    @cached_property
    def _chunks(self) -> dict[str, int]:
        columns = {field.name: FIRST_COLUMN_CHUNK + place for place, field in enumerate(self.fields)}
        return {"timestamp": TIMESTAMPS_CHUNK, **columns}

    def to_json(self) -> Json:
        """The schema as the metadata block stores it."""
        columns = [
            {"name": f.name, "type": type_to_json(f.type), "nullable": f.nullable, "indexed": f.indexed}
            for f in self.fields
        ]
        return {"keys": "binary" if self.binary_keys else "text", "columns": columns}

    @classmethod
    def from_json(cls, stored: Any) -> EventSchema:
        """Decode what `to_json` wrote. Raises CorruptSegmentError."""
        try:
            keys = {"text": False, "binary": True}[stored["keys"]]
            fields = tuple(
                Field(_name(c["name"]), type_from_json(c["type"]), _flag(c["nullable"]), _flag(c["indexed"]))
                for c in stored["columns"]
            )
            _check_fields(fields)
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise CorruptSegmentError(f"the stored schema breaks the format: {error!r}") from None
        return _same(fields, keys) if len(fields) <= MOST_SAME else cls(fields, keys)


_same = lru_cache(MOST_SAME)(EventSchema)
"""Returns one EventSchema for equal schemas: segments often have the same one, and then share its cached properties."""


def type_to_json(kind: pa.DataType, depth: int = 0) -> Any:
    """A logical type as JSON: a name, or an object for types with parameters.

    Raises InvalidEventError for a type that cannot be stored.
    """
    if depth > MAX_NESTING:
        raise InvalidEventError(f"types that nest deeper than {MAX_NESTING} levels cannot be stored")
    if kind in _SIMPLE_NAMES:
        return _SIMPLE_NAMES[kind]
    if pt.is_timestamp(kind):
        return {"timestamp": kind.unit, "zone": kind.tz}
    if pt.is_time(kind):
        return {"time": kind.unit}
    if pt.is_duration(kind):
        return {"duration": kind.unit}
    if pt.is_decimal128(kind) or pt.is_decimal256(kind):
        return {"decimal": [kind.precision, kind.scale], "bits": kind.bit_width}
    if pt.is_fixed_size_binary(kind) and kind.byte_width < MAX_FIXED_SIZE:
        return {"fixed_size_binary": kind.byte_width}

    def child(field: pa.Field) -> Json:
        _check_name(field.name)
        return {"name": field.name, "type": type_to_json(field.type, depth + 1), "nullable": field.nullable}

    if pt.is_map(kind):
        return {"map": [type_to_json(kind.key_type, depth + 1), child(kind.item_field)], "sorted": kind.keys_sorted}
    if pt.is_fixed_size_list(kind) and kind.list_size < MAX_FIXED_SIZE:
        return {"fixed_size_list": child(kind.value_field), "size": kind.list_size}
    if pt.is_list(kind):
        return {"list": child(kind.value_field)}
    if pt.is_large_list(kind):
        return {"large_list": child(kind.value_field)}
    if pt.is_struct(kind):
        return {"struct": [child(kind.field(i)) for i in range(kind.num_fields)]}
    raise InvalidEventError(f"values of type {kind} cannot be stored", hint="cast the column first")


def type_from_json(stored: Any, depth: int = 0) -> pa.DataType:
    """Decode what `type_to_json` wrote. Raises KeyError, TypeError, ValueError or OverflowError for anything else."""
    if depth > MAX_NESTING:
        raise ValueError("types nest too deep")
    if isinstance(stored, str):
        return _SIMPLE[stored]

    def field(child: Any) -> pa.Field:
        return pa.field(_name(child["name"]), type_from_json(child["type"], depth + 1), _flag(child["nullable"]))

    if "timestamp" in stored:
        return pa.timestamp(stored["timestamp"], stored["zone"])
    if "time" in stored:
        return pa.time32(stored["time"]) if stored["time"] in ("s", "ms") else pa.time64(stored["time"])
    if "duration" in stored:
        return pa.duration(stored["duration"])
    if "decimal" in stored:
        precision, scale = stored["decimal"]
        return _decimal(precision, scale, stored["bits"])
    if "fixed_size_binary" in stored:
        return pa.binary(_bounded(stored["fixed_size_binary"]))
    if "map" in stored:
        key, item = stored["map"]
        return pa.map_(type_from_json(key, depth + 1), field(item), keys_sorted=_flag(stored["sorted"]))
    if "fixed_size_list" in stored:
        return pa.list_(field(stored["fixed_size_list"]), _bounded(stored["size"]))
    if "list" in stored:
        return pa.list_(field(stored["list"]))
    if "large_list" in stored:
        return pa.large_list(field(stored["large_list"]))
    if "struct" in stored:
        return pa.struct([field(child) for child in stored["struct"]])
    raise ValueError(f"unknown type {stored!r}")


def _name(stored: Any) -> str:
    if not isinstance(stored, str) or "\0" in stored:
        raise ValueError(f"the name {stored!r}")
    stored.encode()  # raises ValueError for unpaired surrogates
    return stored


def _flag(stored: Any) -> bool:
    if not isinstance(stored, bool):
        raise ValueError(f"{stored!r} is neither true nor false")
    return stored


def _decimal(precision: Any, scale: Any, bits: Any) -> pa.DataType:
    if type(precision) is not int or type(scale) is not int:
        raise ValueError(f"a decimal of precision {precision!r} and scale {scale!r}")
    return {128: pa.decimal128, 256: pa.decimal256}[bits](precision, scale)


def _check_fields(fields: Sequence[Field]) -> None:
    names = {*KEY_COLUMNS, *(f.name for f in fields)}
    if len(fields) > MAX_COLUMNS or len(names) != len(KEY_COLUMNS) + len(fields):
        raise ValueError(f"{len(fields)} columns, too many or some of the same name")
    for f in fields:
        if (f.indexed and not _is_indexable(f.type)) or (pt.is_null(f.type) and not f.nullable):
            raise ValueError(f"a column {f.name!r} of type {f.type}, indexed or without nulls")


def _bounded(size: Any) -> int:
    if not isinstance(size, int) or not 0 <= size < MAX_FIXED_SIZE:
        raise ValueError(f"size {size!r} is out of bounds")
    return size


def lacks_arrow_type(kind: Any) -> bool:
    """Whether DuckDB hands values of its type, or parts of them, to Arrow as something else: the largest UHUGEINT as
    -1, times with a zone without it, BIT, BIGNUM and VARIANT as the bytes that it has in memory.
    """
    if kind.id in ("list", "array", "struct", "tuple", "map", "union"):
        return any(lacks_arrow_type(part) for name, part in kind.children if name != "size" or kind.id != "array")
    return kind.id in ("uhugeint", "time with time zone", "bit", "bignum", "variant")


def without_keys(schema: pa.Schema) -> pa.Schema:
    """The payload and index columns, as for `esformat.create`."""
    return pa.schema([field for field in schema if field.name not in KEY_COLUMNS])


def normalise_type(kind: pa.DataType) -> pa.DataType:
    """The logical type that is stored for `kind`: dictionaries, run-end encodings, views and extension types become
    plain types, decimals of fewer than 128 bits become decimals of 128 bits.
    """
    return changed_type(kind, _plain_type)


def _plain_type(kind: pa.DataType) -> pa.DataType:
    if pt.is_dictionary(kind) or pt.is_run_end_encoded(kind):
        return normalise_type(kind.value_type)
    if kind == pa.string_view():
        return pa.string()
    if kind == pa.binary_view():
        return pa.binary()
    if isinstance(kind, pa.BaseExtensionType):
        return normalise_type(kind.storage_type)
    if pt.is_decimal(kind) and kind.bit_width < 128:
        return pa.decimal128(kind.precision, kind.scale)
    return kind


def changed_type(kind: pa.DataType, change: Callable[[pa.DataType], pa.DataType]) -> pa.DataType:
    """Apply `change` to a type, or to the leaf types within lists, maps and structs."""

    def field(child: pa.Field) -> pa.Field:
        return pa.field(child.name, changed_type(child.type, change), child.nullable)

    if pt.is_map(kind):
        return pa.map_(changed_type(kind.key_type, change), field(kind.item_field), keys_sorted=kind.keys_sorted)
    if pt.is_fixed_size_list(kind):
        return pa.list_(field(kind.value_field), kind.list_size)
    if pt.is_list(kind) or pt.is_list_view(kind):
        return pa.list_(field(kind.value_field))
    if pt.is_large_list(kind) or pt.is_large_list_view(kind):
        return pa.large_list(field(kind.value_field))
    if pt.is_struct(kind):
        return pa.struct([field(kind.field(i)) for i in range(kind.num_fields)])
    return change(kind)


def check_unique(names: Sequence[str]) -> None:
    """Raise InvalidEventError if two columns have the same name."""
    if len(set(names)) != len(names):
        doubled = sorted(name for name, times in Counter(names).items() if times > 1)
        raise InvalidEventError(f"column names must be unique, found twice: {', '.join(doubled)}")


def make_schema(arrow: pa.Schema, indexes: Sequence[str], *, binary_keys: bool) -> EventSchema:
    """Create the schema of events with the columns of `arrow` (without the key columns), with `indexes` on some of
    them.

    Raises InvalidEventError for a column that cannot be stored or indexed, UsageError for an invalid list of indexes.
    """
    if len(set(indexes)) != len(indexes):
        raise UsageError(f"an index is named twice in {list(indexes)}")
    if len(arrow) > MAX_COLUMNS:
        raise InvalidEventError(f"{len(arrow)} columns are more than the {MAX_COLUMNS} that a segment can have")
    check_unique(arrow.names)
    fields = []
    for column in arrow:
        if column.name in KEY_COLUMNS:
            continue
        kind = normalise_type(column.type)
        try:
            _check_name(column.name)
            type_to_json(kind)
        except InvalidEventError as error:
            raise InvalidEventError(f"column {column.name!r}: {error.message}", hint=error.hint) from None
        indexed = column.name in indexes
        if indexed:
            _check_indexable(column.name, kind)
        fields.append(Field(column.name, kind, column.nullable, indexed))
    missing = [name for name in indexes if name not in arrow.names]
    if missing:
        raise UsageError(f"no column {missing[0]!r} to index", hint=f"the columns are {', '.join(arrow.names)}")
    return EventSchema(tuple(fields), binary_keys)


def check_names(fields: Iterable[pa.Field], column: str | None = None) -> None:
    """Check the names of fields and of all fields nested in them. `column` is the column that contains them, None for
    columns. Raises InvalidEventError.
    """
    for field in fields:
        _check_name(field.name, column)
        check_names((field.type.field(place) for place in range(field.type.num_fields)), column or field.name)


def _check_name(name: str, column: str | None = None) -> None:
    if "\0" in name:  # where other programs would end the names that Arrow hands them
        hint = "rename the column" if column is None else f"rename it; it is within column {column!r}"
        raise InvalidEventError(f"a name cannot have a NUL character: {name!r}", hint=hint)


def _is_indexable(kind: pa.DataType) -> bool:
    return bool(pt.is_string(kind) or pt.is_large_string(kind) or pt.is_integer(kind) or pt.is_boolean(kind))


def _check_indexable(name: str, kind: pa.DataType) -> None:
    if not _is_indexable(kind):
        raise InvalidEventError(
            f"column {name!r} of type {kind} cannot be indexed", hint="index string, integer or boolean columns"
        )


def default_schema(indexes: Sequence[str], *, binary_keys: bool) -> EventSchema:
    """The schema of events added one by one: `data` and one nullable string column per index."""
    columns = [pa.field(DATA_COLUMN, pa.binary(), nullable=False)]
    columns += [pa.field(name, pa.string()) for name in indexes]
    return make_schema(pa.schema(columns), indexes, binary_keys=binary_keys)
