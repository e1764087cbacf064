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


def pairs_ascend(
    data: bytes,
    edges: cython.const[cython.longlong][::1],
    more: bytes,
    more_edges: cython.const[cython.longlong][::1],
) -> bool:
    """Whether pairs of keys ascend strictly, pair i being key i of `data` and key i of `more`, cut as in `find_key`.

    Raises ValueError where an edge lies outside, or where the two have different numbers of keys.
    """
    count: cython.Py_ssize_t = edges.shape[0] - 1
    if count != more_edges.shape[0] - 1:
        raise ValueError("different numbers of keys")
    _check_edges(edges, len(data))
    _check_edges(more_edges, len(more))
    first: cython.p_char = data
    second: cython.p_char = more
    i: cython.Py_ssize_t
    order: cython.int = -1
    with cython.nogil:
        for i in range(count - 1):  # i + 2 is at most the last edge
            order = _compare(first, edges[i], edges[i + 1], edges[i + 2])
            if order == 0:
                order = _compare(second, more_edges[i], more_edges[i + 1], more_edges[i + 2])
            if order >= 0:
                break
    return order < 0


@cython.cfunc
@cython.exceptval(-1)
def _check_edges(edges: cython.const[cython.longlong][::1], size: cython.Py_ssize_t) -> cython.int:
    i: cython.Py_ssize_t
    last: cython.longlong = 0
    for i in range(edges.shape[0]):
        if edges[i] < last or edges[i] > size:
            raise ValueError("a key lies outside of its bytes")
        last = edges[i]
    return 0


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _compare(data: cython.p_char, begin: cython.longlong, middle: cython.longlong, end: cython.longlong) -> cython.int:
    """-1, 0 or 1 as data[begin:middle] is below, is or is above data[middle:end]."""
    order: cython.int = memcmp(data + begin, data + middle, min(middle - begin, end - middle))
    if order == 0:
        return (middle - begin > end - middle) - (middle - begin < end - middle)
    return 1 if order > 0 else -1
