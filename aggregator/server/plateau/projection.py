"""`Focus`: the columns of a page that a client asks for: some, all but some, flattened structs, no large values."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.types as pt

from aggregator import InvalidRequestError
from aggregator.server.plateau.layouts import restore_layout
from esformat.parts import normalise_type, plain_array

ALL = "*"


@dataclass(frozen=True, slots=True)
class Focus:
    """A choice of columns.

    dataset: columns, or paths to members of structs, joined with the separator; `*` and an empty tuple mean all.
    exclude: columns and paths to leave out.
    separator: flatten structs, joining names with it.
    max_bytes: values of a column from one append become nulls if they are larger.
    """

    dataset: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    separator: str | None = None
    max_bytes: int | None = None

    def roots(self, names: list[str]) -> list[str]:
        """Return the top-level columns that are needed. Raises InvalidRequestError for one that does not exist."""
        return list(dict.fromkeys(path[0] for path in self._paths(names)))

    def select(self, table: pa.Table) -> pa.Table:
        """Return the chosen columns in the requested order. A struct that is the only one is replaced by its members.

        Raises InvalidRequestError for a path to nothing, and if two columns have the same name.
        """
        if not (self.dataset or self.exclude or self.separator is not None):
            return table
        found: list[tuple[str, pa.Field, pa.ChunkedArray]] = []
        for path in self._paths(table.column_names):
            name = (self.separator or "").join(path)
            if name not in self.exclude:
                found += self._flattened(name, *_at(table, path))
        if len(found) == 1 and pt.is_struct(found[0][1].type):
            _, field, column = found[0]
            found = [(member.name, member, values) for member, values in _members(field, column)]
        names = [name for name, _, _ in found]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise InvalidRequestError(
                f"flattening creates a duplicate column {twice[:100]!r}", hint="set another dataset.separator"
            )
        if not names:
            raise InvalidRequestError(
                "no columns remain", hint=f"the columns are {', '.join(table.column_names)}"[:1000]
            )
        schema = pa.schema([field.with_name(name) for name, field, _ in found], table.schema.metadata)
        return pa.table([column for _, _, column in found], schema=schema)

    def without_large(self, table: pa.Table, cuts: Sequence[int]) -> pa.Table:
        """Replace columns that are too large by nulls, separately in each piece between two of the rows `cuts`."""
        if self.max_bytes is None:
            return table
        spans = [(begin, end - begin) for begin, end in pairwise(sorted({0, *cuts, len(table)}))]
        for place, (field, column) in enumerate(zip(table.schema, table.columns, strict=True)):
            pieces = [column.slice(*span) for span in spans]
            if any(piece.nbytes > self.max_bytes for piece in pieces):
                kept = [
                    pa.nulls(len(piece), field.type) if piece.nbytes > self.max_bytes else piece for piece in pieces
                ]
                chunks = [chunk for piece in kept for chunk in getattr(piece, "chunks", (piece,))]
                table = table.set_column(place, field.with_nullable(True), pa.chunked_array(chunks, field.type))
        return table

    def _paths(self, names: list[str]) -> list[tuple[str, ...]]:
        """Return the requested paths, without duplicates. A column whose name contains the separator is found by its
        name.
        """
        paths: dict[tuple[str, ...], None] = {}
        for asked in self.dataset or (ALL,):
            if asked == ALL:
                paths |= dict.fromkeys((name,) for name in names)
            elif asked in names or not self.separator:
                paths[(asked,)] = None
            else:
                paths[tuple(asked.split(self.separator))] = None
        for path in paths:
            if path[0] not in names:
                raise _missing(path[:1])
        return list(paths)

    def _flattened(
        self, name: str, field: pa.Field, column: pa.ChunkedArray
    ) -> list[tuple[str, pa.Field, pa.ChunkedArray]]:
        """Return the column, or with a separator the members of a struct at any depth in its place."""
        if self.separator is None or not pt.is_struct(field.type):
            return [(name, field, column)]
        found = []
        for member, values in _members(field, column):
            joined = f"{name}{self.separator}{member.name}"
            if joined not in self.exclude:
                found += self._flattened(joined, member, values)
        return found


def _at(table: pa.Table, path: tuple[str, ...]) -> tuple[pa.Field, pa.ChunkedArray]:
    """Return the field and column at a path. Raises InvalidRequestError."""
    field, column = table.schema.field(path[0]), table.column(path[0])
    for place, name in enumerate(path[1:], 1):
        if not pt.is_struct(field.type):
            raise InvalidRequestError(f"invalid path: not a struct array: {json.dumps(path[:place])}")
        members = {member.name: (member, values) for member, values in _members(field, column)}
        if name not in members:
            raise _missing(path[: place + 1])
        field, column = members[name]
    return field, column


def _missing(path: tuple[str, ...]) -> InvalidRequestError:
    return InvalidRequestError(f"invalid path: key not found: {json.dumps(path, ensure_ascii=False)}"[:1000])


def _members(field: pa.Field, column: pa.ChunkedArray) -> list[tuple[pa.Field, pa.ChunkedArray]]:
    """Return the members of a struct; they are null where it is."""
    chunks = [_flatten(chunk) for chunk in column.chunks]
    return [
        (
            member.with_nullable(member.nullable or field.nullable),
            pa.chunked_array([chunk[place] for chunk in chunks], member.type),
        )
        for place, member in enumerate(field.type)
    ]


def _flatten(array: pa.StructArray) -> list[pa.Array]:
    """`StructArray.flatten`, which gives run-end-encoded members a validity bitmap that such arrays cannot have."""
    found: list[pa.Array] = array.flatten()
    for place, member in enumerate(array.type):
        if pt.is_run_end_encoded(member.type):
            found[place] = array.field(place)
            if array.null_count:
                values = plain_array(found[place], normalise_type(member.type))
                rows = pa.array(np.arange(len(array)), mask=np.asarray(array.is_null()))
                found[place] = restore_layout(values.take(rows), member.type)
    return found
