"""Batches as a table for people: columns of text, long values cut at the edge of the terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence

import pyarrow as pa
import pyarrow.compute as pc
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from esformat.cli.console import is_terminal, say
from esformat.json_text import as_text

ROWS_SHOWN = 50

_PIPE_WIDTH = 10_000  # nothing is cut where nobody looks at a terminal


def show_table(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> int:
    """Print `batches`, which should be few rows, and return how many there were."""
    rows = [row for batch in batches for row in zip(*map(_cells, batch.columns), strict=True)]
    numbers = {place for place, field in enumerate(schema) if _is_number(field.type)}
    show_rows(schema.names, rows, right=numbers)
    return len(rows)


def show_rows(names: Sequence[str], rows: Iterable[Sequence[str]], *, right: Iterable[int] = ()) -> None:
    """Print `rows` of text under `names`; the columns numbered `right` are numbers."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    aligned = set(right)
    for place, name in enumerate(names):
        table.add_column(Text(name), justify="right" if place in aligned else "left", no_wrap=True, overflow="ellipsis")
    for row in rows:
        table.add_row(*(Text(printable(cell)) for cell in row))
    console = Console() if is_terminal(sys.stdout) else Console(width=_PIPE_WIDTH)
    with console.capture() as written:  # rich has its own idea of how a broken pipe ends
        console.print(table)
    say(written.get().rstrip("\n"))


def printable(text: str) -> str:
    """Give `text` with what a terminal would act upon, or break a line at, written as an escape."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def _cells(column: pa.Array) -> list[str]:
    if pa.types.is_timestamp(column.type):
        text = pc.replace_substring_regex(as_text(column), r"\.0+(Z?)$", r"\1")
    else:
        text = as_text(column)
    return [cell or "" for cell in text.to_pylist()]


def _is_number(type_: pa.DataType) -> bool:
    return bool(pa.types.is_integer(type_) or pa.types.is_floating(type_) or pa.types.is_decimal(type_))
