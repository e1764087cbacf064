# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""Nodes of strings and binary that are read as a whole: keys, and the texts of templates.

A node is: u8 shape, u8 flags, u16 values of a frame; the packed lengths of all values; u8 codec of the frames, u8 bytes
of an entry of the frame table; the table, which has the stored bytes of each frame; the frames. A front-coded node is:
u8 shape, u8 and u16 zero; a pack of how many bytes each value shares with the one before it; the node of the
remainders. `esformat/format/bytes_node.py` opens the columns of blocks, which are read in part.
"""

import array as arrays
from typing import Any

import cython
from cython.cimports.cpython import array
from cython.cimports.cpython.bytes import PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cython.cimports.esformat.core.packs import PackHead, end_of_strings, end_of_texts, fill_numbers, read_pack_head
from cython.cimports.libc.string import memcpy, memmove, memset

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
_FEW_FRAMES = cython.declare(cython.Py_ssize_t, 4)  # up to this many frames, one call for each is faster
_LONGS = cython.declare(array.array, arrays.array("q"))
_BYTES = cython.declare(array.array, arrays.array("B"))


def end_of_values(body: cython.const[cython.uchar][::1], at: cython.Py_ssize_t, count: cython.Py_ssize_t) -> int:
    """The byte after the node of `count` values, none of them null, at byte `at` of a body; -1 if there is none."""
    if not body.shape[0] or at < 0:
        return -1
    return end_of_strings(cython.address(body[0]), body.shape[0], at, count)


def end_of_front_coded(body: cython.const[cython.uchar][::1], at: cython.Py_ssize_t, count: cython.Py_ssize_t) -> int:
    """Like `end_of_values`, for a node that may be front-coded."""
    if not body.shape[0] or at < 0:
        return -1
    return end_of_texts(cython.address(body[0]), body.shape[0], at, count)


def read_values(
    body: Any, at: cython.Py_ssize_t, count: cython.Py_ssize_t, plain: Any, framed: Any, slack: cython.Py_ssize_t = 0
) -> tuple[Any, bytes, int]:
    """Read the node of `count` values, none of which may be null, at a byte of a body.

    plain, framed: decompressors without and with the dictionary. Returns the edges of the values, an array of int64;
    their bytes, of which value i has edges[i] to edges[i + 1]; and the byte after the node. `slack` zeros follow the
    bytes. The caller bounds `count`. Raises CorruptSegmentError, UnsupportedVersionError.
    """
    view: cython.const[cython.uchar][::1] = body
    size: cython.Py_ssize_t = view.shape[0]
    if at < 0 or count < 0 or slack < 0 or at > size - 4:
        raise CorruptSegmentError("a column node is cut short")
    data: cython.p_const_uchar = cython.address(view[0])
    if data[at] != _FRONT_CODED:
        return _read_whole(body, view, at, count, plain, framed, slack)
    if data[at + 1] or data[at + 2] or data[at + 3]:
        raise CorruptSegmentError("the head of a front-coded node breaks the format")
    head = cython.declare(PackHead)
    if not read_pack_head(data, size, at + 4, count, cython.address(head)):
        raise CorruptSegmentError("the header of packed numbers breaks the format, or they are cut short")
    if head.end > size - 4:
        raise CorruptSegmentError("a column node is cut short")
    edges, rest, end = cython.cast(tuple, _read_whole(body, view, head.end, count, plain, framed, _SLACK))
    shared: array.array = array.clone(_LONGS, count, False)
    fill_numbers(body, data, cython.address(head), count, plain, 0, shared.data.as_longlongs, count)
    return edges, _with_beginnings(shared.data.as_longlongs, edges, rest, slack), end


@cython.cfunc
def _with_beginnings(shared: cython.p_longlong, made: array.array, rest: bytes, slack: cython.Py_ssize_t) -> bytes:
    """Restore texts by prepending the beginnings that they share with the text before.

    `made`, the edges of the remainders in `rest`, become the edges of the texts. _SLACK bytes follow the remainders in
    `rest`, and `slack` zeros follow the result.
    """
    edges: cython.p_longlong = made.data.as_longlongs
    count: cython.Py_ssize_t = len(made) - 1
    i: cython.Py_ssize_t
    total: cython.longlong = 0
    most: cython.longlong = 0
    for i in range(count):  # no sum overflows: if numbers are out of bounds, it is not used
        most |= shared[i]
        total += shared[i]
    if not 0 <= most <= _MOST:
        raise CorruptSegmentError("a text shares more bytes than the previous one has")
    total += edges[count]
    if total > _MOST:
        raise CorruptSegmentError("the lengths of a block's values are out of bounds")
    texts: bytes = PyBytes_FromStringAndSize(cython.NULL, total + max(slack, _SLACK))
    source: cython.p_char = PyBytes_AS_STRING(rest)
    begin: cython.p_char = PyBytes_AS_STRING(texts)
    out: cython.p_char = begin
    before: cython.p_char = begin
    like: cython.p_char = begin  # an earlier text with the same first `alike` bytes as the one before:
    alike: cython.longlong = 0  # reading memory that was just written would be slower
    size: cython.longlong = 0
    follows: cython.longlong
    at: cython.longlong = 0  # of the next text's remainder: its edge is overwritten after it was read
    for i in range(count):  # all texts end within `total`, whatever the sizes in between
        if shared[i] > size:
            raise CorruptSegmentError("a text shares more bytes than the previous one has")
        follows = edges[i + 1] - at
        at = edges[i + 1]
        if shared[i] > alike:
            like = before
        alike = shared[i]
        _copy(out, like, alike)
        _copy(out + alike, source + at - follows, follows)
        before = out
        size = shared[i] + follows
        out += size
        edges[i + 1] = out - begin
    if slack < _SLACK:
        return texts[:total] + bytes(slack)
    memset(begin + total, 0, slack)
    return texts


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _copy(out: cython.p_char, source: cython.p_char, size: cython.longlong) -> cython.void:
    """Copy short texts faster than a call does: reads and writes at least _SLACK bytes."""
    memmove(out, source, 16)  # they may overlap beyond `size`
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
    slack: cython.Py_ssize_t,
) -> tuple[Any, bytes, int]:
    """Like `read_values`, for a node that is not front-coded. At least four bytes of it must exist."""
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
    made: array.array = array.clone(_LONGS, count + 1, False)
    edges: cython.p_longlong = made.data.as_longlongs
    _read_edges(body, data, cython.address(head), count, plain, edges)
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
    at += 2
    if frames > (size - at) // width:
        raise CorruptSegmentError("a frame table is cut short")
    table: cython.p_const_uchar = data + at
    at += width * frames
    end: cython.Py_ssize_t = at
    i: cython.Py_ssize_t
    plainly: cython.bint = codec == _UNCOMPRESSED or not edges[count]  # empty frames are never compressed
    for i in range(frames):
        stored: cython.Py_ssize_t = _entry(table, width, i)
        plainly &= stored == edges[min((i + 1) * rows, count)] - edges[i * rows]
        end += stored
    if end > size:
        raise CorruptSegmentError("frames reach beyond their block")
    if plainly:
        text: bytes = PyBytes_FromStringAndSize(cython.NULL, end - at + slack)
        memcpy(PyBytes_AS_STRING(text), data + at, end - at)
        memset(PyBytes_AS_STRING(text) + (end - at), 0, slack)
        return made, text, end
    lengths: list[int] = [_entry(table, width, i) for i in range(frames)]
    sizes: list[int] = [edges[min((i + 1) * rows, count)] - edges[i * rows] for i in range(frames)]
    text = _frames(framed if flags & _DICTIONARY else plain, codec, body[at:end], lengths, sizes)
    if len(text) != edges[count]:
        raise CorruptSegmentError("the frames of texts have a different size")
    return made, text + bytes(slack), end


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _entry(table: cython.p_const_uchar, width: cython.Py_ssize_t, i: cython.Py_ssize_t) -> cython.Py_ssize_t:
    """An entry of a frame table, whose entries have 2 or 4 bytes."""
    at: cython.p_const_uchar = table + width * i
    if width == 2:
        return at[0] | at[1] << 8
    return at[0] | at[1] << 8 | at[2] << 16 | cython.cast(cython.Py_ssize_t, at[3]) << 24


def front_coded(
    edges: cython.const[cython.longlong][::1], data: cython.const[cython.uchar][::1]
) -> tuple[Any, Any, bytes]:
    """Front-code texts: how many bytes each shares with the one before, the edges of the remainders, and their bytes.

    edges: of the texts in `data`. Raises ValueError unless they ascend from 0 to its end.
    """
    count: cython.Py_ssize_t = edges.shape[0] - 1
    i: cython.Py_ssize_t
    if count < 0 or edges[0] or edges[count] != data.shape[0]:
        raise ValueError("a text is outside its bytes")
    for i in range(count):
        if edges[i + 1] < edges[i]:
            raise ValueError("a text is outside its bytes")
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
    """Compute the edges of the values from their packed lengths."""
    i: cython.Py_ssize_t
    total: cython.longlong = 0
    most: cython.longlong = 0
    edges[0] = 0
    fill_numbers(body, data, head, count, plain, 0, edges + 1, count)
    for i in range(1, count + 1):
        most |= edges[i]
    if not 0 <= most <= _MOST:
        raise CorruptSegmentError("a stored length is out of bounds")
    for i in range(1, count + 1):  # no sum overflows: a count is below 2^32
        total += edges[i]
        edges[i] = total
    if total > _MOST:
        raise CorruptSegmentError("the lengths of a block's values are out of bounds")
    return 0


@cython.cfunc
def _frames(decompressor: object, codec: cython.int, stored: Any, table: list[int], sizes: list[int]) -> bytes:
    """Decompress all frames. Raises CorruptSegmentError."""
    if len(table) > _FEW_FRAMES:
        whole: array.array = array.clone(_BYTES, sum(sizes), False)  # not zeroed: lengths may claim memory never used
        decompressor.decompress_run(codec, stored, table, sizes, memoryview(whole))
        return whole.tobytes()
    pieces: list[bytes] = []
    at: cython.Py_ssize_t = 0
    for length, size in zip(table, sizes, strict=True):
        pieces.append(decompressor.decompress(codec, stored[at : at + length], size))
        at += length
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)
