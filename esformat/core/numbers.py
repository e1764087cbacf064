# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""Packed integers on their way to int64: their headers read, their byte planes put together, differences summed up.

A pack is: u8 width, u8 raw planes, u8 bytes of the base (0 or 8), u8 codec, u32 bytes of compressed planes; the base,
the raw planes, the compressed ones. `esformat/format/packing.py` writes them.
"""

import cython

from esformat.errors import CorruptSegmentError


@cython.final
@cython.cclass
class Pack:
    """One packed sequence within a block body: where its parts lie. Nothing is decoded yet."""

    numbers = cython.declare(cython.Py_ssize_t, visibility="readonly")  # type: int
    width = cython.declare(cython.Py_ssize_t, visibility="readonly")  # type: int
    raw = cython.declare(cython.Py_ssize_t, visibility="readonly")  # type: int
    codec = cython.declare(cython.int, visibility="readonly")  # type: int
    base = cython.declare(cython.longlong, visibility="readonly")  # type: int
    raw_at = cython.declare(cython.Py_ssize_t, visibility="readonly")  # type: int
    stored_at = cython.declare(cython.Py_ssize_t, visibility="readonly")  # type: int
    end = cython.declare(cython.Py_ssize_t, visibility="readonly")  # type: int


def read_pack(
    body: cython.const[cython.uchar][::1],
    at: cython.Py_ssize_t,
    count: cython.Py_ssize_t,
) -> Pack:
    """Read the header of `count` packed numbers at byte `at` of `body`. Raises CorruptSegmentError."""
    return _read(body, at, count)


@cython.cfunc
def _read(
    body: cython.const[cython.uchar][::1],
    at: cython.Py_ssize_t,
    count: cython.Py_ssize_t,
) -> Pack:
    size: cython.Py_ssize_t = body.shape[0]
    if at < 0 or count < 0 or at > size - 8:
        raise CorruptSegmentError("packed numbers are cut short")
    pack: Pack = Pack.__new__(Pack)
    base_bytes: cython.Py_ssize_t = body[at + 2]
    # Little-endian, as all of the format. Of all bytes that are read here `at` names the first, and what was checked
    # the last; divided, so that no product can overflow.
    stored: cython.Py_ssize_t = (
        body[at + 4] + (body[at + 5] << 8) + (body[at + 6] << 16) + (cython.cast(cython.Py_ssize_t, body[at + 7]) << 24)
    )
    pack.numbers, pack.width, pack.raw, pack.codec = count, body[at], body[at + 1], body[at + 3]
    pack.raw_at = at + 8 + base_bytes
    if (
        pack.width > 8
        or (not count and pack.width + base_bytes)
        or pack.raw > pack.width
        or (base_bytes != 0 and base_bytes != 8)
        or pack.raw_at > size
        or (pack.raw and count > (size - pack.raw_at) // pack.raw)
        or (pack.raw == pack.width and (stored or pack.codec))
    ):
        raise CorruptSegmentError("the header of packed numbers breaks the format")
    pack.stored_at = pack.raw_at + pack.raw * count
    pack.end = pack.stored_at + stored
    if pack.end > size:
        raise CorruptSegmentError("the header of packed numbers breaks the format")
    pack.base = 0
    base: cython.ulonglong = 0
    i: cython.Py_ssize_t
    if base_bytes:
        for i in range(8):
            base |= cython.cast(cython.ulonglong, body[at + 8 + i]) << (8 * i)
        pack.base = cython.cast(cython.longlong, base)
    return pack


def read_columns(
    body: cython.const[cython.uchar][::1],
    at: cython.Py_ssize_t,
    count: cython.Py_ssize_t,
    columns: cython.Py_ssize_t,
    out: cython.longlong[::1],
) -> int:
    """Put the numbers of several packs of `count` each, which stand one after another, into `out`.

    Gives the byte after the last, or -1 where one of them is compressed. Raises CorruptSegmentError.
    """
    column: cython.Py_ssize_t
    pack: Pack
    for column in range(columns):
        pack = _read(body, at, count)
        if pack.codec or pack.end - pack.stored_at != (pack.width - pack.raw) * count:
            return -1
        _join(body, pack, body, pack.stored_at, 0, out, column * count, count)
        at = pack.end
    return at


def join_planes(
    body: cython.const[cython.uchar][::1],
    pack: Pack,
    rest: cython.const[cython.uchar][::1],
    rest_at: cython.Py_ssize_t,
    low: cython.Py_ssize_t,
    out: cython.longlong[::1],
    at: cython.Py_ssize_t,
    size: cython.Py_ssize_t,
) -> None:
    """Write numbers low … low + size - 1 of a pack to out[at:at + size], modulo 2^64.

    Byte k of number i is body[raw_at + k × count + i] for the raw planes; those of the others follow from rest[rest_at]
    on in the same manner. Raises ValueError where either lies outside of its buffer.
    """
    _join(body, pack, rest, rest_at, low, out, at, size)


@cython.cfunc
@cython.exceptval(-1)
def _join(
    body: cython.const[cython.uchar][::1],
    pack: Pack,
    rest: cython.const[cython.uchar][::1],
    rest_at: cython.Py_ssize_t,
    low: cython.Py_ssize_t,
    out: cython.longlong[::1],
    at: cython.Py_ssize_t,
    size: cython.Py_ssize_t,
) -> cython.int:
    count: cython.Py_ssize_t = pack.numbers
    raw: cython.Py_ssize_t = pack.raw
    width: cython.Py_ssize_t = pack.width
    raw_at: cython.Py_ssize_t = pack.raw_at
    base: cython.longlong = pack.base
    packed: cython.Py_ssize_t = width - raw
    # The pack may be of another body: what follows proves every index of the loops.
    if width > 8 or low < 0 or size < 0 or at < 0 or rest_at < 0:
        raise ValueError("the bytes of packed numbers do not fit")
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
    return 0


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


def sum_runs(
    steps: cython.longlong[::1],
    starts: cython.const[cython.longlong][::1],
    bases: cython.const[cython.longlong][::1],
) -> None:
    """Make differences the numbers that they stand for, modulo 2^64 and in place.

    Those from starts[i] on, up to the next start, are counted from bases[i]. Starts ascend; the first is 0. Raises
    ValueError where they do not, or lie beyond the last difference.
    """
    n: cython.Py_ssize_t = steps.shape[0]
    runs: cython.Py_ssize_t = starts.shape[0]
    if bases.shape[0] != runs or (n and (not runs or starts[0])):
        raise ValueError("the starts of runs do not fit")
    i: cython.Py_ssize_t
    k: cython.Py_ssize_t
    end: cython.longlong
    number: cython.ulonglong
    with cython.nogil:
        for k in range(runs):
            end = starts[k + 1] if k + 1 < runs else n
            if starts[k] < 0 or end < starts[k] or end > n:
                with cython.gil:
                    raise ValueError("the starts of runs do not fit")
            number = cython.cast(cython.ulonglong, bases[k])
            for i in range(starts[k], end):
                number += cython.cast(cython.ulonglong, steps[i])
                steps[i] = cython.cast(cython.longlong, number)
