"""Console output of the demo: headings, code, answers, tables of figures."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pandas as pd
from rich import box
from rich.console import Console
from rich.padding import Padding
from rich.progress_bar import ProgressBar
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text

from esformat import Event
from examples.demo.contest import ESDB, Figure, format_ratio
from examples.demo.tour import Answer

ROWS_SHOWN = 6
_PAYLOAD = "data"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_UNITS = ((1e-3, 1e6, "µs"), (1.0, 1e3, "ms"), (float("inf"), 1.0, "s"))


def show_heading(console: Console, text: str) -> None:
    console.print()
    console.rule(Text(text, style="bold"), align="left", style="cyan")


def show_answer(console: Console, answer: Answer) -> None:
    """Show a question, the code for it, the time it took, and its result."""
    console.print()
    console.print(Text(answer.question, style="bold"), Text(f" {format_seconds(answer.seconds)}", style="dim"))
    console.print(Syntax(answer.code, "python", theme="ansi_dark", background_color="default", word_wrap=True))
    console.print(Padding(_render(answer.found), (0, 0, 0, 2), expand=False))


def _render(found: Any) -> Table | Text:
    if isinstance(found, list):
        return _events(found) if found else Text("(none)")
    if isinstance(found, pd.Series):
        return _counts({str(key): int(count) for key, count in found.items()})
    if isinstance(found, pd.DataFrame):
        return _frame(found)
    if isinstance(found, Mapping):
        return _counts(found)
    return Text(f"{found:,}", style="bold cyan")


def _events(events: Sequence[Event]) -> Table:
    """Show events as rows, without columns that are empty or repeat an earlier column."""
    rows = [_event_cells(event) for event in events]
    names = dict.fromkeys(name for row in rows for name in row)
    columns: dict[str, list[str]] = {}
    for name in names:
        cells = [row.get(name, "") for row in rows]
        one_space = name == "space" and len(set(cells)) == 1  # already in the line of code
        if any(cells) and cells not in columns.values() and not one_space:
            columns[name] = cells
    table = _plain_table()
    table.show_header, table.expand = True, _PAYLOAD in columns
    for name in columns:
        table.add_column(name, no_wrap=True, overflow="ellipsis", ratio=1 if name == _PAYLOAD else None)
    for row in zip(*columns.values(), strict=True):
        table.add_row(*map(Text, row))
    return table


def _event_cells(event: Event) -> dict[str, str]:
    """Return an event's cells by heading, the payload last."""
    cells = {"time (UTC)": _format_time(event.timestamp), "space": event.space, "grouping": event.grouping}
    payload = " ".join(f"{name}={value}" for name, value in event.columns.items())
    cells |= event.indexes | {_PAYLOAD: payload if event.data is None else event.data}
    return {name: _as_text(cell) for name, cell in cells.items()}


def _counts(counts: Mapping[Any, int]) -> Table:
    table = _plain_table()
    table.add_column()
    table.add_column(justify="right")
    table.add_column()
    largest = max(counts.values(), default=0)
    ordered = sorted(counts.items(), key=lambda item: (-item[1], str(item[0])))
    for value, count in ordered[:ROWS_SHOWN]:
        bar = ProgressBar(total=largest, completed=count, width=30, complete_style="cyan", finished_style="cyan")
        table.add_row(Text(_as_text(value) or "(empty)"), f"{count:,}", bar)
    if len(ordered) > ROWS_SHOWN:
        table.add_row(Text(f"… and {len(ordered) - ROWS_SHOWN:,} more", style="dim"), "", "")
    return table


def _frame(frame: pd.DataFrame) -> Table:
    table = _plain_table(*frame.columns)
    for row in frame.itertuples(index=False):
        table.add_row(*(Text(str(cell)) for cell in row))
    return table


def show_sizes(console: Console, sizes: Mapping[str, Mapping[str, int]], events: Mapping[str, int]) -> None:
    """Show bytes per event: a row per format, a column per event set."""
    table = _figure_table("bytes per event", *(f"{name}\n{count:,} events" for name, count in events.items()))
    formats = dict.fromkeys(name for each in sizes.values() for name in each)
    for form in formats:
        cells = [f"{sizes[name][form] / events[name]:,.1f}" if form in sizes[name] else "" for name in events]
        table.add_row(form, *cells, style=_style(form))
    console.print(table)


def show_figures(console: Console, figures: Iterable[Figure]) -> None:
    """Show tasks as rows and contestants as columns, each peer with its ratio to the .esdb file."""
    figures = list(figures)
    contestants = list(figures[0].by_contestant)
    table = _figure_table("work", "", *contestants)
    for figure in figures:
        cells = [_cell(figure, name) for name in contestants]
        table.add_row(figure.work, Text(figure.unit, style="dim"), *cells)
    console.print(table)


def _cell(figure: Figure, contestant: str) -> Text:
    value, ours = figure.by_contestant[contestant], figure.by_contestant[ESDB]
    text = Text(f"{value:,.0f}" if value >= 100 else f"{value:,.1f}" if value >= 10 else f"{value:,.2f}")
    if contestant == ESDB:
        text.stylize("bold cyan")
        return text
    advantage = value / ours if figure.less_is_better else ours / value
    return text.append(f"  {format_ratio(advantage)}", style="green" if advantage >= 1 else "yellow")


def format_seconds(seconds: float) -> str:
    """Format a duration in a suitable unit."""
    factor, unit = next((factor, unit) for limit, factor, unit in _UNITS if seconds < limit)
    number = seconds * factor
    return f"{number:.0f} {unit}" if number >= 10 else f"{number:.1f} {unit}"


def _format_time(timestamp_us: int) -> str:
    try:
        moment = _EPOCH + timedelta(microseconds=timestamp_us)
    except OverflowError:  # beyond the year 9999, which int64 microseconds can hold
        return f"{timestamp_us:,} µs"
    return moment.replace(tzinfo=None).isoformat(sep=" ")


def _as_text(cell: Any) -> str:
    return cell.decode("utf-8", "backslashreplace") if isinstance(cell, bytes) else str(cell)


def _plain_table(*headings: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim", show_header=bool(headings))
    for heading in headings:
        table.add_column(heading, no_wrap=True, overflow="ellipsis")
    return table


def _figure_table(first: str, *headings: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, header_style="bold")
    table.add_column(first)
    for heading in headings:
        table.add_column(heading, justify="right")
    return table


def _style(contestant: str) -> str:
    return "bold cyan" if contestant == ESDB else ""
