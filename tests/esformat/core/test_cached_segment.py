"""Lookups in compiled code for queries of one space agree with short models; arguments out of range are refused."""

from __future__ import annotations

import copy
import itertools
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from data_blocks import data_block
from effort import examples
from hypothesis import example, given
from hypothesis import strategies as st

import esformat
from esformat.core.blocks import Chunks
from esformat.core.cached_segment import (
    CachedSegment,
    CheckedQueries,
    Query,
    RowSpan,
    ScanRows,
    SpaceRows,
    find_space,
    first_of,
    oldest_first,
    part_of,
)
from esformat.core.caches import Shelf
from esformat.core.leaves import Leaf
from esformat.format.codec import Codec, Decompressor, make_compressor
from esformat.format.data_block import Runs
from esformat.format.directory import BlockSpan, LeafEntry, encode_leaf, encode_root, open_leaf, open_root
from esformat.format.frame import decode_block
from esformat.format.layout import BlockHandle, BlockKind
from esformat.format.node import DecodeContext, EncodeContext

MOST = (1 << 63) - 1
BLOCKS = [0, 4, 9, 10]  # where the blocks of the leaf begin, and the end of the last
PLAIN = Decompressor()
READ = DecodeContext(PLAIN, PLAIN)
WRITE = EncodeContext(make_compressor(Codec.NONE), make_compressor(Codec.NONE))


def leaf_of(keys: list[tuple[bytes, bytes]], counts: list[int], first_row: int = 0) -> Leaf:
    """A leaf of runs with these keys and numbers of rows: three blocks if they fill them, otherwise one."""
    spaces, groupings = zip(*keys, strict=True)
    runs = Runs(pa.array(spaces, pa.binary()), pa.array(groupings, pa.binary()), np.array(counts, np.int64))
    sizes = [b - a for a, b in itertools.pairwise(BLOCKS)] if sum(counts) == BLOCKS[-1] else [sum(counts)]
    stored = encode_leaf(runs, [BlockSpan(size, 100, 7, 0, 9) for size in sizes], WRITE)
    return open_leaf(decode_block(stored, BlockKind.DIRECTORY, None, 0), first_row, 0, 16, READ)


def block_of(codes: bytes, base: int) -> Chunks:
    """A block that has only the codes of a column, already cached."""
    stored = data_block([b"", b"", b""], rows=len(codes), dictionary=1)
    block = Chunks(decode_block(stored, BlockKind.DATA, None, 0), 1)
    block.cached_codes[0] = base, codes
    return block


class Held(CachedSegment):
    """A reader with leaves of three blocks, each with the codes of a column minus a base."""

    def __init__(self, codes: bytes = bytes(10), base: int = 0, groupings: Any = (b"", b"g")) -> None:
        self.blocks_shelf = Shelf()
        self.use("a.esdb", Shelf(), self.blocks_shelf, SimpleNamespace())
        self.positions, self.shown_type, self.announce, self.direct = {"type": 0}, str, None, True
        self.stored = [block_of(codes[a:b], base) for a, b in itertools.pairwise(BLOCKS)]
        self.leaves = [leaf_of([(b"s", grouping) for grouping in groupings], [3, 7][-len(groupings) :])]
        self.read: list[int] = []

    def _missing_leaf(self, number: int, keys: bool) -> Any:
        return self.leaves[number]

    def _missing_block(self, leaf: Any, number: int) -> Any:
        self.read.append(number)
        return self.stored[number]

    def _missing_codes(self, dictionary: int, place: int) -> Any:
        return SimpleNamespace(codes={"a": 1, "b": 2, "z": 300})


class Rows:
    """Builds lists of row numbers within the block."""

    def __init__(self, *of: Any) -> None:
        assert of[1:] == ("s", "", of[3], ("data",))

    def consecutive(self, block: Any, run_start: int, low: int, high: int) -> Any:
        return (run_start, list(range(low, high)))

    def picked(self, block: Any, run_start: int, rows: list[int]) -> Any:
        return (run_start, rows)


def parts_of(reader: Held, query: Query, first: int, last: int, match_indexes: Any = None) -> Any:
    """The result of a query for rows [first, last) of one run; None if the short path does not apply."""
    scan = ScanRows(reader, query, [RowSpan(0, first, last, first)], (first, last), ("s", ""))
    made = scan.fast_parts(Rows, ("data",), match_indexes, None)
    return None if made is None else list(made)


def test_shelves_mark_what_is_found():
    """A value that was found is marked as used; a missing one leaves no mark."""
    shelf = Shelf()
    shelf.values["a"] = 1
    assert (shelf.find("a"), shelf.find("b"), shelf.used) == (1, None, {"a"})


@examples(100)
@given(
    st.binary(min_size=10, max_size=10), st.sampled_from([0, 1, -(1 << 63), 250]), st.sampled_from("abzq"), st.data()
)
def test_rows_with_a_value(codes, base, value, data):
    """The rows found are those whose byte plus base is the value's code."""
    reader = Held(codes, base)
    block = data.draw(st.integers(0, 2))
    stored = codes[BLOCKS[block] : BLOCKS[block + 1]]
    low = data.draw(st.integers(0, len(stored)))
    high = data.draw(st.integers(low, len(stored)))
    code = {"a": 1, "b": 2, "z": 300}.get(value, -1)
    model = [row for row in range(low, high) if stored[row] + base == code]
    assert reader.rows_with(reader.stored[block], "type", value, low, high) == model


def test_codes_stay_while_one_is_looked_up():
    """The codes stay alive during a lookup, even if the value's hash, or another thread, drops them."""
    freed = []

    class Code:
        def __sub__(self, base):
            return 1 - base + 10 * len(freed)

        def __del__(self):
            freed.append(self)  # keeps it alive, so that a failure does not crash

    class Forgetful(Held):
        def _missing_codes(self, dictionary, place):
            return SimpleNamespace(codes={"a": Code()})

    class Value(str):
        def __hash__(self):
            reader.forget()
            return hash("a")

    reader = Forgetful(bytes([0, 1, 1, 0]) + bytes(6))
    assert reader.rows_with(reader.stored[0], "type", Value("a"), 0, 4) == [1, 2]


@pytest.mark.parametrize(("low", "high"), [(-1, 1), (0, 5), (3, 2), (MOST, MOST), (0, MOST)])
def test_rows_that_a_block_lacks(low, high):
    """Rows outside the block, which has four, are refused."""
    reader = Held()
    with pytest.raises(ValueError, match="does not have the requested rows"):
        reader.rows_with(reader.stored[0], "type", "a", low, high)
    reader.stored[0].cached_codes.clear()
    assert reader.rows_with(reader.stored[0], "type", "a", 0, 4) is None


@pytest.mark.parametrize(
    ("first", "last", "limit", "reverse", "found"),
    [
        (4, 9, None, False, [((0, [0, 1, 2, 3, 4]))]), (5, 9, None, False, [(1, [1, 2, 3, 4])]),
        (3, 9, 2, True, [(0, [3, 4])]), (3, 9, 1, False, [(3, [3])]), (3, 9, 2, False, None), (3, 9, None, False, None),
        (9, 9, None, False, []), (4, 9, 0, False, []), (10, 11, None, False, None), (-1, 3, None, False, None),
        (0, 99, None, False, None), (MOST - 1, MOST, None, False, None), (-MOST, MOST, 1, True, None),
    ],
)  # fmt: skip
def test_rows_of_one_block(first, last, limit, reverse, found):
    """Rows of one block take the short path; other rows, and rows outside the leaf, do not."""
    assert parts_of(Held(), Query(None, None, reverse, limit), first, last) == found


def test_rows_elsewhere():
    """Several runs or row spans do not take the short path, nor do sources that announce the blocks to read."""
    query = Query()
    reader = Held()
    reader.announce = print
    assert parts_of(reader, query, 4, 9) == parts_of(Held(), query, 4, 9)  # one block: nothing to announce
    assert parts_of(reader, Query(None, None, False, None, None, (("type", "a"),)), 3, 9) is None
    row_span = RowSpan(0, 4, 9, 4)
    for rows, keys in (
        ([row_span], None),
        ([row_span] * 2, ("s", "")),
        ([], ("s", "")),
        (lambda: [row_span], ("s", "")),
    ):
        scan = ScanRows(Held(), query, rows, (4, 9), keys)
        assert scan.fast_parts(Rows, ("data",), None, None) is None
        assert scan.fast_events(Rows, None, None) is None
        assert list(scan._row_spans()) == (rows if isinstance(rows, list) else rows())


@examples(200)
@given(
    st.binary(min_size=10, max_size=10), st.integers(0, 10), st.integers(0, 10), st.booleans(),
    st.none() | st.integers(0, 3), st.sampled_from("abq"), st.booleans(),
)  # fmt: skip
@example(codes=b"\1" * 10, one=1, two=10, reverse=True, limit=None, value="a", cached=True)
@example(codes=b"\1" * 10, one=1, two=10, reverse=False, limit=None, value="a", cached=False)
@example(codes=b"\1" * 10, one=4, two=9, reverse=True, limit=2, value="a", cached=True)
def test_matching_rows(codes, one, two, reverse, limit, value, cached):
    """Matching rows come from each block that has some, in the query's direction. For a single block that was read
    before, the index is not read, and no more rows than the limit are made.
    """
    first, last = min(one, two), max(one, two)
    codes = bytes(code % 3 for code in codes)
    index_matches = SimpleNamespace(unmet=(("type", value),), rows=None, blocks=None, nothing=False)
    reader, asked = Held(codes), []
    if cached:
        reader.blocks_shelf.values.update(enumerate(reader.stored))
    query = Query(None, None, reverse, limit, None, (("type", value),))
    found = parts_of(reader, query, first, last, lambda *_: asked.append(1) or index_matches)
    model = []
    within = sum(a < last and first < b for a, b in itertools.pairwise(BLOCKS))
    for a, b in itertools.pairwise(BLOCKS):
        rows = [row - a for row in range(max(a, first), min(b, last)) if codes[row] == "ab".find(value) + 1 > 0]
        if limit is not None and cached and within == 1:
            rows = rows[max(len(rows) - limit, 0) :] if reverse else rows[:limit]
        model += [(max(first - a, 0), rows)] if rows else []
    assert found == ([] if limit == 0 else model[::-1] if reverse else model)
    if first < last and limit != 0:
        assert len(asked) == (0 if cached and within == 1 else 1)


def test_several_values():
    """A condition with several values, or a start, does not take the short path, even if all blocks are cached."""
    reader, asked = Held(), []
    reader.blocks_shelf.values.update(enumerate(reader.stored))
    several = SimpleNamespace(unmet=(), rows=None, blocks=None, nothing=False)
    query = Query(conditions=(("type", frozenset("ab")),))
    assert parts_of(reader, query, 4, 9, lambda *_: asked.append(1) or several) is None
    assert parts_of(reader, Query(0, conditions=(("type", "a"),)), 4, 9, lambda *_: asked.append(2) or several) is None
    assert asked == [1, 2]


@pytest.mark.parametrize(("first", "last"), [(-1, 3), (3, 11), (10, 12), (MOST - 1, MOST)])
def test_matching_rows_outside(first, last):
    """Rows outside the leaf are refused."""
    index_matches = SimpleNamespace(unmet=(("type", "a"),), rows=None, blocks=None, nothing=False)
    with pytest.raises(ValueError, match="does not have the requested rows"):
        parts_of(Held(), Query(conditions=(("type", "a"),)), first, last, lambda *_: index_matches)


def test_runs_of_a_space():
    """A run that continues in the next leaf is one run, and keeps its start."""
    reader = Held()
    reader.leaves.append(leaf_of([(b"s", b"g"), (b"t", b"")], [3, 7], 10))
    found = find_space(reader, "s", SpaceRows, [0, 1])
    assert (found.key, found.key_bytes, found.num_events) == ("s", b"s", 13)
    assert found._groupings == [(b"", 3), (b"g", 10)]
    held = [(s.leaf, s.first, s.last, s.run_start) for s in found._row_spans]
    assert held == [(0, 0, 3, 0), (0, 3, 10, 3), (1, 10, 13, 3)]
    other = find_space(reader, b"t", SpaceRows, [1])
    assert (other.key, other._groupings) == ("t", [(b"", 7)])
    assert find_space(reader, "u", SpaceRows, [0, 1]) is None


@examples(100)
@given(st.lists(st.binary(max_size=2), min_size=1, max_size=6), st.binary(max_size=2))
def test_leaves_of_a_space(spaces, asked):
    """All runs of a space are found in the leaves that the root's first keys select."""
    reader = Held()
    reader.shown_type = bytes
    spaces = sorted(spaces)
    keys, counts = [(key, bytes([n])) for n, key in enumerate(spaces)], [n + 1 for n in range(len(spaces))]
    cut = len(spaces) // 2
    parts = [part for part in ((keys[:cut], counts[:cut]), (keys[cut:], counts[cut:])) if part[0]]
    reader.leaves = [leaf_of(*parts[0]), *(leaf_of(*part, sum(parts[0][1])) for part in parts[1:])]
    handle = BlockHandle(99, 30, 0)
    entries = [LeafEntry(part[0][0][0], len(part[0]), sum(part[1]), 1, 16, handle, 0, 9) for part in parts]
    stored = encode_root(entries, len(entries), WRITE)
    reader.root = open_root(decode_block(stored, BlockKind.DIRECTORY_ROOT, None, 0), READ)
    found = find_space(reader, asked, SpaceRows)
    model = [(bytes([n]), count) for n, (key, count) in enumerate(zip(spaces, counts, strict=True)) if key == asked]
    assert (found and found._groupings) == (model or None)
    assert found is None or found.num_events == sum(count for _, count in model)


def test_a_space_of_one_run():
    """A space of one run makes its scan directly; not for several groupings, nor for another grouping."""
    reader = Held(groupings=(b"g",))
    space, query = find_space(reader, "s", SpaceRows, [0]), Query()
    for grouping in (None, b"g"):
        scan = space.of_one_run(query, grouping, ScanRows)
        assert (scan._reader, scan._query, scan._keys, scan._span) == (reader, query, ("s", "g"), (0, 7))
    assert space.of_one_run(query, b"h", ScanRows) is None
    assert find_space(Held(), "s", SpaceRows, [0]).of_one_run(query, None, ScanRows) is None
    assert SpaceRows.__new__(SpaceRows).of_one_run(query, None, ScanRows) is None
    reader.shown_type = bytes
    assert find_space(reader, b"s", SpaceRows, [0]).of_one_run(query, None, ScanRows)._keys == (b"s", b"g")


@pytest.mark.parametrize("made", [object, ScanRows, 1, SpaceRows])
def test_classes_of_spaces(made):
    """Other classes are refused; a space cannot be constructed without a segment."""
    with pytest.raises(TypeError):
        find_space(Held(groupings=(b"g",)), "s", made, [0]).of_one_run(Query(), None, made)
    with pytest.raises(TypeError, match="found in segments"):
        SpaceRows()


def test_leaves_that_are_not_there():
    """Without leaves no space is found; a leaf number out of range and a key of another type are refused."""
    assert find_space(Held(), "s", SpaceRows) is None
    with pytest.raises(IndexError):
        find_space(Held(), "s", SpaceRows, [1])
    with pytest.raises(esformat.UsageError):
        find_space(Held(), 1, SpaceRows)


def test_what_was_asked_for_last():
    """The last leaf and codes stay cached for the next query, until `forget`."""
    reader, other = Held(), leaf_of([(b"t", b"")], [3])
    first = reader.leaf(0)
    codes = reader.value_codes(1, 0)
    reader.leaves = [other, first]
    assert (reader.leaf(0), reader.leaf(1), reader.leaf(0)) == (first, first, other)
    assert reader.value_codes(1, 0) is codes
    assert reader.value_codes(2, 0) is not codes
    reader.leaves = [first]
    reader.forget()
    assert reader.leaf(0) is first


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
    """Only arguments that were checked before are accepted without a check."""
    parts = CheckedQueries()
    parts.remember(("data",), "type", "a")
    parts.remember(None, "id", 1)
    query = parts.query(None, None, 1, limit, columns, name, value)
    assert (query is not None) == known
    if query is not None:
        assert (query.limit, query.columns, query.reverse, query.filtered) == (limit, columns, True, name is not None)
    assert parts.query(0, None, False, None, None) is None
    assert parts.query(None, 0, False, None, None) is None


def test_other_questions_of_a_query():
    """Derived queries differ only in what their names say."""
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


def test_part_of_a_row_span():
    """A part of a row span differs only in its rows."""
    part = part_of(RowSpan(4, 10, 20, 5), 12, 99)
    assert (part.leaf, part.first, part.last, part.run_start) == (4, 12, 20, 5)


def test_a_span_has_two_ends():
    """A span without two ends is refused."""
    with pytest.raises(ValueError, match="unpack"):
        ScanRows(Held(), Query(), list, (1,))


def test_keys_of_another_kind():
    """A key that is not UTF-8, in a file of text keys, is refused as damage."""
    with pytest.raises(esformat.CorruptSegmentError, match="not UTF-8") as refused:
        Held().shown(b"\xff")
    assert refused.value.path == "a.esdb"


def test_copies_of_a_scan(tmp_path):
    """A copy of a scan has the same rows."""
    with esformat.create(tmp_path / "a.esdb") as out:
        out.add(space="s", timestamp=1, data=b"x")
    with esformat.open(tmp_path / "a.esdb") as segment:
        scan = segment["s"].scan()
        assert list(copy.copy(scan)) == list(scan) == list(scan.in_batches_of(1))
