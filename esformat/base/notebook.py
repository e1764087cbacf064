"""Small HTML tables in which notebooks show open files and query results. Names and values are escaped."""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any

ROWS_SHOWN = 10
_COLUMNS_SHOWN = 20
_CHARACTERS_SHOWN = 80
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def html_facts(title: str, facts: Mapping[str, object]) -> str:
    """An HTML table of names and values."""
    rows = "".join(f"<tr><th>{_text(name)}</th><td>{_text(value)}</td></tr>" for name, value in facts.items())
    return f"<table><caption>{_text(title)}</caption><tbody>{rows}</tbody></table>"


def html_events(title: str, names: Iterable[str], batches: Iterable[Any]) -> str:
    """An HTML table of the first events. Reads no more of `batches` than that takes, then closes them."""
    shown = list(islice(names, _COLUMNS_SHOWN + 1))
    left_out = len(shown) > _COLUMNS_SHOWN
    shown = shown[:_COLUMNS_SHOWN]
    rows: list[tuple[Any, ...]] = []
    for batch in batches:
        first = batch.slice(0, ROWS_SHOWN + 1 - len(rows))
        rows += zip(*[_values(first.column(name)) for name in shown], strict=True)
        if len(rows) > ROWS_SHOWN:
            break
    close = getattr(batches, "close", None)
    if close is not None:
        close()
    if len(rows) > ROWS_SHOWN:
        rows[ROWS_SHOWN:] = [("…",) * len(shown)]
    more = ["…"] * left_out
    head = "".join(f"<th>{_text(name)}</th>" for name in [*shown, *more])
    cells = ("".join(f"<td>{_text(value)}</td>" for value in [*row, *more]) for row in rows)
    body = "".join(f"<tr>{row}</tr>" for row in cells)
    return f"<table><caption>{_text(title)}</caption><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def html_time(micros: int | None) -> str:
    """Microseconds since 1970 as ISO 8601 text; as a number if Python's datetime cannot represent them."""
    try:
        return "" if micros is None else (_EPOCH + timedelta(microseconds=micros)).isoformat()
    except OverflowError:
        return f"{micros} µs"


def _values(column: Any) -> list[Any]:
    """The values of a column; timestamps as text, because Python's datetime cannot represent all of them."""
    import pyarrow as pa  # here: slow to import

    values: list[Any] = (column.cast(pa.string()) if pa.types.is_timestamp(column.type) else column).to_pylist()
    return values


def _text(value: object) -> str:
    if isinstance(value, str):
        text = value
    else:
        text = "" if value is None else f"{value:,}" if type(value) is int else repr(value)
    return html.escape(text if len(text) <= _CHARACTERS_SHOWN else f"{text[: _CHARACTERS_SHOWN - 1]}…")
