"""What compiled code looks up for questions about a space, beside models of a line each, and arguments just outside."""

from __future__ import annotations

import copy
import itertools
from array import array
from types import SimpleNamespace
from typing import Any

import pytest
from effort import examples
from hypothesis import example, given
from hypothesis import strategies as st

import esformat
from esformat.core.opened import (
    KnownParts,
    Opened,
    Query,
    ScanRows,
    Shelf,
    SpaceRows,
    Stretch,
    first_of,
    oldest_first,
    part_of,
)

MOST = (1 << 63) - 1
BLOCKS = [0, 4, 9, 10]  # where the blocks of the leaf begin, and its end


class Held(Opened):
    """One leaf of three blocks; of each block, the codes of a column, less a base."""

    def __init__(
        self, codes: bytes = bytes(10), base: int = 0, counts: Any = (3, 7), groupings: Any = (b"", b"g")
    ) -> None:
        self.use("a.esdb", Shelf(), Shelf(), SimpleNamespace(), SimpleNamespace())
        self.positions, self.shown_type, self.announce = {"type": 0}, str, None
        self.blocks = [
            SimpleNamespace(kept_codes={0: (base, codes[a:b])}, dictionary=1) for a, b in itertools.pairwise(BLOCKS)
        ]
        edges = [sum(counts[:n]) for n in range(len(counts) + 1)]
        self.only = SimpleNamespace(
            spaces=SimpleNamespace(places_of=lambda key: (0, len(counts)) if key == b"s" else (0, 0)),
            run_rows=array("q", edges),
            groupings=groupings,
            has_groupings=any(groupings),
            block_rows=array("q", BLOCKS),
            block_of=lambda row: sum(edge <= row for edge in BLOCKS) - 1,
            first_block=0,
        )

    def _missing_leaf(self, number: int) -> Any:
        return self.only

    def _missing_block(self, leaf: Any, number: int) -> Any:
        return self.blocks[number]

    def _missing_codes(self, dictionary: int, place: int) -> Any:
        return SimpleNamespace(codes={"a": 1, "b": 2, "z": 300})


class Rows:
    """Makes lists of row numbers within the block."""

    def stretch(self, block: Any, run_start: int, low: int, high: int) -> Any:
        return (run_start, list(range(low, high)))

    def picked(self, block: Any, run_start: int, rows: list[int]) -> Any:
        return (run_start, rows)


def test_shelves_mark_what_is_found():
    """What was found may stay; what was not leaves no mark."""
    shelf = Shelf()
    shelf.values["a"] = 1
    assert (shelf.find("a"), shelf.find("b"), shelf.used) == (1, None, {"a"})


@examples(100)
@given(
    st.binary(min_size=10, max_size=10), st.sampled_from([0, 1, -(1 << 63), 250]), st.sampled_from("abzq"), st.data()
)
def test_rows_with_a_value(codes, base, value, data):
    """The rows whose byte and base are the value's code."""
    reader = Held(codes, base)
    block = data.draw(st.integers(0, 2))
    stored = codes[BLOCKS[block] : BLOCKS[block + 1]]
    low = data.draw(st.integers(0, len(stored)))
    high = data.draw(st.integers(low, len(stored)))
    code = {"a": 1, "b": 2, "z": 300}.get(value, -1)
    model = [row for row in range(low, high) if stored[row] + base == code]
    assert reader.rows_with(reader.blocks[block], "type", value, low, high) == model


@pytest.mark.parametrize(("low", "high"), [(-1, 1), (0, 5), (3, 2), (MOST, MOST), (0, MOST)])
def test_rows_that_a_block_lacks(low, high):
    """The block has four."""
    reader = Held()
    with pytest.raises(ValueError, match="does not have the rows"):
        reader.rows_with(reader.blocks[0], "type", "a", low, high)
    reader.blocks[0].kept_codes.clear()
    assert reader.rows_with(reader.blocks[0], "type", "a", 0, 4) is None


@pytest.mark.parametrize(
    ("first", "last", "limit", "reverse", "found"),
    [
        (4, 9, None, False, [((0, [0, 1, 2, 3, 4]))]), (5, 9, None, False, [(1, [1, 2, 3, 4])]),
        (3, 9, 2, True, [(0, [3, 4])]), (3, 9, 1, False, [(3, [3])]), (3, 9, 2, False, None), (3, 9, None, False, None),
        (9, 9, None, False, None), (4, 9, 0, False, None), (10, 11, None, False, None), (-1, 3, None, False, None),
        (0, 99, None, False, None),
    ],
)  # fmt: skip
def test_rows_of_one_block(first, last, limit, reverse, found):
    """Those of one block come by the short way; any others, and rows that the leaf does not have, by none."""
    stretch = Stretch(0, first, last, first)
    scan = ScanRows(Held(), Query(None, None, reverse, limit), lambda: [stretch], (first, last))
    made = scan.near_parts(Rows(), None, None)
    assert (None if made is None else list(made)) == found


@examples(100)
@given(st.binary(min_size=10, max_size=10), st.integers(0, 10), st.integers(0, 10), st.booleans())
@example(codes=b"\1" * 10, one=1, two=10, reverse=True)
@example(codes=b"\1" * 10, one=1, two=10, reverse=False)
def test_matching_rows(codes, one, two, reverse):
    """Of each block that has some, in the direction of the question."""
    first, last = min(one, two), max(one, two)
    codes = bytes(code % 3 for code in codes)
    narrowed = SimpleNamespace(unmet=(("type", "a"),), rows=None, blocks=None, nothing=False)
    query = Query(None, None, reverse, None, None, (("type", "a"),))
    scan = ScanRows(Held(codes), query, lambda: [Stretch(0, first, last, first)], (first, last))
    asked = scan.near_parts(Rows(), lambda *_: narrowed, None)
    if first == last:
        return
    model = []
    for a, b in itertools.pairwise(BLOCKS):
        rows = [row - a for row in range(max(a, first), min(b, last)) if codes[row] == 1]
        model += [(max(first - a, 0), rows)] if rows else []
    assert list(asked) == (model[::-1] if reverse else model)


@pytest.mark.parametrize(("first", "last"), [(-1, 3), (3, 11), (10, 12), (MOST - 1, MOST)])
def test_matching_rows_outside(first, last):
    """A leaf that does not hold the rows."""
    narrowed = SimpleNamespace(unmet=(("type", "a"),), rows=None, blocks=None, nothing=False)
    query = Query(conditions=(("type", "a"),))
    scan = ScanRows(Held(), query, lambda: [Stretch(0, first, last, first)], (first, last))
    with pytest.raises(ValueError, match="does not hold the rows"):
        list(scan.near_parts(Rows(), lambda *_: narrowed, None))


def test_runs_of_a_space():
    """A run that goes on in the next leaf is one, and keeps its beginning."""
    found = SpaceRows(Held(), "s", b"s", [0, 1])
    assert (found.key, found.num_events) == ("s", 20)
    again = SpaceRows(Held(groupings=(b"", b"")), b"s", b"s", [0])
    assert (again.key, again._groupings) == ("s", [(b"", 10)])
    assert [(s.leaf, s.first, s.last, s.run_start) for s in again._stretches] == [(0, 0, 3, 0), (0, 3, 10, 0)]
    assert not SpaceRows(Held(), "t", b"t", [0]).num_events


def test_more_runs_than_rows():
    """A leaf whose keys are more than its runs."""
    reader = Held()
    reader.only.run_rows = array("q", [0, 3])
    with pytest.raises(ValueError, match="fewer runs"):
        SpaceRows(reader, "s", b"s", [0])


@pytest.mark.parametrize(
    ("limit", "columns", "name", "value", "known"),
    [
        (None, None, None, None, True), (0, None, None, None, True), (MOST, None, None, None, True),
        (True, None, None, None, False), (-1, None, None, None, False), (MOST + 1, None, None, None, False),
        (1.0, None, None, None, False), (None, ("data",), None, None, True), (None, ["data"], None, None, False),
        (None, ("type",), None, None, False), (None, None, "type", "a", True), (None, None, "type", "b", False),
        (None, None, {"type": "a"}, None, False), (None, None, "id", 1, False),
    ],
)  # fmt: skip
def test_parts_that_were_checked(limit, columns, name, value, known):
    """Nothing that was not checked passes for what was."""
    parts = KnownParts()
    parts.remember(("data",), "type", "a")
    parts.remember(None, "id", 1)
    query = parts.query(None, None, 1, limit, columns, name, value)
    assert (query is not None) == known
    if query is not None:
        assert (query.limit, query.columns, query.reverse, query.filtered) == (limit, columns, True, name is not None)
    assert parts.query(0, None, False, None, None) is None
    assert parts.query(None, 0, False, None, None) is None


def test_other_questions_of_a_query():
    """Each differs in what its name says."""
    query = Query(1, 2, True, 3, ("data",), (("type", "a"),))
    assert query.described() == ["start=1", "end=2", "limit=3", "type='a'", "reverse"]
    assert oldest_first(query).described() == ["start=1", "end=2", "type='a'"]
    assert first_of(query, None, ("type",)).columns == ("type",)
    assert (query.covers(1, 1), query.covers(1, 2), query.misses(-5, 0), query.misses(2, 9)) == (
        True,
        False,
        True,
        True,
    )


def test_part_of_a_stretch():
    """Only its rows become fewer."""
    part = part_of(Stretch(4, 10, 20, 5), 12, 99)
    assert (part.leaf, part.first, part.last, part.run_start) == (4, 12, 20, 5)


def test_a_span_has_two_ends():
    """Compiled code looks at both."""
    with pytest.raises(ValueError, match="two ends"):
        ScanRows(Held(), Query(), list, (1,))


def test_keys_of_another_kind():
    """Bytes that are no text, in a file whose keys are text."""
    with pytest.raises(esformat.CorruptSegmentError, match="not UTF-8") as refused:
        Held().shown(b"\xff")
    assert refused.value.path == "a.esdb"


def test_copies_of_a_scan(tmp_path):
    """A copy has the same rows, and a size of its own."""
    with esformat.create(tmp_path / "a.esdb") as out:
        out.add(space="s", timestamp=1, data=b"x")
    with esformat.open(tmp_path / "a.esdb") as segment:
        scan = segment["s"].scan()
        assert list(copy.copy(scan)) == list(scan) == list(scan.in_batches_of(1))
