# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""Keys in ascending order, found by halving."""

import cython
from cython.cimports.libc.string import memcmp


def find_key(data: bytes, edges: cython.const[cython.longlong][::1], key: bytes) -> tuple[int, int]:
    """Where a key stands among ascending keys: [first, last), empty at the place where it would stand.

    Key i is data[edges[i]:edges[i + 1]]. Raises ValueError where an edge that was looked at lies outside.
    """
    first: cython.Py_ssize_t = _bound(data, edges, key, False)
    if first + 1 >= edges.shape[0] or _order(data, edges, first, key) != 0:
        return first, first
    return first, _bound(data, edges, key, True)


@cython.cfunc
@cython.exceptval(-1)
def _bound(
    data: bytes, edges: cython.const[cython.longlong][::1], key: bytes, behind: cython.bint
) -> cython.Py_ssize_t:
    """The first place whose key is not below `key`, or is above it where `behind`."""
    low: cython.Py_ssize_t = 0
    high: cython.Py_ssize_t = edges.shape[0] - 1
    middle: cython.Py_ssize_t
    order: cython.int
    if high < 0:
        raise ValueError("no edges")
    while low < high:  # so that each place looked at is from 0 to the last one of a key
        middle = low + (high - low) // 2
        order = _order(data, edges, middle, key)
        if order < 0 or (behind and order == 0):
            low = middle + 1
        else:
            high = middle
    return low


@cython.cfunc
@cython.exceptval(-2)
def _order(data: bytes, edges: cython.const[cython.longlong][::1], place: cython.Py_ssize_t, key: bytes) -> cython.int:
    """-1, 0 or 1 as the key at a place is below, is or is above another."""
    begin: cython.Py_ssize_t = edges[place]
    end: cython.Py_ssize_t = edges[place + 1]
    if not 0 <= begin <= end <= len(data):
        raise ValueError("a key lies outside of its bytes")
    size: cython.Py_ssize_t = end - begin
    at: cython.p_char = data
    other: cython.p_char = key
    order: cython.int = memcmp(at + begin, other, min(size, len(key)))
    if order == 0:
        return (size > len(key)) - (size < len(key))
    return 1 if order > 0 else -1
