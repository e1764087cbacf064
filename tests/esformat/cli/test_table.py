"""Tables contain only what a terminal may show, whatever the data."""

from __future__ import annotations

import pyarrow as pa
from effort import examples
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from esformat.cli.table import _NARROWEST, cut, fitted, printable, show_table


@given(st.text())
def test_printable(text):
    """Printable text has no control characters, line ends or invisible characters."""
    assert printable(text).isprintable()


def test_cells(capfd):
    """Times have no empty fractions, durations have their unit, null is empty, and markup is shown as text."""
    batch = pa.record_batch({
        "t": pa.array([0, 1], pa.timestamp("us", "UTC")),
        "n": [5, None],
        "s": ["[red]x[/red]", None],
        "b": [b"\xff", b""],
        "d": pa.array([3, None], pa.duration("ms")),
    })  # fmt: skip
    assert show_table([batch], batch.schema) == 2
    header, _, first, second = capfd.readouterr().out.splitlines()
    assert header.split() == ["t", "n", "s", "b", "d"]
    assert first.split() == ["1970-01-01T00:00:00Z", "5", "[red]x[/red]", '{"base64":"/w=="}', "3", "ms"]
    assert second.split() == ["1970-01-01T00:00:00.000001Z"]


def shown(monkeypatch, capfd, width, batch, layout="table"):
    """The lines of a table on a terminal of that width."""
    monkeypatch.setattr("esformat.cli.table.is_terminal", lambda stream: True)
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("NO_COLOR", "1")
    show_table([batch], batch.schema, layout)
    return capfd.readouterr().out.splitlines()


def long_rows(**more):
    return pa.record_batch({
        "space": ["customer-1"],
        "grouping": ["web"],
        "timestamp": pa.array([1_700_000_000_123_456], pa.timestamp("us", "UTC")),
        "data": ["begin " + "x" * 500 + " end"],
        "count": [57_123_456_789],
        **more,
    })  # fmt: skip


def test_keys_times_and_numbers_are_whole(monkeypatch, capfd):
    """The longest column is shortened in its middle; the others stay whole, and no line exceeds the terminal."""
    lines = shown(monkeypatch, capfd, 100, long_rows())
    assert all(len(line) <= 100 for line in lines)
    first = lines[2].split()
    assert first[:3] == ["customer-1", "web", "2023-11-14T22:13:20.123456Z"]
    assert first[-1] == "57123456789"
    assert "begin xx" in lines[2]
    assert "x…x" in lines[2]
    assert "xx end" in lines[2]


def test_text_shares_the_room(monkeypatch, capfd):
    """Short text stays whole when another column is long."""
    lines = shown(monkeypatch, capfd, 110, long_rows(country=["Sweden"], url=["https://example.com/" + "a/" * 90]))
    assert all(len(line) <= 110 for line in lines)
    assert "Sweden" in lines[2]
    assert lines[2].count("…") == 2


def test_too_many_columns_are_shown_below_each_other(monkeypatch, capfd):
    """If there are too many columns for any text, each value gets its own line, in full."""
    lines = shown(monkeypatch, capfd, 80, long_rows(**{f"column_{n}": ["some longer text"] for n in range(9)}))
    assert all(len(line) <= 80 for line in lines)
    assert ["column_8", "some", "longer", "text"] in [line.split() for line in lines]
    assert sum(line.count("x") for line in lines) == 500 + 9  # x's of text


def test_wide_and_vertical(monkeypatch, capfd):
    """`wide` and `vertical` shorten nothing, even on a terminal."""
    assert "x" * 500 in shown(monkeypatch, capfd, 80, long_rows(), "wide")[2]
    lines = shown(monkeypatch, capfd, 80, long_rows(), "vertical")
    assert lines[0] == "── 1 ──"
    assert lines[1].split() == ["space", "customer-1"]


@examples(2000)
@given(st.lists(st.integers(0, 300), min_size=1, max_size=9), st.sets(st.integers(0, 8)), st.integers(1, 200))
def test_fitted(natural, kept, room):
    """Widths fit the terminal, only the longest columns are shortened, and none too much. There are no widths only if
    the terminal has no room for them.
    """
    kept = {place for place in kept if place < len(natural)}
    widths = fitted(natural, kept, room)
    room -= 3 * (len(natural) - 1)
    least = [width if place in kept else min(width, _NARROWEST) for place, width in enumerate(natural)]
    assert (widths is None) == (sum(least) > room)
    if widths is None:
        return
    assert sum(widths) <= room
    shortened = [place for place, width in enumerate(natural) if widths[place] != width]
    if not shortened:
        return
    assert not kept & set(shortened)
    narrowest = min(widths[place] for place in shortened)
    assert narrowest >= _NARROWEST
    assert all(narrowest >= widths[place] - 1 for place in range(len(widths)) if place not in kept)
    assert all(widths[place] < natural[place] for place in shortened)
    assert sum(widths) == room


@given(st.text(), st.integers(3, 30))
def test_cut(text, width):
    """Shortened text is at most as wide as requested."""
    assert cell_len(cut(text, width)) <= width
