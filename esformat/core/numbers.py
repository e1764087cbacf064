# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""Decode packed integers to int64: read headers, join bits or byte planes, sum differences.

A pack is: u8 width, u8 raw planes, u8 bytes of the base (0 or 8), u8 codec, u32 stored bytes; the base, the raw planes,
the stored bytes. If raw planes is 255, the stored bytes are adjacent numbers of `width` bits; otherwise they are the
planes that are not raw, compressed. `esformat/format/packing.py` writes them.
"""

import array as arrays
from typing import Any

import cython
from cython.cimports.cpython import array
from cython.cimports.cpython.bytes import PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cython.cimports.esformat.core.packs import PackHead, fill_numbers, join_numbers, read_pack_head, unpack_numbers
from cython.cimports.libc.string import memcpy, memset

from esformat.errors import CorruptSegmentError

_LONGS = cython.declare(array.array, arrays.array("q"))
_BYTES = cython.declare(array.array, arrays.array("B"))

BITS = 255
"""In place of the number of raw planes: the pack has bits instead of planes."""


@cython.final
@cython.cclass
class Pack:
    """One packed sequence within a block body: where its parts are. Nothing is decoded yet."""

    numbers = cython.declare(cython.Py_ssize_t, visibility="readonly")  # type: int
    width = cython.declare(cython.Py_ssize_t, visibility="readonly")  # type: int
    """Bytes that each number takes, in planes or when its bits are unpacked."""
    bits = cython.declare(cython.Py_ssize_t, visibility="readonly")  # type: int
    """Bits of each number; 0 if the pack has planes."""
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
    head = cython.declare(PackHead)
    if not body.shape[0] or not read_pack_head(cython.address(body[0]), body.shape[0], at, count, cython.address(head)):
        raise CorruptSegmentError("the header of packed numbers breaks the format, or they are cut short")
    pack: Pack = Pack.__new__(Pack)
    pack.numbers, pack.width, pack.bits, pack.raw, pack.codec = count, head.width, head.bits, head.raw, head.codec
    pack.base, pack.raw_at, pack.stored_at, pack.end = head.base, head.raw_at, head.stored_at, head.end
    return pack


def read_columns(
    body: cython.const[cython.uchar][::1],
    at: cython.Py_ssize_t,
    count: cython.Py_ssize_t,
    columns: cython.Py_ssize_t,
    out: cython.longlong[::1],
) -> int:
    """Decode several adjacent packs of `count` numbers each to `out`.

    Returns the byte after the last pack, or -1 if one of them is compressed. Raises CorruptSegmentError.
    """
    column: cython.Py_ssize_t
    pack: Pack
    for column in range(columns):
        pack = _read(body, at, count)
        if not pack.bits and (pack.codec or pack.end - pack.stored_at != (pack.width - pack.raw) * count):
            return -1
        _join(body, pack, body, pack.stored_at, 0, out, column * count, count)
        at = pack.end
    return at


def read_numbers(body: Any, at: cython.Py_ssize_t, count: cython.Py_ssize_t, plain: Any) -> tuple[Any, int]:
    """Decode the `count` numbers of the pack at a byte of a body: an array of int64, and the byte after the pack.

    plain: a decompressor. The caller bounds `count`. Raises CorruptSegmentError.
    """
    head = cython.declare(PackHead)
    view: cython.const[cython.uchar][::1] = body
    if not view.shape[0] or not read_pack_head(cython.address(view[0]), view.shape[0], at, count, cython.address(head)):
        raise CorruptSegmentError("the header of packed numbers breaks the format, or they are cut short")
    made: array.array = array.clone(_LONGS, count, False)
    fill_numbers(body, cython.address(view[0]), cython.address(head), count, plain, 0, made.data.as_longlongs, count)
    return made, head.end


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

    Byte k of number i is body[raw_at + k × count + i] for the raw planes; the other planes follow in the same layout
    from rest[rest_at] on. A pack of bits is in `body`, and `rest` is not used. Raises ValueError if a byte is outside
    of its buffer.
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
    packed: cython.Py_ssize_t = width - raw
    # The pack may be of another body: the following checks prove every index of the loops.
    if width > 8 or low < 0 or size < 0 or at < 0 or rest_at < 0:
        raise ValueError("the bytes of packed numbers do not fit")
    if size > count - low or size > out.shape[0] - at:
        raise ValueError("fewer packed numbers than requested")
    if pack.bits:
        if pack.end > body.shape[0]:
            raise ValueError("the bytes of packed numbers end early")
        if size:
            unpack_numbers(
                cython.address(body[pack.stored_at]),
                pack.end - pack.stored_at,
                pack.bits,
                pack.base,
                low,
                cython.address(out[at]),
                size,
            )
        return 0
    if raw and (raw_at > body.shape[0] or count > (body.shape[0] - raw_at) // raw):
        raise ValueError("the bytes of packed numbers end early")
    if packed and (rest_at > rest.shape[0] or count > (rest.shape[0] - rest_at) // packed):
        raise ValueError("the bytes of packed numbers end early")
    head = cython.declare(PackHead)
    head.width, head.raw, head.base = width, raw, pack.base
    if size:
        join_numbers(
            cython.address(body[raw_at]) if raw else cython.NULL,
            cython.address(rest[rest_at]) if packed else cython.NULL,
            cython.address(head),
            count,
            low,
            cython.address(out[at]),
            size,
        )
    return 0


def join_many(parts: list[tuple[Any, Pack]], decompressor: Any, allocate: Any) -> Any:
    """Decode the numbers of several packs, each with the body that contains it, one after another.

    Returns bytes if each pack has one plane, compressed, and no base: its numbers are those bytes. Otherwise returns
    int64, in memory that `allocate` returns for a number of bytes. Adjacent compressed planes of the same codec are
    decompressed with one call. Raises what the decompressor raises.
    """
    pack: Pack
    numbers: cython.Py_ssize_t = 0
    narrow: cython.bint = True
    sizes: list[int] = []
    for _, pack in parts:
        numbers += pack.numbers
        narrow = narrow and pack.width == 1 and not pack.raw and not pack.base and not pack.bits
        sizes.append(0 if pack.bits else (pack.width - pack.raw) * pack.numbers)
    rest: array.array = array.clone(_BYTES, sum(sizes), False)
    _decompress(parts, sizes, decompressor, memoryview(rest))
    if narrow or not numbers:
        return rest
    made: Any = allocate(8 * numbers)
    into: cython.longlong[::1] = memoryview(made).cast("q")
    if into.shape[0] != numbers:
        raise ValueError("less memory was allocated than requested")
    planes: cython.const[cython.uchar][::1] = rest
    at: cython.Py_ssize_t = 0
    rest_at: cython.Py_ssize_t = 0
    for body, pack in parts:
        _join(body, pack, planes, rest_at, 0, into, at, pack.numbers)
        at += pack.numbers
        rest_at += 0 if pack.bits else (pack.width - pack.raw) * pack.numbers
    return made


@cython.cfunc
@cython.exceptval(-1)
def _decompress(parts: list[tuple[Any, Pack]], sizes: list[int], decompressor: Any, out: Any) -> cython.int:
    """Decompress the planes of packs, `sizes` bytes of each, into `out`."""
    pack: Pack
    frames: list[Any] = []
    taken: list[int] = []
    codec: cython.int = 0
    start: cython.Py_ssize_t = 0
    end: cython.Py_ssize_t = 0
    i: cython.Py_ssize_t
    for i in range(len(parts)):
        body, pack = parts[i]
        if not sizes[i]:
            continue
        if frames and pack.codec != codec:
            decompressor.decompress_run(
                codec, memoryview(b"".join(frames)), list(map(len, frames)), taken, out[start:end]
            )
            frames, taken, start = [], [], end
        codec = pack.codec
        frames.append(body[pack.stored_at : pack.end])
        taken.append(sizes[i])
        end += sizes[i]
    if frames:
        _decompress_run(decompressor, codec, frames, taken, out[start:end])
    return 0


@cython.cfunc
@cython.exceptval(-1)
def _decompress_run(decompressor: Any, codec: cython.int, frames: list[Any], sizes: list[int], out: Any) -> cython.int:
    decompressor.decompress_run(codec, memoryview(b"".join(frames)), list(map(len, frames)), sizes, out)
    return 0


def pack_bits(numbers: cython.const[cython.longlong][::1], base: cython.longlong, bits: cython.Py_ssize_t) -> bytes:
    """The lowest bits of each number minus the base, adjacent, the lowest bit of a byte first; unused bits are 0.

    Raises ValueError for less than one bit or more than 64.
    """
    if not 1 <= bits <= 64:
        raise ValueError("a number must have 1 to 64 bits")
    n: cython.Py_ssize_t = numbers.shape[0]
    size: cython.Py_ssize_t = (n * bits + 7) // 8
    made: bytes = PyBytes_FromStringAndSize(cython.NULL, size)
    out: cython.p_uchar = cython.cast(cython.p_uchar, PyBytes_AS_STRING(made))
    i: cython.Py_ssize_t
    at: cython.Py_ssize_t = 0
    held: cython.Py_ssize_t = 0  # bits of `word` that are not written yet, less than 8
    left: cython.Py_ssize_t
    word: cython.ulonglong = 0
    number: cython.ulonglong
    with cython.nogil:
        memset(out, 0, size)
        for i in range(n):
            number = cython.cast(cython.ulonglong, numbers[i]) - cython.cast(cython.ulonglong, base)
            if bits < 64:
                number &= (cython.cast(cython.ulonglong, 1) << bits) - 1
            word |= number << held
            left = held + bits
            if left >= 64:
                memcpy(out + at, cython.address(word), 8)
                at += 8
                left -= 64
                word = number >> (bits - left) if left else 0
            while left >= 8:
                out[at] = word & 255
                at += 1
                word >>= 8
                left -= 8
            held = left
        if held:
            out[at] = word & 255
    return made


def sum_runs(
    steps: cython.longlong[::1],
    starts: cython.const[cython.longlong][::1],
    bases: cython.const[cython.longlong][::1],
) -> None:
    """Replace differences by their cumulative sums, modulo 2^64 and in place.

    The sums from starts[i] on, up to the next start, begin with bases[i]. Starts ascend; the first is 0. Raises
    ValueError if they do not, or are beyond the last difference.
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


def sum_runs_at(
    parts: list[tuple[Any, Pack]],
    starts: cython.const[cython.longlong][::1],
    bases: cython.const[cython.longlong][::1],
    places: cython.const[cython.longlong][::1],
    decompressor: Any,
) -> Any:
    """The sums that `join_many` and `sum_runs` give, at ascending places only, as an array of int64.

    Of each run only the beginning is decoded, up to its last place. No run may continue in another pack. Raises
    ValueError for other starts and places, and what the decompressor raises.
    """
    pack: Pack
    runs: cython.Py_ssize_t = starts.shape[0]
    count: cython.Py_ssize_t = places.shape[0]
    if bases.shape[0] != runs or (count and (not runs or starts[0] or places[0] < 0)):
        raise ValueError("the starts of runs do not fit")
    found: array.array = array.clone(_LONGS, count, False)
    scratch: array.array = array.clone(_LONGS, 0, False)
    out: cython.p_longlong = found.data.as_longlongs
    done: cython.Py_ssize_t = 0  # places
    last: cython.Py_ssize_t
    run: cython.Py_ssize_t = 0
    first: cython.longlong = 0  # the first row of the pack
    after: cython.longlong  # the row after a run
    size: cython.longlong
    i: cython.longlong
    number: cython.ulonglong
    for body, pack in parts:
        if done < count and places[done] < first + pack.numbers:
            view: cython.const[cython.uchar][::1] = body
            rest, rest_at = _rest_of(body, pack, decompressor)
            if len(scratch) < pack.numbers:
                scratch = array.clone(_LONGS, pack.numbers, False)
            steps: cython.longlong[::1] = scratch
            while done < count and places[done] < first + pack.numbers:
                while run + 1 < runs and starts[run + 1] <= places[done]:
                    run += 1
                after = starts[run + 1] if run + 1 < runs else first + pack.numbers
                last = done
                while last + 1 < count and places[last + 1] < after:
                    last += 1
                    if places[last] < places[last - 1]:
                        raise ValueError("the places do not ascend")
                size = places[last] + 1 - starts[run]
                # Also refuses a run that begins in an earlier pack, and one that continues in a later one.
                _join(view, pack, rest, rest_at, starts[run] - first, steps, 0, size)
                number = cython.cast(cython.ulonglong, bases[run])
                for i in range(size):
                    number += cython.cast(cython.ulonglong, steps[i])
                    while done <= last and places[done] == starts[run] + i:
                        out[done] = cython.cast(cython.longlong, number)
                        done += 1
                if done <= last:
                    raise ValueError("the places do not ascend")
        first += pack.numbers
    if done < count:
        raise ValueError("fewer packed numbers than requested")
    return found


@cython.cfunc
def _rest_of(body: Any, pack: Pack, decompressor: Any) -> tuple[Any, cython.Py_ssize_t]:
    """The planes of a pack that are not raw, decompressed, and the byte at which they begin."""
    size: cython.Py_ssize_t = 0 if pack.bits else (pack.width - pack.raw) * pack.numbers
    if not size or (not pack.codec and pack.end - pack.stored_at == size):
        return body, pack.stored_at
    return decompressor.decompress(pack.codec, body[pack.stored_at : pack.end], size), 0


def count_by_width(
    times: cython.const[cython.longlong][::1],
    low: cython.longlong,
    high: cython.longlong,
    width: cython.ulonglong,
    begin: cython.ulonglong,
    counts: cython.longlong[::1],
) -> tuple[int, int] | None:
    """Count the times from low to high, both included, in spans of equal width; return the smallest and the largest of
    them, None if there are none. Other times are ignored.

    counts: of each span, incremented. begin: of the first span, modulo 2^64, and not after low. Raises ValueError for a
    width of 0, and if counts end before high.
    """
    n: cython.Py_ssize_t = times.shape[0]
    size: cython.ulonglong = counts.shape[0]
    first: cython.ulonglong = cython.cast(cython.ulonglong, low) - begin
    last: cython.ulonglong = cython.cast(cython.ulonglong, high) - begin
    if not width or (low <= high and (first > last or last // width >= size)):  # so every place below is valid
        raise ValueError("the spans do not fit the times")
    share: cython.double = 1.0 / width
    i: cython.Py_ssize_t
    time: cython.longlong
    apart: cython.ulonglong
    place: cython.ulonglong
    least: cython.longlong = high
    most: cython.longlong = low
    found: cython.longlong = 0
    with cython.nogil:
        for i in range(n):
            time = times[i]
            if time < low or time > high:
                continue
            apart = cython.cast(cython.ulonglong, time) - begin
            if apart >> 52:
                place = apart // width
            else:  # exact as a double; a product, off by at most 1, takes a third of a division's time
                place = cython.cast(cython.ulonglong, apart * share)
                if place * width > apart:
                    place -= 1
                elif apart - place * width >= width:
                    place += 1
            counts[place] += 1
            found += 1
            least = min(least, time)
            most = max(most, time)
    return (least, most) if found else None
