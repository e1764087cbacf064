# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""Nodes of strings and binary that are read as a whole: keys, and the texts of templates.

A node is: u8 shape, u8 flags, u16 values of a frame; the packed lengths of all values; u8 codec of the frames, u8 bytes
of an entry of the frame table; the table, which has the stored bytes of each frame; the frames. One that is front-coded
is: u8 shape, u8 and u16 zero; a pack of how many bytes each value shares with the one before it; the node of what
follows in each. Blocks' columns, of which questions need a part, are opened by `esformat/format/bytes_node.py`.
"""

import array as arrays
from typing import Any

import cython
from cython.cimports.cpython import array
from cython.cimports.cpython.bytes import PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cython.cimports.esformat.core.packs import PackHead, end_of_strings, end_of_texts, fill_numbers, read_pack_head
from cython.cimports.libc.string import memcpy, memmove

from esformat.errors import CorruptSegmentError, UnsupportedVersionError

MAX_FRAME_ROWS = 1024
MAX_FRAME_BYTES = (1 << 31) - 1
LAST_CODEC = 2
_SLACK = cython.declare(cython.longlong, 16)
_MOST = cython.declare(cython.longlong, MAX_FRAME_BYTES)
_SHAPE = 4  # of strings and binary
_FRONT_CODED = cython.declare(cython.int, 9)
_VALIDITY, _DICTIONARY = 1, 2  # flags
_UNCOMPRESSED = cython.declare(cython.int, 0)  # codec
_FEW_FRAMES = cython.declare(cython.Py_ssize_t, 4)  # up to here a call for each is quicker than one for all
_LONGS = cython.declare(array.array, arrays.array("q"))
_BYTES = cython.declare(array.array, arrays.array("B"))


def end_of_values(body: cython.const[cython.uchar][::1], at: cython.Py_ssize_t, count: cython.Py_ssize_t) -> int:
    """The byte after the node of `count` values at a byte of a body, none of them null; -1 where there is no such."""
    if not body.shape[0] or at < 0:
        return -1
    return end_of_strings(cython.address(body[0]), body.shape[0], at, count)


def end_of_front_coded(body: cython.const[cython.uchar][::1], at: cython.Py_ssize_t, count: cython.Py_ssize_t) -> int:
    """The same for a node whose values may begin like the ones before them."""
    if not body.shape[0] or at < 0:
        return -1
    return end_of_texts(cython.address(body[0]), body.shape[0], at, count)


def read_values(
    body: Any, at: cython.Py_ssize_t, count: cython.Py_ssize_t, plain: Any, framed: Any
) -> tuple[Any, bytes, int]:
    """The node of `count` values at a byte of a body, none of which may be null.

    plain, framed: decompressors without and with the dictionary. Gives the edges of the values, an array of int64,
    their bytes, of which value i has edges[i] to edges[i + 1], and the byte after the node. The caller bounds `count`.
    Raises CorruptSegmentError, UnsupportedVersionError.
    """
    view: cython.const[cython.uchar][::1] = body
    size: cython.Py_ssize_t = view.shape[0]
    if at < 0 or count < 0 or at > size - 4:
        raise CorruptSegmentError("a column node is cut short")
    data: cython.p_const_uchar = cython.address(view[0])
    if data[at] != _FRONT_CODED:
        return _read_whole(body, view, at, count, plain, framed)
    if data[at + 1] or data[at + 2] or data[at + 3]:
        raise CorruptSegmentError("the head of a front-coded node breaks the format")
    head = cython.declare(PackHead)
    if not read_pack_head(data, size, at + 4, count, cython.address(head)):
        raise CorruptSegmentError("the header of packed numbers breaks the format, or they are cut short")
    if head.end > size - 4:
        raise CorruptSegmentError("a column node is cut short")
    shared: array.array = array.clone(_LONGS, count, False)
    fill_numbers(body, data, cython.address(head), count, plain, 0, shared.data.as_longlongs, count)
    edges, rest, end = cython.cast(tuple, _read_whole(body, view, head.end, count, plain, framed))
    return edges, _with_beginnings(shared.data.as_longlongs, edges, rest), end


@cython.cfunc
def _with_beginnings(shared: cython.p_longlong, made: array.array, rest: bytes) -> bytes:
    """Texts with what they share with the one before; `made`, the edges in `rest` of what follows in each, become
    theirs.
    """
    edges: cython.p_longlong = made.data.as_longlongs
    count: cython.Py_ssize_t = len(made) - 1
    i: cython.Py_ssize_t
    size: cython.longlong = 0
    total: cython.longlong = 0
    if edges[count] != len(rest):
        raise CorruptSegmentError("the frames of texts have another size")
    for i in range(count):  # no sum overflows: each is within bounds before the next is added
        if not 0 <= shared[i] <= size:
            raise CorruptSegmentError("a text shares more than the one before has")
        size = shared[i] + edges[i + 1] - edges[i]
        total += size
        if total > _MOST:
            raise CorruptSegmentError("the lengths of a block's values are out of bounds")
    texts: bytes = PyBytes_FromStringAndSize(cython.NULL, total + _SLACK)
    source: cython.p_char = PyBytes_AS_STRING(rest)
    out: cython.p_char = PyBytes_AS_STRING(texts)
    before: cython.p_char = out
    far: cython.longlong = len(rest) - _SLACK
    begin: cython.longlong = 0  # of what follows in the next text, which is overwritten after it was read
    for i in range(count):  # what is shared was written before, and the sums above are those of these sizes
        size = edges[i + 1] - begin
        _copy(out, before, shared[i])
        if begin <= far:
            _copy(out + shared[i], source + begin, size)
        else:
            memcpy(out + shared[i], source + begin, size)
        begin = edges[i + 1]
        before = out
        out += shared[i] + size
        edges[i + 1] = edges[i] + shared[i] + size
    return texts[:total]


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _copy(out: cython.p_char, source: cython.p_char, size: cython.longlong) -> cython.void:
    """Copy short texts quicker than a call does: _SLACK bytes are read and written even where there are fewer."""
    memmove(out, source, 16)  # they may overlap, behind what is meant
    if size > 16:
        memcpy(out + 16, source + 16, size - 16)


@cython.cfunc
def _read_whole(
    body: Any,
    view: cython.const[cython.uchar][::1],
    at: cython.Py_ssize_t,
    count: cython.Py_ssize_t,
    plain: object,
    framed: object,
) -> tuple[Any, bytes, int]:
    """The same of a node whose values do not share beginnings. At least four bytes of it are there."""
    size: cython.Py_ssize_t = view.shape[0]
    data: cython.p_const_uchar = cython.address(view[0])
    flags: cython.int = data[at + 1]
    rows: cython.Py_ssize_t = data[at + 2] | data[at + 3] << 8
    if flags & ~(_VALIDITY | _DICTIONARY):
        raise CorruptSegmentError(f"a column node has unknown flags {flags:#x}")
    if data[at] != _SHAPE or not 0 < rows <= MAX_FRAME_ROWS:
        raise CorruptSegmentError(f"a column node has shape {data[at]}, expected {_SHAPE}")
    if flags & _VALIDITY:
        raise CorruptSegmentError("a key or a text is null")
    head = cython.declare(PackHead)
    if not read_pack_head(data, size, at + 4, count, cython.address(head)):
        raise CorruptSegmentError("the header of packed numbers breaks the format, or they are cut short")
    edges: array.array = array.clone(_LONGS, count + 1, False)
    _read_edges(body, data, cython.address(head), count, plain, edges.data.as_longlongs)
    at = head.end
    frames: cython.Py_ssize_t = (count + rows - 1) // rows
    if at > size - 2:
        raise CorruptSegmentError("a frame table is cut short")
    codec: cython.int = data[at]
    width: cython.Py_ssize_t = data[at + 1]
    if codec > LAST_CODEC:
        raise UnsupportedVersionError(f"unknown codec {codec}", hint="read the file with a newer esformat")
    if width != 2 and width != 4:
        raise CorruptSegmentError(f"a frame table has entries of {width} bytes")
    if frames > (size - at - 2) // width:
        raise CorruptSegmentError("a frame table is cut short")
    table: list[int] = _entries(data + at + 2, frames, width)
    at += 2 + width * frames
    end: cython.Py_ssize_t = at + sum(table)
    if end > size:
        raise CorruptSegmentError("frames reach beyond their block")
    sizes: list[int] = [
        edges.data.as_longlongs[min((i + 1) * rows, count)] - edges.data.as_longlongs[i * rows] for i in range(frames)
    ]
    return edges, _frames(framed if flags & _DICTIONARY else plain, codec, body[at:end], table, sizes), end


def front_coded(
    edges: cython.const[cython.longlong][::1], data: cython.const[cython.uchar][::1]
) -> tuple[Any, Any, bytes]:
    """How many bytes each text shares with the one before, the edges of what follows in each, and those bytes.

    edges: of the texts in `data`. Raises ValueError where they do not ascend from 0 to the end of it.
    """
    count: cython.Py_ssize_t = edges.shape[0] - 1
    i: cython.Py_ssize_t
    if count < 0 or edges[0] or edges[count] != data.shape[0]:
        raise ValueError("a text lies outside of its bytes")
    for i in range(count):
        if edges[i + 1] < edges[i]:
            raise ValueError("a text lies outside of its bytes")
    shared: array.array = array.clone(_LONGS, count, False)
    ends: array.array = array.clone(_LONGS, count + 1, False)
    rest: bytes = PyBytes_FromStringAndSize(cython.NULL, data.shape[0])
    out: cython.p_char = PyBytes_AS_STRING(rest)
    at: cython.longlong = 0
    same: cython.longlong
    most: cython.longlong
    before: cython.longlong = 0
    ends.data.as_longlongs[0] = 0
    for i in range(count):
        same, most = 0, min(edges[i + 1] - edges[i], edges[i] - before)
        while same < most and data[edges[i] + same] == data[before + same]:
            same += 1
        if edges[i + 1] - edges[i] - same:
            memcpy(out + at, cython.address(data[edges[i] + same]), edges[i + 1] - edges[i] - same)
        at += edges[i + 1] - edges[i] - same
        shared.data.as_longlongs[i], ends.data.as_longlongs[i + 1] = same, at
        before = edges[i]
    return shared, ends, rest[:at]


@cython.cfunc
@cython.exceptval(-1)
def _read_edges(
    body: object,
    data: cython.p_const_uchar,
    head: cython.pointer(PackHead),
    count: cython.Py_ssize_t,
    plain: object,
    edges: cython.p_longlong,
) -> cython.int:
    """Where each value begins, and the last ends, from their packed lengths."""
    i: cython.Py_ssize_t
    total: cython.longlong = 0
    edges[0] = 0
    fill_numbers(body, data, head, count, plain, 0, edges + 1, count)
    for i in range(1, count + 1):  # no sum overflows: each is within bounds before the next is added
        if edges[i] < 0 or edges[i] > _MOST:
            raise CorruptSegmentError("a stored length is out of bounds")
        total += edges[i]
        if total > _MOST:
            raise CorruptSegmentError("the lengths of a block's values are out of bounds")
        edges[i] = total
    return 0


@cython.cfunc
def _entries(table: cython.p_const_uchar, frames: cython.Py_ssize_t, width: cython.Py_ssize_t) -> list[int]:
    """The numbers of a frame table."""
    i: cython.Py_ssize_t
    entries: list[int] = []
    number: cython.ulonglong
    for i in range(frames):
        number = table[width * i] | table[width * i + 1] << 8
        if width == 4:
            number |= cython.cast(cython.ulonglong, table[4 * i + 2]) << 16
            number |= cython.cast(cython.ulonglong, table[4 * i + 3]) << 24
        entries.append(number)
    return entries


@cython.cfunc
def _frames(decompressor: object, codec: cython.int, stored: Any, table: list[int], sizes: list[int]) -> bytes:
    """The bytes of all frames. Raises CorruptSegmentError."""
    if len(table) > _FEW_FRAMES:
        whole: array.array = array.clone(_BYTES, sum(sizes), False)  # not zeroed: lengths may only claim so much
        decompressor.decompress_run(codec, stored, table, sizes, memoryview(whole))
        return whole.tobytes()
    pieces: list[bytes] = []
    at: cython.Py_ssize_t = 0
    for length, size in zip(table, sizes, strict=True):
        if length == size and (codec == _UNCOMPRESSED or not size):  # the decompressor refuses other lengths
            pieces.append(bytes(stored[at : at + length]))
        else:
            pieces.append(decompressor.decompress(codec, stored[at : at + length], size))
        at += length
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)
