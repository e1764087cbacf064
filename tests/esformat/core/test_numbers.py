"""Joined planes and running sums agree with models in one line of Python."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from effort import examples
from hypothesis import assume, given
from hypothesis import strategies as st

from esformat.core.numbers import (
    count_by_width,
    join_planes,
    pack_bits,
    read_columns,
    read_numbers,
    read_pack,
    sum_runs,
    sum_runs_at,
)
from esformat.errors import CorruptSegmentError
from esformat.format.codec import Codec, Decompressor, make_compressor
from esformat.format.packing import encode_ints

RAW = make_compressor(Codec.NONE)
int64s = st.integers(-(1 << 63), (1 << 63) - 1)


def wrapped(number):
    """A number modulo 2^64, with its sign."""
    return (number + (1 << 63)) % (1 << 64) - (1 << 63)


def stored(numbers, width, raw, base, codec=0):
    """Numbers as a pack with uncompressed planes."""
    planes = b"".join(bytes(n >> 8 * k & 255 for n in numbers) for k in range(width))
    cut = raw * len(numbers)
    head = struct.pack("<4BI", width, raw, 8 if base else 0, codec, len(planes) - cut)
    return head + (struct.pack("<q", base) if base else b"") + planes


@examples(100)
@given(st.lists(st.integers(0, (1 << 64) - 1), max_size=12), st.integers(0, 8), int64s, st.data())
def test_planes(numbers, width, base, data):
    """Any part of any numbers is joined, whichever buffer has which planes; the surrounding output is unchanged."""
    raw = data.draw(st.integers(0, width))
    low = data.draw(st.integers(0, len(numbers)))
    size = data.draw(st.integers(0, len(numbers) - low))
    numbers = [number % (1 << 8 * width) for number in numbers]
    if not numbers:
        width = raw = base = 0
    body = b"ab" + stored(numbers, width, raw, base) + b"cd"
    pack = read_pack(body, 2, len(numbers))
    assert (pack.numbers, pack.width, pack.raw, pack.base, pack.codec) == (len(numbers), width, raw, base, 0)
    assert pack.end == len(body) - 2
    out = np.full(size + 2, 7, np.int64)
    join_planes(body, pack, b"e" + body[pack.stored_at : pack.end], 1, low, out, 1, size)
    expected = [wrapped(n + base) for n in numbers]
    assert out.tolist() == [7, *expected[low : low + size], 7]
    twice = np.zeros(2 * len(numbers), np.int64)
    both = body[:-2] + stored(numbers, width, raw, base)
    assert read_columns(both, 2, len(numbers), 2, twice) == len(both)
    assert twice.tolist() == 2 * expected


BODY = stored([1, 2, 3, 4], 3, 2, 0)
PACK = read_pack(BODY, 0, 4)
FITTING = (BODY, PACK, b"abcd", 0, 0, np.zeros(4, np.int64), 0, 4)


@pytest.mark.parametrize(
    ("place", "wrong"),
    [
        (0, BODY[:15]), (0, b""), (2, b"abc"), (3, 1), (3, -1),
        (3, 5), (4, 1), (4, -1), (5, np.zeros(3, np.int64)), (6, 1), (6, -1), (7, 5), (7, -1),
    ],
)  # fmt: skip
def test_planes_outside(place, wrong):
    """Positions and sizes outside the buffers are refused."""
    join_planes(*FITTING)
    given = [*FITTING]
    given[place] = wrong
    with pytest.raises(ValueError, match="packed numbers"):
        join_planes(*given)


@pytest.mark.parametrize(
    ("body", "at", "count"),
    [(BODY[:7], 0, 4), (BODY, -1, 4), (BODY, 1 << 62, 4), (BODY, 0, -1), (BODY[:-1], 0, 4), (BODY, 0, 5),
     (BODY, 0, 1 << 62), (b"\1" + bytes(7), 0, 0), (b"\0\0\0\1" + bytes(4), 0, 0), (bytes(7) + b"\1" * 9, 0, 1),
     (stored([1], 2, 1, 5)[:15], 0, 1)],
)  # fmt: skip
def test_headers_outside(body, at, count):
    """A pack or count that exceeds the body is refused."""
    with pytest.raises(CorruptSegmentError, match="packed numbers"):
        read_pack(body, at, count)
    with pytest.raises(CorruptSegmentError, match="packed numbers"):
        read_columns(body, at, count, 1, np.zeros(4, np.int64))


def test_columns_that_are_compressed_or_too_many():
    """Compressed columns are left to another decoder; too many columns for the output are refused."""
    assert read_columns(stored([1], 1, 0, 0, codec=1), 0, 1, 1, np.zeros(1, np.int64)) == -1
    with pytest.raises(ValueError, match="fewer"):
        read_columns(BODY + BODY, 0, 4, 2, np.zeros(7, np.int64))


@examples(200)
@given(st.lists(int64s, max_size=20), st.integers(1, 64), int64s)
def test_bits(numbers, bits, base):
    """The lowest bits of each number minus the base are packed as in one large number."""
    whole = sum(((number - base) % (1 << bits)) << (bits * i) for i, number in enumerate(numbers))
    stored = pack_bits(np.array(numbers, np.int64), base, bits)
    assert stored == whole.to_bytes((bits * len(numbers) + 7) // 8, "little")


@pytest.mark.parametrize("bits", [-1, 0, 65, 1 << 40])
def test_bits_that_no_number_has(bits):
    """A width outside 1 to 64 bits is refused."""
    with pytest.raises(ValueError, match="bits"):
        pack_bits(np.zeros(3, np.int64), 0, bits)


BIT_BODY = struct.pack("<4BI", 9, 255, 0, 0, 4) + bytes(4)


@pytest.mark.parametrize(("size", "low", "count"), [(10, 0, 3), (12, 1, 3), (12, -1, 1), (12, 3, 1)])
def test_bits_outside(size, low, count):
    """Bits outside the body, even if it is not the header's, are refused."""
    pack = read_pack(BIT_BODY, 0, 3)
    with pytest.raises(ValueError, match="packed numbers"):
        join_planes(BIT_BODY[:size], pack, b"", 0, low, np.zeros(9, np.int64), 0, count)


@examples(100)
@given(st.lists(st.tuples(int64s, st.lists(int64s, max_size=6)), min_size=1, max_size=6))
def test_sums_of_runs(runs):
    """Each run is summed from its own base, modulo 2^64; runs may be empty."""
    numbers = np.array([step for _, steps in runs for step in steps], np.int64)
    starts = np.cumsum([0, *(len(steps) for _, steps in runs)])[:-1]
    sum_runs(numbers, starts, np.array([base for base, _ in runs]))
    assert numbers.tolist() == [wrapped(base + sum(steps[: n + 1])) for base, steps in runs for n in range(len(steps))]


@pytest.mark.parametrize("starts", [[], [1], [-1], [0, 4], [0, 2, 1], [0, -1]])
def test_runs_outside(starts):
    """Starts of runs outside the numbers are refused."""
    with pytest.raises(ValueError, match="starts of runs"):
        sum_runs(np.zeros(3, np.int64), np.array(starts, np.int64), np.zeros(len(starts), np.int64))
    with pytest.raises(ValueError, match="starts of runs"):
        sum_runs(np.zeros(3, np.int64), np.zeros(1, np.int64), np.zeros(2, np.int64))


STEPS = st.lists(int64s | st.integers(0, 99), min_size=1, max_size=6)


@examples(200)
@given(
    st.lists(st.lists(st.tuples(int64s, STEPS), min_size=1, max_size=4), max_size=4),
    st.sampled_from([Codec.NONE, Codec.ZSTD]),
    st.data(),
)
def test_sums_of_runs_at_some_places(packs, codec, data):
    """They are those of all numbers, whether packs are bits or planes, compressed or not; places may repeat."""
    steps = [[step for _, run in runs for step in run] for runs in packs]
    parts = []
    for numbers in steps:
        body = memoryview(b"before" + encode_ints(np.array(numbers, np.int64), make_compressor(codec), raw=0))
        parts.append((body, read_pack(body, 6, len(numbers))))
    runs = [run for runs in packs for run in runs]
    sizes = [len(run) for _, run in runs]
    starts, bases = np.cumsum([0, *sizes])[:-1], np.array([base for base, _ in runs], np.int64)
    count = sum(sizes)
    places = sorted(data.draw(st.lists(st.integers(0, count - 1), max_size=12))) if count else []
    whole = np.array([step for numbers in steps for step in numbers], np.int64)
    sum_runs(whole, starts, bases)
    found = sum_runs_at(parts, starts, bases, np.array(places, np.int64), Decompressor())
    assert list(found) == whole[np.array(places, np.int64)].tolist()


TWO_PACKS = [(memoryview(BIT_BODY), read_pack(BIT_BODY, 0, 3))] * 2


@pytest.mark.parametrize(
    ("starts", "bases", "places"),
    [
        ([0, 3], 1, [0]),  # fewer bases
        ([], 0, [0]),
        ([1, 3], 2, [1]),
        ([0, 3], 2, [-1]),
        ([0, 3], 2, [2, 6]),  # beyond the last number
        ([0, 3], 2, [1 << 62]),
        ([0, 3], 2, [2, 1]),
        ([0, 3], 2, [4, 1]),
        ([0], 1, [2, 3]),  # a run in two packs
        ([0], 1, [4]),
        ([0, 2], 2, [4]),
        ([0, 4], 2, [1, 3]),
        ([0, 4], 2, [3]),
    ],
)
def test_places_and_runs_outside(starts, bases, places):
    """Places that do not ascend or are beyond the numbers, and runs across packs, are refused."""
    starts, places = np.array(starts, np.int64), np.array(places, np.int64)
    with pytest.raises(ValueError, match=r"runs do not fit|ascend|packed numbers"):
        sum_runs_at(TWO_PACKS, starts, np.zeros(bases, np.int64), places, Decompressor())


@examples(100)
@given(st.lists(int64s, max_size=12))
def test_numbers(numbers):
    """Numbers are read with the end of their pack."""
    body = b"..." + encode_ints(np.array(numbers, np.int64), RAW) + b"."
    read, end = read_numbers(memoryview(body), 3, len(numbers), None)
    assert (list(read), end) == (numbers, len(body) - 1)


def test_packs_cut_short():
    """A pack cut short at any length, and a position or count outside it, is refused."""
    body = encode_ints(np.array([1, 9, 5], np.int64), RAW)
    for size in range(len(body)):
        with pytest.raises(CorruptSegmentError):
            read_numbers(body[:size], 0, 3, None)
    for at, count in ((-1, 3), (1 << 62, 3), (0, -1), (0, 1 << 62), (0, 5)):
        with pytest.raises(CorruptSegmentError):
            read_numbers(body, at, count, None)


@examples(300)
@given(st.data(), st.lists(int64s, max_size=30), st.tuples(int64s, int64s).map(sorted), st.integers(1, 40))
def test_times_by_spans_of_one_width(data, others, bounds, spans):
    """Times within the bounds are counted in their spans, all others ignored, even if they are 2^64 apart."""
    low, high = bounds
    least = (high - low) // spans + 1
    assume(least <= 1 << 63)
    width = data.draw(st.integers(least, 1 << 63) | st.just(least))
    assume(high - low // width * width < 1 << 64)  # otherwise see `aggregator.base.histogram`
    near = data.draw(st.lists(st.integers(low, high) | st.sampled_from([low, high]), max_size=30))
    edges = [edge for edge in range(low // width * width, high + 1, width) if low <= edge <= high]
    times = [*others, *near, *edges, *(edge - 1 for edge in edges if edge > low)]
    counts = np.zeros(high // width - low // width + 1, np.int64)
    inside = [time for time in times if low <= time <= high]
    found = count_by_width(np.array(times, np.int64), low, high, width, low // width * width % 2**64, counts)
    assert found == ((min(inside), max(inside)) if inside else None)
    model = [0] * len(counts)
    for time in inside:
        model[time // width - low // width] += 1
    assert counts.tolist() == model


@pytest.mark.parametrize(
    ("low", "high", "width", "begin", "size"),
    [
        (0, 9, 0, 0, 9),
        (0, 10, 5, 0, 2),
        (0, 9, 5, 1, 2),
        (5, 9, 5, 6, 9),
        (-(1 << 63), (1 << 63) - 1, 1 << 63, 1 << 63, 1),
    ],
)
def test_spans_that_do_not_fit(low, high, width, begin, size):
    """A zero width, too few counts, or a first span after the first time is refused before anything is counted."""
    counts = np.zeros(size, np.int64)
    with pytest.raises(ValueError, match="do not fit"):
        count_by_width(np.array([low, high], np.int64), low, high, width, begin, counts)
    assert not counts.any()
