"""Tables for people, as wide as the terminal: keys, times and numbers in full, long text cut in the middle."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence

import pyarrow as pa
import pyarrow.compute as pc
from rich import box
from rich.cells import cell_len, set_cell_size
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from esformat.cli.console import is_terminal, say
from esformat.format.arrays import is_numeric
from esformat.format.json_text import as_text

ROWS_SHOWN = 50

_KEYS = ("space", "grouping", "timestamp", "ts", "partition", "record_index")
_LONGEST_KEY = 40  # cells; longer keys are cut like other text
_NARROWEST = 8  # cells; with less room for a text column, the layout becomes vertical
_PIPE_WIDTH = 10_000  # outside a terminal, nothing is cut


def show_table(batches: Iterable[pa.RecordBatch], schema: pa.Schema, layout: str = "table") -> int:
    """Print `batches`, which should be few rows, as one of TABLES, and return the number of rows."""
    rows = [row for batch in batches for row in zip(*map(_cells, batch.columns), strict=True)]
    numbers = {place for place, field in enumerate(schema) if is_numeric(field.type)}
    times = {place for place, field in enumerate(schema) if pa.types.is_temporal(field.type)}
    show_rows(schema.names, rows, right=numbers, whole=times, layout=layout)
    return len(rows)


def show_rows(
    names: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    right: Iterable[int] = (),
    whole: Iterable[int] = (),
    layout: str = "table",
) -> None:
    """Print `rows` of text under `names`. Columns in `right` are right-aligned; they and `whole` are never cut."""
    clean = [[printable(cell) for cell in row] for row in rows]
    fitting = is_terminal(sys.stdout) and layout != "wide"
    console = Console() if fitting else Console(width=_PIPE_WIDTH)
    with console.capture() as written:  # rich handles a broken pipe differently
        for part in _parts(names, clean, set(right), set(whole), layout, console.width if fitting else None):
            console.print(part)
    say("\n".join(line.rstrip() for line in written.get().rstrip("\n").split("\n")))


def _parts(
    names: Sequence[str],
    rows: Sequence[Sequence[str]],
    right: set[int],
    whole: set[int],
    layout: str,
    room: int | None,
) -> Iterable[RenderableType]:
    natural = [max(map(cell_len, column)) for column in zip(names, *rows, strict=True)]
    keys = {place for place, name in enumerate(names) if name in _KEYS and natural[place] <= _LONGEST_KEY}
    widths: list[int] | None = natural
    if room is not None and layout != "vertical":
        widths = fitted(natural, right | whole | keys, room) or fitted(natural, right | whole, room)
    if layout == "vertical" or widths is None:
        return _vertical(names, rows)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for place, name in enumerate(names):
        justify = "right" if place in right else "left"
        table.add_column(Text(cut(name, widths[place])), justify=justify, no_wrap=True, width=widths[place])  # type: ignore[arg-type]
    for row in rows:
        table.add_row(*(Text(cut(cell, width)) for cell, width in zip(row, widths, strict=True)))
    return [table]


def fitted(natural: Sequence[int], kept: set[int], room: int) -> list[int] | None:
    """Choose column widths that fit `room`: keep those of `kept`, shorten the others as needed, longest first.

    None if a shortened column would become too narrow.
    """
    left = room - 3 * (len(natural) - 1) - sum(natural[place] for place in kept)
    widths = list(natural)
    others = sorted((place for place in range(len(natural)) if place not in kept), key=natural.__getitem__)
    for done, place in enumerate(others):
        share = left // (len(others) - done)
        if share < min(natural[place], _NARROWEST):
            return None
        widths[place] = min(natural[place], share)
        left -= widths[place]
    return widths if left >= 0 else None


def cut(text: str, width: int) -> str:
    """Shorten `text` to `width` cells by cutting the middle, since beginning and end say more."""
    if cell_len(text) <= width:
        return text
    ending = (width - 1) // 2
    return f"{set_cell_size(text, width - 1 - ending)}…{set_cell_size(text[::-1], ending)[::-1]}"


def _vertical(names: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterable[RenderableType]:
    """Render each row as a block of lines, one name and value per line."""
    for number, row in enumerate(rows, 1):
        yield Text(f"── {number:,} ──")
        lines = Table.grid(padding=(0, 2))
        lines.add_column(no_wrap=True)
        lines.add_column(overflow="fold")
        for name, cell in zip(names, row, strict=True):
            lines.add_row(Text(name), Text(cell))
        yield lines


def printable(text: str) -> str:
    """Return `text` with control characters and line breaks written as escapes."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def _cells(column: pa.Array) -> list[str]:
    if pa.types.is_timestamp(column.type):
        text = pc.replace_substring_regex(as_text(column), r"\.0+(Z?)$", r"\1")
    else:
        text = as_text(column)
    if pa.types.is_duration(column.type):
        text = pc.binary_join_element_wise(text, column.type.unit, " ")
    return [cell or "" for cell in text.to_pylist()]
