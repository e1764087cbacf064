# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""Text and bytes cut out of the bytes of their frames."""

from typing import Any

import cython


def total(lengths: bytes, first: cython.Py_ssize_t, last: cython.Py_ssize_t) -> cython.Py_ssize_t:
    """The sum of lengths[first:last], of one byte each; `last` may lie beyond the end."""
    at: cython.p_uchar = lengths
    i: cython.Py_ssize_t
    found: cython.Py_ssize_t = 0
    for i in range(max(first, 0), min(last, len(lengths))):
        found += at[i]
    return found


def cut_short(
    stored: bytes,
    lengths: bytes,
    start: cython.Py_ssize_t,
    low: cython.Py_ssize_t,
    high: cython.Py_ssize_t,
) -> list[Any]:
    """Values [low, high) out of `stored`, which begins with value `start`. Raises ValueError where it ends early.

    lengths: of all values, one byte each.
    """
    if not 0 <= start <= low <= high <= len(lengths):
        raise ValueError("fewer values than asked for")
    length: cython.p_uchar = lengths
    at: cython.p_char = stored
    i: cython.Py_ssize_t
    begin: cython.Py_ssize_t = 0
    for i in range(start, low):
        begin += length[i]
    values: list[Any] = []
    for i in range(low, high):
        if length[i] > len(stored) - begin:
            raise ValueError("the bytes of values end early")
        values.append(at[begin : begin + length[i]])
        begin += length[i]
    return values


def cut(
    stored: cython.const[cython.uchar][::1],
    edges: cython.const[cython.longlong][::1],
    low: cython.Py_ssize_t,
    high: cython.Py_ssize_t,
    origin: cython.longlong,
) -> list[Any]:
    """Values [low, high): value i is bytes [edges[i], edges[i + 1]), and `stored` begins with byte `origin`.

    Raises ValueError where an edge lies outside.
    """
    if not 0 <= low <= high < edges.shape[0]:
        raise ValueError("fewer values than asked for")
    values: list[Any] = []
    if low == high:
        return values
    if not stored.shape[0]:
        at: cython.p_char = b""
    else:
        at = cython.cast(cython.p_char, cython.address(stored[0]))
    i: cython.Py_ssize_t
    a: cython.Py_ssize_t
    b: cython.Py_ssize_t
    for i in range(low, high):
        a, b = edges[i] - origin, edges[i + 1] - origin
        if not 0 <= a <= b <= stored.shape[0]:
            raise ValueError("the bytes of values end early")
        values.append(at[a:b])
    return values


def short_offsets(
    lengths: bytes, start: cython.Py_ssize_t, low: cython.Py_ssize_t, high: cython.Py_ssize_t, out: cython.int[::1]
) -> None:
    """Where values low … high - 1 begin within bytes that begin with value `start`, and where the last one ends.

    lengths: of all values, one byte each. Raises ValueError where there are fewer, or where `out` is of another size.
    """
    if not 0 <= start <= low <= high <= len(lengths) or out.shape[0] != high - low + 1 or high - start > 1 << 23:
        raise ValueError("fewer values than asked for")
    length: cython.p_uchar = lengths
    i: cython.Py_ssize_t
    at: cython.int = 0
    for i in range(start, low):
        at += length[i]
    for i in range(low, high):
        out[i - low] = at
        at += length[i]
    out[high - low] = at


Code = cython.fused_type(cython.uchar, cython.longlong)


def gather_offsets(
    codes: cython.const[Code][::1], edges: cython.const[cython.int][::1], out: cython.int[::1]
) -> cython.longlong:
    """Where each row's value begins and the last one ends, once the values are put one behind another.

    Row i has value codes[i], which is as long as edges[code + 1] - edges[code]. Raises IndexError for a code without
    a value, OverflowError where the rows take more than 2 GiB.
    """
    n: cython.Py_ssize_t = codes.shape[0]
    values: cython.Py_ssize_t = edges.shape[0] - 1
    i: cython.Py_ssize_t
    code: cython.longlong = 0
    at: cython.longlong = 0
    if out.shape[0] != n + 1:
        raise ValueError("offsets of another number of rows")
    with cython.nogil:
        for i in range(n):
            out[i] = cython.cast(cython.int, at)
            code = codes[i]
            if not 0 <= code < values or edges[code + 1] < edges[code]:
                at = -1
                break
            at += edges[code + 1] - edges[code]
            if at > 0x7FFF_FFFF:
                break
    if at < 0:
        raise IndexError(code)
    if at > 0x7FFF_FFFF:
        raise OverflowError("the values of rows take more than 2 GiB")
    out[n] = cython.cast(cython.int, at)
    return at


def gather_bytes(
    codes: cython.const[Code][::1],
    edges: cython.const[cython.int][::1],
    data: cython.const[cython.uchar][::1],
    out: cython.uchar[::1],
) -> None:
    """Put the values of rows one behind another, so that they fill `out`; arguments as `gather_offsets` took them.

    Raises ValueError where a value lies outside of `data`, or where they are more or fewer bytes than `out`.
    """
    n: cython.Py_ssize_t = codes.shape[0]
    i: cython.Py_ssize_t
    k: cython.Py_ssize_t
    code: cython.Py_ssize_t
    size: cython.Py_ssize_t
    begin: cython.Py_ssize_t
    at: cython.Py_ssize_t = 0
    outside: cython.bint = False
    with cython.nogil:
        for i in range(n):
            code = codes[i]
            if not 0 <= code < edges.shape[0] - 1:
                outside = True
                break
            begin = edges[code]
            size = edges[code + 1] - begin
            if begin < 0 or size < 0 or begin > data.shape[0] - size or at > out.shape[0] - size:
                outside = True
                break
            for k in range(size):
                out[at + k] = data[begin + k]
            at += size
    if outside or at != out.shape[0]:
        raise ValueError("the bytes of values end early")
