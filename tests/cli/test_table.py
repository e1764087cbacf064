"""Tables hold what a terminal may show, whatever the data."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from esformat.cli.table import printable, show_table


@given(st.text())
def test_printable(text):
    """No control character, no line end, nothing invisible."""
    assert printable(text).isprintable()


def test_cells(capfd):
    """Times without empty fractions, numbers to the right, null as nothing, markup as the text it is."""
    batch = pa.record_batch({
        "t": pa.array([0, 1], pa.timestamp("us", "UTC")),
        "n": [5, None],
        "s": ["[red]x[/red]", None],
        "b": [b"\xff", b""],
    })  # fmt: skip
    assert show_table([batch], batch.schema) == 2
    header, _, first, second = capfd.readouterr().out.splitlines()
    assert header.split() == ["t", "n", "s", "b"]
    assert first.split() == ["1970-01-01T00:00:00Z", "5", "[red]x[/red]", '{"base64":"/w=="}']
    assert second.split() == ["1970-01-01T00:00:00.000001Z"]
