"""Planes put together and differences summed up, beside a model of a line each."""

from __future__ import annotations

import numpy as np
import pytest
from event_strategies import examples
from hypothesis import given
from hypothesis import strategies as st

from esformat.core.numbers import join_planes, sum_steps

int64s = st.integers(-(1 << 63), (1 << 63) - 1)


def wrapped(number):
    """A number modulo 2^64, with its sign."""
    return (number + (1 << 63)) % (1 << 64) - (1 << 63)


@examples(100)
@given(st.lists(st.integers(0, (1 << 64) - 1), max_size=12), st.integers(0, 8), int64s, st.data())
def test_planes(numbers, width, base, data):
    """Any part of any numbers, whichever planes lie in which buffer; what lies around stays as it was."""
    raw = data.draw(st.integers(0, width))
    low = data.draw(st.integers(0, len(numbers)))
    size = data.draw(st.integers(0, len(numbers) - low))
    numbers = [number % (1 << 8 * width) for number in numbers]
    planes = b"".join(bytes(n >> 8 * k & 255 for n in numbers) for k in range(width))
    cut = raw * len(numbers)
    out = np.full(size + 2, 7, np.int64)
    join_planes(b"ab" + planes[:cut], 2, raw, b"c" + planes[cut:], 1, width, len(numbers), low, base, out, 1, size)
    assert out.tolist() == [7, *(wrapped(n + base) for n in numbers[low : low + size]), 7]


FITTING = (b"12345678", 0, 2, b"abcd", 0, 3, 4, 0, 0, np.zeros(4, np.int64), 0, 4)


@pytest.mark.parametrize(
    ("place", "wrong"),
    [
        (0, b"1234567"), (1, 1), (1, -1), (1, 9), (2, 4), (2, -1), (3, b"abc"), (4, 1), (4, -1), (4, 5), (5, 9), (5, 1),
        (6, 5), (6, 3), (6, -1), (6, (1 << 63) - 1), (7, 1), (7, -1), (9, np.zeros(3, np.int64)), (10, 1), (10, -1),
        (11, 5), (11, -1),
    ],
)  # fmt: skip
def test_planes_outside(place, wrong):
    """Nothing is read or written outside of the buffers."""
    join_planes(*FITTING)
    given = [*FITTING]
    given[place] = wrong
    with pytest.raises(ValueError, match="packed numbers"):
        join_planes(*given)


@examples(100)
@given(st.lists(int64s, max_size=20), int64s, st.data())
def test_sums(steps, base, data):
    """Sums of any part, modulo 2^64."""
    first = data.draw(st.integers(0, len(steps)))
    skipped = data.draw(st.integers(0, len(steps) - first))
    out = np.zeros(data.draw(st.integers(0, len(steps) - first - skipped)), np.int64)
    sum_steps(np.array(steps, np.int64), first, skipped, base, out)
    sums = [wrapped(base + sum(steps[first : first + n + 1])) for n in range(skipped, skipped + len(out))]
    assert out.tolist() == sums


@pytest.mark.parametrize(("first", "skipped", "size"), [(-1, 0, 1), (0, -1, 1), (4, 0, 1), (0, 4, 0), (1, 1, 2)])
def test_sums_outside(first, skipped, size):
    """Nothing is read outside."""
    with pytest.raises(ValueError, match="fewer numbers"):
        sum_steps(np.zeros(3, np.int64), first, skipped, 0, np.zeros(size, np.int64))
