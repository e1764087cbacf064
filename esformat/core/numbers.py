# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""Packed integers on their way to int64: their byte planes, put together again."""

import cython


def join_planes(
    body: cython.const[cython.uchar][::1],
    raw_at: cython.Py_ssize_t,
    raw: cython.Py_ssize_t,
    rest: cython.const[cython.uchar][::1],
    rest_at: cython.Py_ssize_t,
    width: cython.Py_ssize_t,
    count: cython.Py_ssize_t,
    low: cython.Py_ssize_t,
    base: cython.longlong,
    out: cython.longlong[::1],
    at: cython.Py_ssize_t,
    size: cython.Py_ssize_t,
) -> None:
    """Write numbers low … low + size - 1 of a pack of `count` to out[at:at + size], modulo 2^64.

    Byte k of number i is body[raw_at + k × count + i] for the lowest `raw` bytes; those up to `width` follow from
    rest[rest_at] on in the same manner. Raises ValueError where either lies outside of its buffer.
    """
    packed: cython.Py_ssize_t = width - raw
    if not 0 <= raw <= width <= 8 or low < 0 or size < 0 or at < 0 or raw_at < 0 or rest_at < 0:
        raise ValueError("the bytes of packed numbers do not fit")
    # Divided, so that no product can overflow: what follows proves every index of the loops.
    if size > count - low or size > out.shape[0] - at:
        raise ValueError("fewer packed numbers than asked for")
    if raw and (raw_at > body.shape[0] or count > (body.shape[0] - raw_at) // raw):
        raise ValueError("the bytes of packed numbers end early")
    if packed and (rest_at > rest.shape[0] or count > (rest.shape[0] - rest_at) // packed):
        raise ValueError("the bytes of packed numbers end early")
    i: cython.Py_ssize_t
    k: cython.Py_ssize_t
    first: cython.Py_ssize_t
    with cython.nogil:
        for i in range(size):
            out[at + i] = base
        for k in range(width):
            if k < raw:
                first = raw_at + k * count + low
                for i in range(size):
                    out[at + i] = _added(out[at + i], body[first + i], k)
            else:
                first = rest_at + (k - raw) * count + low
                for i in range(size):
                    out[at + i] = _added(out[at + i], rest[first + i], k)


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _added(number: cython.longlong, byte: cython.uchar, place: cython.Py_ssize_t) -> cython.longlong:
    """A byte at a place of its own, added modulo 2^64."""
    shifted: cython.ulonglong = cython.cast(cython.ulonglong, byte) << (8 * place)
    return cython.cast(cython.longlong, cython.cast(cython.ulonglong, number) + shifted)


def sum_steps(
    steps: cython.const[cython.longlong][::1],
    first: cython.Py_ssize_t,
    skipped: cython.Py_ssize_t,
    base: cython.longlong,
    out: cython.longlong[::1],
) -> None:
    """Sum differences from steps[first] on, modulo 2^64; the sums behind the first `skipped` ones fill `out`.

    Raises ValueError where there are fewer of them.
    """
    n: cython.Py_ssize_t = out.shape[0]
    if first < 0 or skipped < 0 or first > steps.shape[0] or skipped > steps.shape[0] - first:
        raise ValueError("fewer numbers than asked for")
    if n > steps.shape[0] - first - skipped:
        raise ValueError("fewer numbers than asked for")
    i: cython.Py_ssize_t
    number: cython.ulonglong = cython.cast(cython.ulonglong, base)
    with cython.nogil:
        for i in range(first, first + skipped):
            number += cython.cast(cython.ulonglong, steps[i])
        for i in range(n):
            number += cython.cast(cython.ulonglong, steps[first + skipped + i])
            out[i] = cython.cast(cython.longlong, number)
