"""The output of the demo: figures with their ratios, and events without empty or constant columns."""

from __future__ import annotations

import io

import pandas as pd
import pytest
from rich.console import Console

from esformat.event import make_event
from examples.demo.contest import DUCKDB, ESDB, PARQUET, Figure
from examples.demo.screen import format_seconds, show_answer, show_figures, show_sizes
from examples.demo.tour import Answer


@pytest.fixture
def console():
    return Console(file=io.StringIO(), width=100)


def printed(console):
    return [line.rstrip() for line in console.file.getvalue().splitlines() if line.strip()]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.0000123, "12 µs"), (0.0000012, "1.2 µs"), (0.0015, "1.5 ms"), (0.25, "250 ms"), (1.0, "1.0 s"), (75.0, "75 s")],
)
def test_seconds(seconds, text):
    """Durations have a suitable unit."""
    assert format_seconds(seconds) == text


def test_events(console):
    """Markup in keys and payloads is shown as text; a single space, and empty or constant columns, are left out."""
    events = [
        make_event("[red]", "ada", -1, b"\xff[/bold]", {"who": "ada", "kind": "x"}, {}),
        make_event("[red]", "bob", 2**62, b"{}", {"who": "bob"}, {}),
    ]
    show_answer(console, Answer("What [of] it", "segment['[red]']", events, 0.001))
    assert printed(console) == [
        "What [of] it  1.0 ms",
        "segment['[red]']",
        "  time (UTC)                    grouping  kind  data",
        "  1969-12-31 23:59:59.999999    ada       x     \\xff[/bold]",
        "  4,611,686,018,427,387,904 µs  bob             {}",
    ]


def test_payload_columns(console):
    """Events without a bytes payload show their columns."""
    events = [make_event("a", "", 0, None, {}, {"price": 1.5}), make_event("b", "", 0, None, {}, {"price": 2})]
    show_answer(console, Answer("q", "code", events, 1.0))
    assert printed(console)[2:] == [
        "  time (UTC)           space  data",
        "  1970-01-01 00:00:00  a      price=1.5",
        "  1970-01-01 00:00:00  b      price=2",
    ]


@pytest.mark.parametrize("found", [{}, [], {"": 3}, 1_234, pd.Series({"x": 2}), pd.DataFrame({"a": [1]})])
def test_every_kind_of_answer(console, found):
    """Every kind of result can be shown, including none."""
    show_answer(console, Answer("q", "code", found, 1.0))
    assert printed(console)[:2] == ["q  1.0 s", "code"]


def test_many_counts(console):
    """Of many values the most frequent are shown, with the number of the others."""
    show_answer(console, Answer("q", "code", {f"v{at}": at + 1 for at in range(1_010)}, 1.0))
    lines = printed(console)
    assert lines[2].split()[:2] == ["v1009", "1,010"]
    assert lines[-1].strip() == "… and 1,004 more"


def test_figures(console):
    """A ratio above one always favours the .esdb file, for times and for rates."""
    figures = [
        Figure("read", "µs", True, {ESDB: 20.0, PARQUET: 500.0, DUCKDB: 10.0}),
        Figure("write", "M/s", False, {ESDB: 2.0, PARQUET: 1.0, DUCKDB: 4.0}),
    ]
    show_figures(console, figures)
    rows = [line.split() for line in printed(console)[2:]]
    assert rows == [
        ["read", "µs", "20.0", "500", "25", "×", "10.0", "0.50", "×"],
        ["write", "M/s", "2.00", "1.00", "2.00", "×", "4.00", "0.50", "×"],
    ]


def test_sizes(console):
    """Sizes are bytes per event; a format that was not written has no figure."""
    show_sizes(console, {"a": {ESDB: 100, PARQUET: 50}, "b": {ESDB: 900}}, {"a": 10, "b": 30})
    assert [line.split() for line in printed(console)[-2:]] == [[ESDB, "10.0", "30.0"], [PARQUET, "5.0"]]
