"""Tables of templates and rows of them for properties, and the values that they represent."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import read_esdb
from hypothesis import strategies as st

from esformat.core.rendering import TemplateRows
from esformat.core.templates import DATE_FORMS
from esformat.format.codec import Codec, make_compressor
from esformat.format.encoding import encode_node
from esformat.format.node import EncodeContext
from esformat.format.packing import encode_ints
from esformat.format.templates import Kind, Template, TemplateTable, Variable

Row = tuple[int, dict[int, Any]] | None
"""The template of a value, counted from 0, and the values of its variables; None for null."""

INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
LITERALS = st.sampled_from([b"", b",", b'"', b"a", b"-", b"0", b"literal ", b"x" * 17, b"y" * 33])
TEXTS = st.one_of(st.binary(max_size=5), LITERALS, st.binary(min_size=31, max_size=35))
_UNITS_OF_A_DAY = [units for _, units, _ in read_esdb.DATE_FORMS]


@st.composite
def variables(draw: st.DrawFn) -> Variable:
    """A variable of any kind."""
    kind = draw(st.sampled_from(list(Kind)))
    most = {Kind.PADDED: 18, Kind.DECIMAL: 18, Kind.HEX: 16}.get(kind)
    parameter = draw(st.integers(1, most)) if most else draw(st.integers(0, DATE_FORMS - 1)) if kind is Kind.DATE else 0
    values = draw(st.lists(TEXTS, min_size=1, max_size=5, unique=True)) if kind is Kind.ENUM else []
    return Variable(kind, parameter, tuple(values))


@st.composite
def tables(draw: st.DrawFn) -> TemplateTable:
    """Some templates; the last one matches any value."""
    held = draw(st.lists(variables(), max_size=5))
    made = []
    for _ in range(draw(st.integers(0, 4))):
        slots = draw(st.lists(st.integers(0, len(held) - 1), max_size=5)) if held else []
        made.append(Template(tuple(draw(LITERALS) for _ in range(len(slots) + 1)), tuple(slots)))
    return TemplateTable((*held, Variable(Kind.STRING)), (*made, Template((b"", b""), (len(held),))))


def values_of(variable: Variable) -> st.SearchStrategy[Any]:
    """The values of a variable."""
    if variable.kind is Kind.STRING:
        return TEXTS
    if variable.kind is Kind.ENUM:
        return st.integers(0, len(variable.values) - 1)
    if variable.kind is Kind.PADDED:
        return st.integers(0, 10**variable.parameter - 1)
    if variable.kind is Kind.HEX:
        return st.integers(0, 16**variable.parameter - 1).map(read_esdb.signed)
    if variable.kind is Kind.DATE:
        units = _UNITS_OF_A_DAY[variable.parameter]
        return st.integers(-719_162 * units, 2_932_897 * units - 1)
    return INT64


@st.composite
def rows_of(draw: st.DrawFn, table: TemplateTable) -> list[Row]:
    """Values of a table's templates, and nulls."""
    rows: list[Row] = []
    for _ in range(draw(st.integers(0, 8))):
        number = draw(st.integers(-1, len(table.templates) - 1))
        shown = table.templates[number].slots if number >= 0 else ()
        values = {v: draw(values_of(table.variables[v])) for v in dict.fromkeys(shown)}
        rows.append((number, values) if number >= 0 else None)
    return rows


def text_of(table: TemplateTable, row: Row) -> bytes | None:
    """The value of a row according to the independent reader."""
    if row is None:
        return None
    template, values = table.templates[row[0]], row[1]
    texts = [read_esdb.Variable(*_plain(table.variables[v])).text(values[v]) for v in template.slots]
    return template.literals[0] + b"".join(a + b for a, b in zip(texts, template.literals[1:], strict=True))


def _plain(variable: Variable) -> tuple[int, int, list[bytes]]:
    return int(variable.kind), variable.parameter, list(variable.values)


Columns = list[Any]
"""The values of each variable: numbers, or for strings a pair of edges and bytes."""


def columns_of(table: TemplateTable, rows: list[Row]) -> Columns:
    """The values of a table's variables in some rows."""
    columns: Columns = []
    for number, variable in enumerate(table.variables):
        held = [row[1][number] for row in rows if row is not None and number in row[1]]
        if variable.kind is Kind.STRING:
            columns.append((np.cumsum([0, *map(len, held)]).astype(np.int64), b"".join(held)))
        else:
            columns.append(np.array(held, np.int64))
    return columns


def stored_columns(columns: Columns, bits_cost: float = 1.0) -> bytes:
    """Columns as in a node of templates, where they follow its codes."""
    plain = make_compressor(Codec.NONE)
    context = EncodeContext(plain, plain)
    return b"".join(
        encode_node(pa.array([column[1][a:b] for a, b in pairwise(column[0].tolist())], pa.binary()), context)
        if isinstance(column, tuple)
        else encode_ints(column, plain, bits_cost=bits_cost)
        for column in columns
        if (len(column[0]) > 1 if isinstance(column, tuple) else len(column))
    )


def codes_of(rows: list[Row]) -> npt.NDArray[np.int64]:
    """The template of each row, counted from 1; 0 for null."""
    return np.array([0 if row is None else row[0] + 1 for row in rows], np.int64)


def opened_rows(
    table: TemplateTable, columns: Columns, codes: npt.NDArray[np.int64], bits_cost: float = 1.0
) -> tuple[TemplateRows, list[Any]]:
    """Rows opened after two other bytes, and their strings; numbers stored in planes are decoded."""
    body = b"ab" + stored_columns(columns, bits_cost)
    rows = TemplateRows(table.compiled(), body, 2, codes, 1 << 20)
    assert rows.end == len(body)
    given_strings = []
    for v, _, _, first, last in rows.needed(0, rows.rows):
        if table.variables[v].kind is Kind.STRING:
            given_strings.append((v, 0, *columns[v]))
        else:
            assert (first, last) == (0, len(columns[v]))
            rows.hold(v, columns[v])
    return rows, given_strings
