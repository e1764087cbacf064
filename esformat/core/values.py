# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""Cut text and bytes out of the bytes of their frames."""

from typing import Any

import cython
from cython.cimports.cpython.bytes import PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cython.cimports.cpython.unicode import PyUnicode_AsUTF8AndSize
from cython.cimports.esformat.core.caches import Shelf
from cython.cimports.esformat.core.fetching import fetch_early
from cython.cimports.libc.stdlib import free, malloc
from cython.cimports.libc.string import memcpy

_MOST = cython.declare(cython.Py_ssize_t, 0x7FFF_FFFF)  # largest int32
_SLACK = cython.declare(cython.Py_ssize_t, 32)  # bytes copied at a time, however short a value is
_ABSENT = cython.declare(cython.Py_ssize_t, -1)
_TOO_LONG = cython.declare(cython.Py_ssize_t, -2)
_Source = cython.struct(begin=cython.p_const_uchar, size=cython.longlong)
"""Where a value is in memory, and its size."""


def total(lengths: bytes, first: cython.Py_ssize_t, last: cython.Py_ssize_t) -> cython.Py_ssize_t:
    """The sum of lengths[first:last], of one byte each; `last` may be beyond the end."""
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
    """Cut values [low, high) out of `stored`, which begins with value `start`. Raises ValueError if it ends early.

    lengths: of all values, one byte each.
    """
    if not 0 <= start <= low <= high <= len(lengths):
        raise ValueError("fewer values than requested")
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
    """Cut out values [low, high): value i is bytes [edges[i], edges[i + 1]), and `stored` begins with byte `origin`.

    Raises ValueError if an edge is out of bounds.
    """
    if not 0 <= low <= high < edges.shape[0]:
        raise ValueError("fewer values than requested")
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


@cython.final
@cython.cclass
class FrameValues:
    """The values of a node of frames, read from the frames that earlier reads cached."""

    _frames: Shelf
    _key: object
    _rows: cython.Py_ssize_t
    _lengths: bytes | None
    _edges: cython.const[cython.longlong][::1]

    def __init__(
        self,
        frames: Shelf,
        key: object,
        rows: cython.Py_ssize_t,
        lengths: bytes | None,
        edges: cython.const[cython.longlong][::1] | None,
    ) -> None:
        """frames: by the node's key and their number, each of `rows` values. lengths: of all values, one byte each; or
        edges: value i is bytes [edges[i], edges[i + 1]) of all.
        """
        if rows < 1 or (lengths is None) == (edges is None):
            raise ValueError("frames have rows, and either lengths or edges")
        self._frames, self._key, self._rows, self._lengths = frames, key, rows, lengths
        if edges is not None:
            self._edges = edges

    def cached_values(
        self, low: cython.Py_ssize_t, high: cython.Py_ssize_t, chosen: list[int] | None
    ) -> list[Any] | None:
        """Values [low, high), or the ascending places among them that are `chosen`; None if they are not cached.

        Raises ValueError for places out of bounds, and if a frame ends early.
        """
        count: cython.Py_ssize_t = self._edges.shape[0] - 1 if self._lengths is None else len(self._lengths)
        if not 0 <= low < high <= count:
            raise ValueError("fewer values than requested")
        number: cython.Py_ssize_t = low // self._rows
        if (high - 1) // self._rows != number:
            return None
        found = self._frames._find((self._key, number))
        if found is None:
            return None
        frame: bytes = found
        n: cython.Py_ssize_t = high - low if chosen is None else len(chosen)
        i: cython.Py_ssize_t
        place: cython.Py_ssize_t
        at: cython.Py_ssize_t = number * self._rows  # the value that begins at `begin` of the frame
        begin: cython.longlong = 0
        end: cython.longlong
        length: cython.p_uchar = cython.NULL
        if self._lengths is not None:
            length = self._lengths
        values: list[Any] = []
        for i in range(n):
            place = low + i if chosen is None else chosen[i]
            if not at <= place < high or place < low:
                raise ValueError("fewer values than requested")
            if length != cython.NULL:
                while at < place:
                    begin += length[at]
                    at += 1
                end = begin + length[at]
            else:
                begin = self._edges[place] - self._edges[number * self._rows]
                end = self._edges[place + 1] - self._edges[number * self._rows]
            if not 0 <= begin <= end <= len(frame):
                raise ValueError("the bytes of values end early")
            values.append(PyBytes_FromStringAndSize(PyBytes_AS_STRING(frame) + begin, end - begin))
        return values


def cut_places(
    frames: list[Any],
    first: cython.Py_ssize_t,
    rows: cython.Py_ssize_t,
    edges: cython.const[cython.longlong][::1],
    places: list[int],
) -> list[Any]:
    """Cut the values at some places out of their frames of `rows` values each; frames[0] is frame number `first`.

    Value i is bytes [edges[i], edges[i + 1]) of all. Raises ValueError for a place outside of the frames, and if a
    frame is None or ends early.
    """
    if rows < 1 or first < 0:
        raise ValueError("fewer values than requested")
    values: list[Any] = []
    frame: bytes | None
    place: cython.Py_ssize_t
    number: cython.Py_ssize_t
    a: cython.Py_ssize_t
    b: cython.Py_ssize_t
    for place in places:
        number = place // rows
        if not 0 <= place < edges.shape[0] - 1 or not first <= number < first + len(frames):
            raise ValueError("fewer values than requested")
        frame = frames[number - first]
        a = edges[place] - edges[number * rows]
        b = edges[place + 1] - edges[number * rows]
        if frame is None or not 0 <= a <= b <= len(frame):
            raise ValueError("the bytes of values end early")
        values.append(cython.cast(cython.p_char, frame)[a:b])
    return values


def short_offsets(lengths: bytes, start: cython.Py_ssize_t, low: cython.Py_ssize_t, high: cython.Py_ssize_t) -> bytes:
    """The offsets of values low … high - 1 in bytes that begin with value `start`, followed by the end of the last one.

    lengths: of all values, one byte each. Returns the memory of an int32 array. Raises ValueError.
    """
    if not 0 <= start <= low <= high <= len(lengths) or high - start > 1 << 23:
        raise ValueError("fewer values than requested")
    offsets: bytes = PyBytes_FromStringAndSize(cython.NULL, 4 * (high - low + 1))
    out: cython.p_int = cython.cast(cython.p_int, PyBytes_AS_STRING(offsets))
    length: cython.p_uchar = lengths
    i: cython.Py_ssize_t
    at: cython.int = 0
    for i in range(start, low):
        at += length[i]
    for i in range(low, high):
        out[i - low] = at
        at += length[i]
    out[high - low] = at
    return offsets


def repeated(value: bytes, count: cython.Py_ssize_t) -> tuple[bytes, bytes]:
    """Repeat one value for `count` rows; returns the same as `gather`. Raises OverflowError beyond 2 GiB."""
    size: cython.Py_ssize_t = len(value)
    if not 0 <= count <= _MOST or (size and count > _MOST // size):
        raise OverflowError("the values of rows take more than 2 GiB")
    offsets: bytes = PyBytes_FromStringAndSize(cython.NULL, 4 * (count + 1))
    out: cython.p_int = cython.cast(cython.p_int, PyBytes_AS_STRING(offsets))
    i: cython.Py_ssize_t
    at: cython.uint = 0
    for i in range(count + 1):  # by addition, not multiplication: compilers process several at a time
        out[i] = cython.cast(cython.int, at)
        at += cython.cast(cython.uint, size)
    return offsets, value * count


Code = cython.fused_type(cython.uchar, cython.longlong)


def join_values(values: list[Any], texts: cython.bint) -> tuple[bytes, bytes] | None:
    """Concatenate texts, or bytes objects: returns their offsets (one more than values) as the memory of an int32
    array, and their bytes, UTF-8 for texts. None if one has another type, or if offsets exceed an int32.

    Raises UnicodeEncodeError for unpaired surrogates.
    """
    count: cython.Py_ssize_t = len(values)
    edges: bytes = PyBytes_FromStringAndSize(cython.NULL, 4 * (count + 1))
    edge: cython.p_int = cython.cast(cython.p_int, PyBytes_AS_STRING(edges))
    total: cython.Py_ssize_t = 0
    size: cython.Py_ssize_t = 0
    i: cython.Py_ssize_t
    edge[0] = 0
    for i in range(count):
        if not _bytes_of(values[i], texts, cython.address(size)) or size > _MOST - total:
            return None
        total += size
        edge[i + 1] = cython.cast(cython.int, total)
    data: bytes = PyBytes_FromStringAndSize(cython.NULL, total)
    out: cython.p_char = PyBytes_AS_STRING(data)
    for i in range(count):
        if edge[i + 1] > edge[i]:
            memcpy(out + edge[i], _bytes_of(values[i], texts, cython.address(size)), edge[i + 1] - edge[i])
    return edges, data


@cython.cfunc
@cython.exceptval(check=True)
def _bytes_of(value: Any, texts: cython.bint, size: cython.pointer(cython.Py_ssize_t)) -> cython.p_const_char:
    """The bytes of a text or of bytes, owned by the value, and their number; NULL for another type."""
    if texts and isinstance(value, str):
        return PyUnicode_AsUTF8AndSize(value, size)
    if not texts and isinstance(value, bytes):
        size[0] = len(cython.cast(bytes, value))
        return PyBytes_AS_STRING(value)
    return cython.NULL


def gather(
    codes: cython.const[Code][::1],
    edges: cython.const[cython.int][::1],
    data: cython.const[cython.uchar][::1],
    allocate: Any,
) -> tuple[Any, Any]:
    """Each row's value by its code: the offsets of the values (one more than rows) as the memory of an int32 array, and
    the concatenated values. Both are buffers from `allocate`, which takes a number of bytes, as Arrow's does.

    Value c is data[edges[c]:edges[c + 1]]. Raises IndexError for a code without a value, ValueError for a value outside
    of `data`, OverflowError if the rows take more than 2 GiB.
    """
    n: cython.Py_ssize_t = codes.shape[0]
    values: cython.Py_ssize_t = edges.shape[0] - 1
    i: cython.Py_ssize_t
    longest: cython.Py_ssize_t = 0
    for i in range(values):
        if edges[i] < 0 or edges[i + 1] < edges[i] or edges[i + 1] > data.shape[0]:
            raise ValueError("the bytes of values end early")
        longest = max(longest, edges[i + 1] - edges[i])
    if n > _MOST:
        raise OverflowError("the values of rows take more than 2 GiB")
    if longest <= _SLACK and n <= _MOST // (_SLACK + 1):
        padded: bytes = bytes(data[: edges[values]]) + bytes(_SLACK) if values > 0 else b""
        return _gather_short(codes, edges, padded, longest, allocate)
    return _gather_long(codes, edges, data, allocate)


@cython.cfunc
def _gather_short(
    codes: cython.const[Code][::1],
    edges: cython.const[cython.int][::1],
    padded: bytes,
    longest: cython.Py_ssize_t,
    allocate: Any,
) -> tuple[Any, Any]:
    """Like `gather`, for values of at most `longest` bytes, which is at most 32: 32 bytes follow the last value in
    `padded`. Allocates the longest value for each row, and 32 bytes more, so that no row must be measured before.
    """
    n: cython.Py_ssize_t = codes.shape[0]
    values: cython.Py_ssize_t = edges.shape[0] - 1
    at: cython.Py_ssize_t = 0
    offsets: Any = allocate(4 * (n + 1))
    gathered: Any = allocate(n * longest + _SLACK)
    ends: cython.p_int = cython.cast(cython.p_int, _memory(offsets, 4 * (n + 1)))
    out: cython.p_char = _memory(gathered, n * longest + _SLACK)
    text: cython.p_char = PyBytes_AS_STRING(padded)
    if n and values <= 0:
        raise IndexError("a code has no value")
    if n:
        source: cython.pointer(cython.const[Code]) = cython.address(codes[0])
        edge: cython.pointer(cython.const[cython.int]) = cython.address(edges[0])
        with cython.nogil:
            if longest > 16:
                at = _put_short(source, n, edge, values, text, True, ends, out)
            else:
                at = _put_short(source, n, edge, values, text, False, ends, out)
    if at < 0:
        raise IndexError("a code has no value")
    ends[n] = cython.cast(cython.int, at)
    if 2 * at < n * longest:  # so that callers keep little unused memory
        fitting: Any = allocate(at)
        if at:
            memcpy(_memory(fitting, at), out, at)
        return offsets, fitting
    return offsets, gathered


@cython.cfunc
@cython.exceptval(check=True)
def _memory(buffer: Any, size: cython.Py_ssize_t) -> cython.p_char:
    """The memory of a buffer that the caller keeps alive. size: above 0. Raises ValueError if it has fewer bytes."""
    view: cython.char[::1] = buffer
    if view.shape[0] < size:
        raise ValueError("less memory was allocated than requested")
    return cython.address(view[0])


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _put_short(
    codes: cython.pointer(cython.const[Code]),
    n: cython.Py_ssize_t,
    edges: cython.pointer(cython.const[cython.int]),
    values: cython.Py_ssize_t,
    text: cython.p_char,
    wide: cython.bint,
    ends: cython.p_int,
    out: cython.p_char,
) -> cython.Py_ssize_t:
    """Copy the value of each code: up to 32 bytes, or 16 if not `wide`. Returns the end, -1 for an invalid code."""
    i: cython.Py_ssize_t
    at: cython.Py_ssize_t = 0
    code: cython.ulonglong
    begin: cython.Py_ssize_t
    for i in range(n):
        code = cython.cast(cython.ulonglong, codes[i])
        if code >= cython.cast(cython.ulonglong, values):
            return -1
        ends[i] = cython.cast(cython.int, at)
        begin = edges[code]
        if wide:
            memcpy(out + at, text + begin, 32)
        else:
            memcpy(out + at, text + begin, 16)
        at += edges[code + 1] - begin
    return at


@cython.cfunc
def _gather_long(
    codes: cython.const[Code][::1],
    edges: cython.const[cython.int][::1],
    data: cython.const[cython.uchar][::1],
    allocate: Any,
) -> tuple[Any, Any]:
    """Like `gather`, for any values; `gather` has checked the edges."""
    n: cython.Py_ssize_t = codes.shape[0]
    values: cython.Py_ssize_t = edges.shape[0] - 1
    i: cython.Py_ssize_t
    at: cython.Py_ssize_t = 0
    code: cython.longlong
    wrong: cython.bint = False
    offsets: Any = allocate(4 * (n + 1))
    ends: cython.p_int = cython.cast(cython.p_int, _memory(offsets, 4 * (n + 1)))
    with cython.nogil:
        for i in range(n):
            ends[i] = cython.cast(cython.int, at)
            code = codes[i]
            if not 0 <= code < values:
                wrong = True
                break
            at += edges[code + 1] - edges[code]
            if at > _MOST:
                break
    if wrong:
        raise IndexError("a code has no value")
    if at > _MOST:
        raise OverflowError("the values of rows take more than 2 GiB")
    ends[n] = cython.cast(cython.int, at)
    gathered: Any = allocate(at)
    out: cython.p_char = _memory(gathered, at) if at else cython.NULL
    with cython.nogil:  # every code and edge was checked above, and no other thread changes the codes, which are ours
        for i in range(n):
            if ends[i + 1] > ends[i]:
                memcpy(out + ends[i], cython.address(data[edges[codes[i]]]), ends[i + 1] - ends[i])
    return offsets, gathered


def take_values(
    order: cython.const[cython.longlong][::1], parts: list[tuple[Any, Any]], allocate: Any
) -> tuple[Any, Any]:
    """The values with these numbers, counted across some arrays, in this order: buffers as those of `gather`.

    parts: the edges of each array's values (one more than values), and the bytes that they refer to. Raises IndexError
    for a number without a value, ValueError for a value outside of its bytes, OverflowError if the values take more
    than 2 GiB.
    """
    n: cython.Py_ssize_t = order.shape[0]
    count: cython.Py_ssize_t = 0
    room: cython.Py_ssize_t = 0
    for part in parts:
        room += max(0, len(part[0]) - 1)
    offsets: Any = allocate(4 * (n + 1))
    ends: cython.p_int = cython.cast(cython.p_int, _memory(offsets, 4 * (n + 1)))
    sources = cython.cast(cython.pointer(_Source), malloc(max(room, 1) * cython.sizeof(_Source)))
    if sources == cython.NULL:
        raise MemoryError
    try:
        for part in parts:
            count += _read_sources(part[0], part[1], sources + count, room - count)
        end: cython.Py_ssize_t = _measure_values(order, sources, count, ends)
        if end == _ABSENT:
            raise IndexError("there is no value with such a number")
        if end == _TOO_LONG:
            raise OverflowError("the values of rows take more than 2 GiB")
        taken: Any = allocate(end)
        if end:
            _copy_values(order, sources, ends, _memory(taken, end))
        return offsets, taken
    finally:
        free(sources)


@cython.cfunc
@cython.exceptval(-1)
def _read_sources(
    edges: cython.const[cython.int][::1],
    data: cython.const[cython.uchar][::1],
    out: cython.pointer(_Source),
    room: cython.Py_ssize_t,
) -> cython.Py_ssize_t:
    """Where each value of an array begins in memory, and its size. Returns the number of values.

    room: of `out`; another thread may have changed the arrays since they were counted.
    """
    count: cython.Py_ssize_t = edges.shape[0] - 1
    i: cython.Py_ssize_t
    last: cython.int = 0
    begin: cython.p_const_uchar = cython.address(data[0]) if data.shape[0] else cython.NULL
    if count > room:
        raise ValueError("there are more values than were counted")
    for i in range(count):
        if edges[i] < last or edges[i + 1] < edges[i] or edges[i + 1] > data.shape[0]:
            raise ValueError("the bytes of values end early")
        last = edges[i]
        out[i].begin = begin + last
        out[i].size = edges[i + 1] - last
    return max(count, 0)


@cython.cfunc
@cython.exceptval(check=False)
def _measure_values(
    order: cython.const[cython.longlong][::1],
    sources: cython.pointer(_Source),
    count: cython.Py_ssize_t,
    ends: cython.p_int,
) -> cython.Py_ssize_t:
    """Write the offsets of the values, and return the last; or _ABSENT, or _TOO_LONG."""
    at: cython.Py_ssize_t = 0
    i: cython.Py_ssize_t
    with cython.nogil:
        for i in range(order.shape[0]):
            ends[i] = cython.cast(cython.int, at)
            if not 0 <= order[i] < count:
                return _ABSENT
            at += sources[order[i]].size
            if at > _MOST:
                return _TOO_LONG
        ends[order.shape[0]] = cython.cast(cython.int, at)
    return at


@cython.cfunc
@cython.exceptval(check=False)
def _copy_values(
    order: cython.const[cython.longlong][::1],
    sources: cython.pointer(_Source),
    ends: cython.p_int,
    out: cython.p_char,
) -> cython.void:
    """Copy the values to the offsets that `_measure_values` wrote; the numbers must not have changed since."""
    i: cython.Py_ssize_t
    n: cython.Py_ssize_t = order.shape[0]
    with cython.nogil:
        for i in range(n):
            if i + 16 < n:
                fetch_early(sources[order[i + 16]].begin)
                fetch_early(sources[order[i + 16]].begin + 64)
            memcpy(out + ends[i], sources[order[i]].begin, ends[i + 1] - ends[i])
