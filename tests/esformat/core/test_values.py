"""Values cut out of bytes agree with Python's slices."""

from __future__ import annotations

from itertools import accumulate, pairwise

import numpy as np
import pyarrow as pa
import pytest
from effort import examples
from hypothesis import given
from hypothesis import strategies as st

from esformat.core.caches import Shelf
from esformat.core.values import FrameValues, cut, cut_places, cut_short, gather, repeated, short_offsets, total

values = st.lists(st.binary(max_size=12), max_size=12)


@examples(100)
@given(values, st.data())
def test_any_part(held, data):
    """Any part of the values is cut out, also if the bytes begin at a later value."""
    start, low, high = sorted(data.draw(st.lists(st.integers(0, len(held)), min_size=3, max_size=3)))
    edges = np.array(list(accumulate(map(len, held), initial=0)))
    lengths = bytes(map(len, held))
    stored = b"".join(held[start:])
    assert cut(stored, edges, low, high, int(edges[start])) == held[low:high]
    assert cut_short(stored, lengths, start, low, high) == held[low:high]
    assert total(lengths, low, high) == sum(map(len, held[low:high]))
    offsets = np.frombuffer(short_offsets(lengths, start, low, high), np.int32)
    assert [stored[a:b] for a, b in pairwise(offsets.tolist())] == held[low:high]


def test_the_end_may_lie_beyond():
    """A sum of lengths ignores positions out of range."""
    assert total(b"\1\2\3", 1, 9) == 5
    assert total(b"\1\2\3", -1, 1) == 1
    assert total(b"\1", 5, 9) == 0


@pytest.mark.parametrize(
    ("stored", "lengths", "start", "low", "high"),
    [(b"abc", b"\1\3", 0, 0, 2), (b"", b"\1", 0, 0, 1), (b"abc", b"\1", 0, 0, 2), (b"abc", b"\1\1", 1, 0, 2),
     (b"abc", b"\1\1", -1, 0, 2), (b"abc", b"\1\1", 0, 2, 1), (b"abc", b"\7\1", 0, 1, 2)],
)  # fmt: skip
def test_short_values_outside(stored, lengths, start, low, high):
    """Lengths and positions outside the bytes are refused."""
    with pytest.raises(ValueError, match=r"end early|fewer"):
        cut_short(stored, lengths, start, low, high)


@pytest.mark.parametrize(
    ("edges", "low", "high", "origin"),
    [([0, 4], 0, 1, 0), ([0, 1], 0, 2, 0), ([0, 1], -1, 1, 0), ([0, 1], 1, 0, 0), ([1, 0], 0, 1, 0), ([0, 1], 0, 1, 1),
     ([], 0, 0, 0), ([0, 1 << 62], 0, 1, 0)],
)  # fmt: skip
def test_values_outside(edges, low, high, origin):
    """Edges and positions outside the bytes are refused."""
    with pytest.raises(ValueError, match=r"end early|fewer"):
        cut(b"abc", np.array(edges, np.int64), low, high, origin)


@examples(100)
@given(st.lists(st.binary(max_size=9), min_size=1, max_size=12), st.integers(1, 5), st.data())
def test_places_in_frames(held, rows, data):
    """Values at some positions are cut out of the frames that contain them; the other frames may be missing."""
    places = data.draw(st.lists(st.integers(0, len(held) - 1), max_size=6).map(sorted))
    edges = np.array(list(accumulate(map(len, held), initial=0)))
    first = min(places, default=0) // rows
    needed = {place // rows for place in places}
    frames = [
        b"".join(held[n * rows : (n + 1) * rows]) if n in needed else None for n in range(first, -(-len(held) // rows))
    ]
    assert cut_places(frames, first, rows, edges, places) == [held[place] for place in places]


@pytest.mark.parametrize(
    ("frames", "first", "rows", "edges", "places"),
    [([b"ab"], 0, 2, [0, 1, 2], [2]), ([b"ab"], 0, 2, [0, 1, 2], [-1]), ([b"a"], 0, 2, [0, 1, 2], [1]),
     ([b"ab"], 1, 1, [0, 1, 2], [0]), ([b"ab"], 0, 1, [0, 1, 2], [1]), ([None], 0, 2, [0, 1, 2], [0]),
     ([b"ab"], 0, 0, [0, 1, 2], [0]), ([b"ab"], -1, 2, [0, 1, 2], [0]), ([b"ab"], 0, 2, [0, -1, 2], [0]),
     ([b"ab"], 0, 2, [], [0])],
)  # fmt: skip
def test_places_outside_of_frames(frames, first, rows, edges, places):
    """Edges and positions outside the frames are refused."""
    with pytest.raises(ValueError, match=r"end early|fewer"):
        cut_places(frames, first, rows, np.array(edges, np.int64), places)


@pytest.mark.parametrize(("start", "low", "high"), [(0, 0, 3), (-1, 0, 2), (1, 0, 2), (0, 2, 1)])
def test_offsets_outside(start, low, high):
    """Values out of range are refused."""
    with pytest.raises(ValueError, match="fewer values"):
        short_offsets(b"\1\2", start, low, high)


@examples(50)
@given(st.binary(max_size=5), st.integers(0, 9))
def test_one_value_for_every_row(value, count):
    """A repeated value has Arrow's offsets and bytes."""
    offsets, data = repeated(value, count)
    assert np.frombuffer(offsets, np.int32).tolist() == [len(value) * n for n in range(count + 1)]
    assert data == value * count


@examples(100)
@given(st.sampled_from([9, 16, 17, 32, 33]), st.sampled_from([np.uint8, np.int64]), st.data())
def test_gathering(longest, dtype, data):
    """Values are gathered by code, whether short or long."""
    held = data.draw(st.lists(st.binary(max_size=longest) | st.just(bytes(longest)), min_size=1, max_size=9))
    codes = data.draw(st.lists(st.integers(0, len(held) - 1), max_size=20))
    edges = np.array(list(accumulate(map(len, held), initial=0)), np.int32)
    offsets, gathered = gather(np.array(codes, dtype), edges, b"".join(held), pa.allocate_buffer)
    assert [bytes(gathered)[a:b] for a, b in pairwise(np.frombuffer(offsets, np.int32).tolist())] == [
        held[c] for c in codes
    ]


def test_one_long_value_among_short_ones():
    """Short values beside a long one are gathered in full."""
    edges = np.array([0, 32, 33], np.int32)
    _, gathered = gather(np.ones(1000, np.uint8), edges, b"x" * 32 + b"y", pa.allocate_buffer)
    assert bytes(gathered) == b"y" * 1000


@pytest.mark.parametrize("code", [2, -1, 1 << 62])
def test_codes_without_values(code):
    """A code without a value is refused, whatever its position."""
    with pytest.raises(IndexError):
        gather(np.array([0, code]), np.array([0, 1, 2], np.int32), b"ab", pa.allocate_buffer)
    with pytest.raises(IndexError):
        gather(np.array([0]), np.array([], np.int32), b"ab", pa.allocate_buffer)


@pytest.mark.parametrize("edges", [[0, 3], [-1, 1], [2, 1]])
def test_gathering_outside(edges):
    """Edges outside the bytes are refused."""
    with pytest.raises(ValueError, match="end early"):
        gather(np.zeros(2, np.uint8), np.array(edges, np.int32), b"ab", pa.allocate_buffer)


def test_too_much():
    """A result too large for one array is refused before anything is allocated."""
    with pytest.raises(OverflowError, match="2 GiB"):
        gather(np.zeros(2049, np.uint8), np.array([0, 1 << 20], np.int32), bytes(1 << 20), pa.allocate_buffer)
    for value, count in [(b"abc", 1 << 30), (b"", 1 << 31), (b"", -1)]:
        with pytest.raises(OverflowError, match="2 GiB"):
            repeated(value, count)


@examples(200)
@given(st.lists(st.binary(max_size=9), min_size=1, max_size=12), st.integers(1, 5), st.booleans(), st.data())
def test_cached_values(held, rows, short, data):
    """Values of one cached frame are returned; None if another frame is needed."""
    frames = Shelf()
    kept = data.draw(st.sets(st.integers(0, (len(held) - 1) // rows)))
    for number in kept:
        frames.values["key", number] = b"".join(held[number * rows : (number + 1) * rows])
    edges = np.array(list(accumulate(map(len, held), initial=0)))
    node = FrameValues(frames, "key", rows, bytes(map(len, held)) if short else None, None if short else edges)
    low, high = data.draw(
        st.tuples(st.integers(0, len(held)), st.integers(0, len(held))).filter(lambda span: span[0] < span[1])
    )
    places = sorted(data.draw(st.sets(st.integers(low, high - 1), min_size=1)))
    cached = low // rows == (high - 1) // rows and low // rows in kept
    assert node.cached_values(low, high, None) == (held[low:high] if cached else None)
    assert node.cached_values(low, high, places) == ([held[place] for place in places] if cached else None)


@pytest.mark.parametrize("short", [True, False])
@pytest.mark.parametrize(
    ("low", "high", "places"),
    [(0, 0, None), (-1, 1, None), (0, 4, None), (1, 0, None), (0, 1, [1]), (1, 2, [0]), (0, 2, [-1]), (0, 2, [5]),
     (0, 3, None), (2, 3, None)],
)  # fmt: skip
def test_cached_values_outside(short, low, high, places):
    """Positions outside the frame, which ends early here, are refused."""
    frames = Shelf()
    frames.values["key", 0] = b"abc"
    lengths, edges = b"\1\1\2", np.array([0, 1, 2, 4])
    node = FrameValues(frames, "key", 8, lengths if short else None, None if short else edges)
    with pytest.raises(ValueError, match=r"end early|fewer"):
        node.cached_values(low, high, places)


def test_places_out_of_order():
    """Positions that do not ascend, and arguments without lengths or edges, are refused."""
    frames = Shelf()
    frames.values["key", 0] = b"abc"
    node = FrameValues(frames, "key", 8, b"\1\1\1", None)
    with pytest.raises(ValueError, match="fewer"):
        node.cached_values(0, 3, [2, 1])
    with pytest.raises(ValueError, match="lengths or edges"):
        FrameValues(frames, "key", 8, None, None)
    with pytest.raises(ValueError, match="lengths or edges"):
        FrameValues(frames, "key", 0, b"", None)
