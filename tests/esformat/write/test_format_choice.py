"""The encoding of columns depends on the events and their order, not on the batches in which they were added."""

from __future__ import annotations

import copy

import pyarrow as pa
import pytest
from clicks import click_table
from effort import examples
from hypothesis import given
from hypothesis import strategies as st
from small_pieces import Pieces, cut_small

from esformat.format.codec import Codec
from esformat.format.schema import make_schema
from esformat.write.format_choice import FormatChoice
from esformat.write.intake import check_table

CLICKS = click_table(6000)
SCHEMA = make_schema(CLICKS.schema, ["type"], binary_keys=False)
TABLE = check_table(CLICKS, SCHEMA)
ORDERED = TABLE.sort_by([("space", "ascending"), ("grouping", "ascending"), ("timestamp", "ascending")])
SIZES = Pieces(sample_bytes=30_000, window_rows=2000)
PLACES = SCHEMA.positions


def chosen(table: pa.Table, cuts: list[int], codec: Codec = Codec.ZSTD) -> tuple:
    """The choices for a table that is added in slices, with all values known at the end."""
    choice = FormatChoice(SCHEMA, codec, None, templates=True)
    for first, last in zip([0, *cuts], [*cuts, len(table)], strict=True):
        choice.observe(table.slice(first, last - first))
    choice.observe_all_values([table])
    made = choice.dictionaries()
    values = {p: None if d.values is None else d.values.to_pylist() for p, d in made.items()}
    return choice.in_order, {p: (d.zstd, values[p], d.templates) for p, d in made.items()}


@examples(25)
@given(st.lists(st.integers(0, 6000), max_size=6).map(sorted), st.booleans())
def test_pieces_do_not_matter(cuts, in_order):
    """The choices are the same for all slices, in order or not."""
    with cut_small(SIZES):
        table = ORDERED if in_order else TABLE
        assert chosen(table, cuts) == chosen(table, [])


def test_what_is_decided():
    """Payloads get templates, few distinct values become codes; all values count."""
    in_order, made = chosen(TABLE, [])
    assert not in_order
    assert set(made) == {PLACES["data"], PLACES["type"], PLACES["country"]}
    assert made[PLACES["type"]] == (b"", sorted(set(TABLE["type"].to_pylist())), None)
    assert len(made[PLACES["country"]][1]) == 30
    assert made[PLACES["data"]][2] is not None
    assert set(chosen(TABLE, [], Codec.LZ4)[1]) == {PLACES["type"], PLACES["country"]}


def test_events_in_order_are_decided_by_the_first():
    """Events after the window change nothing, in order or not; an event out of order within it does."""
    with cut_small(SIZES):
        decided = chosen(ORDERED, [])
        assert decided[0]
        assert chosen(pa.concat_tables([ORDERED.slice(0, 2000), TABLE.slice(100, 900)]), []) == decided
        assert not chosen(pa.concat_tables([ORDERED.slice(0, 1999), ORDERED.slice(0, 1), ORDERED]), [])[0]
        assert not chosen(ORDERED.slice(0, 1999), [])[0]


def test_large_events_make_a_short_window():
    """The window is limited by bytes, too."""
    with cut_small(Pieces(window_rows=10**6, window_bytes=100_000)):
        assert chosen(ORDERED, [])[0]
        assert not chosen(ORDERED.slice(0, 500), [])[0]


@pytest.mark.parametrize("table", [TABLE, ORDERED], ids=["not in order", "in order"])
def test_copies_are_apart(table):
    """A copy and the original do not see each other's later events."""
    with cut_small(SIZES):
        choice = FormatChoice(SCHEMA, Codec.ZSTD, None)
        choice.observe(table.slice(0, 1000))
        other = choice.copy()
        other.observe(CLICKS_BEFORE)
        other.observe_all_values([CLICKS_BEFORE])
        choice.observe(table.slice(1000))
        choice.observe_all_values([table])
        plain = FormatChoice(SCHEMA, Codec.ZSTD, None)
        plain.observe(table)
        plain.observe_all_values([table])
        assert choice.dictionaries() == plain.dictionaries()
        assert copy.copy(other).in_order is False


CLICKS_BEFORE = TABLE.set_column(PLACES["type"] + 3, SCHEMA.arrow.field("type"), pa.array(["other"] * 6000))


def test_long_keys_are_not_sampled_whole():
    """A sample of events with keys of 64 KiB is as small as any."""
    long = TABLE.slice(0, 300).set_column(0, SCHEMA.arrow.field("space"), pa.array(["k" * 65536] * 300))
    choice = FormatChoice(SCHEMA, Codec.ZSTD, None)
    choice.observe(long)
    assert sum(table.nbytes for table in choice._sample._tables) < 200_000
