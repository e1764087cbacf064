"""`Focus`: which columns of a page a client wants: some, all but some, structs flattened, large ones nulled."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.types as pt

from aggregator import InvalidRequestError

ALL = "*"


@dataclass(frozen=True, slots=True)
class Focus:
    """dataset: names, `*` and nothing are all. exclude: names to leave out. separator: flatten structs, joining names.
    max_bytes: of one column in a page; a larger one is nulls.
    """

    dataset: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    separator: str | None = None
    max_bytes: int | None = None

    def roots(self, names: list[str]) -> list[str]:
        """The top-level columns that are needed. Raises InvalidRequestError for one that is not there."""
        if self.separator is not None:
            return names
        return self._chosen(names)

    def select(self, table: pa.Table) -> pa.Table:
        """The columns that are wanted, in the order in which they were asked for. Raises InvalidRequestError."""
        if self.separator is not None:
            table = _flatten(table, self.separator)
        return table.select(self._chosen(table.column_names))

    def without_large(self, table: pa.Table) -> pa.Table:
        """The table with nulls in place of columns that are too large."""
        if self.max_bytes is None:
            return table
        for place, (field, column) in enumerate(zip(table.schema, table.columns, strict=True)):
            if column.nbytes > self.max_bytes:
                table = table.set_column(place, field.with_nullable(True), pa.nulls(len(table), field.type))
        return table

    def _chosen(self, names: list[str]) -> list[str]:
        wanted: dict[str, None] = {}
        for name in self.dataset or (ALL,):
            wanted |= dict.fromkeys(names if name == ALL else [_known(name, names)])
        for name in self.exclude:
            wanted.pop(name, None)
        if not wanted:
            raise InvalidRequestError("no column is left", hint=f"the columns are {', '.join(names)}"[:1000])
        return list(wanted)


def _known(name: str, names: list[str]) -> str:
    if name not in names:
        raise InvalidRequestError(
            f"there is no column {name[:100]!r}", hint=f"the columns are {', '.join(names)}"[:1000]
        )
    return name


def _flatten(table: pa.Table, separator: str) -> pa.Table:
    """The table with the fields of structs, at any depth, as columns; nulls of a struct are nulls of its fields."""
    while any(pt.is_struct(kind) for kind in table.schema.types):
        names: list[str] = []
        columns: list[pa.ChunkedArray] = []
        for field, column in zip(table.schema, table.columns, strict=True):
            if pt.is_struct(field.type):
                names += [f"{field.name}{separator}{field.type.field(i).name}" for i in range(field.type.num_fields)]
                columns += column.flatten()
            else:
                names.append(field.name)
                columns.append(column)
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise InvalidRequestError(
                f"flattened, two columns are called {twice[:100]!r}", hint="give another dataset.separator"
            )
        table = pa.table(columns, names=names).replace_schema_metadata(table.schema.metadata)
    return table
