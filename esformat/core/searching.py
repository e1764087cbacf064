# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""Find the rows of a node of templates that contain a text, by their codes, numbers and strings, without rendering.

`esformat/format/template_search.py` determines which templates, numbers and strings match; this module finds their
rows.
"""

from collections.abc import Callable, Sequence
from typing import Any

import cython
from cython.cimports.cpython import array
from cython.cimports.cpython.bytes import PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cython.cimports.esformat.core.blocks import Chunks
from cython.cimports.esformat.core.packs import (
    NEEDS_DICTIONARY,
    NODE_HEAD_BYTES,
    PackHead,
    fill_numbers,
    read_pack_head,
    unpack_bits,
)
from cython.cimports.esformat.core.template_columns import NUMBERS, STRING, TEMPLATES_HEAD, Column, TemplateColumns
from cython.cimports.libc.string import memcpy

from esformat.core.bytes_nodes import MAX_FRAME_BYTES
from esformat.core.template_columns import read_template_codes
from esformat.errors import CorruptSegmentError

_MOST_FRAME_BYTES = cython.declare(cython.longlong, MAX_FRAME_BYTES)


def codes_that_may(
    blocks: Sequence[Any], chunk: cython.Py_ssize_t, possible: Callable[[int], list[bytes]], plain: Any
) -> list[Any]:
    """For each block, what `read_template_codes` returns for a chunk, a column of text; None if the chunk is not stored
    as templates; () if no row can match.

    possible: for a dictionary number, byte tables by template code; a row can match only if each table has a nonzero
    byte for one of the rows. A code beyond a table counts as nonzero.
    """
    found: list[Any] = []
    known: dict[int, list[bytes]] = {}
    codes: array.array
    k: cython.Py_ssize_t
    for k in range(len(blocks)):
        block: Chunks = blocks[k]
        if block is None:
            raise TypeError("a block is missing")
        at: cython.longlong = block._start(chunk)
        view: cython.const[cython.uchar][::1] = block.body
        if not 0 <= at < view.shape[0] or view[at] != TEMPLATES_HEAD & 255:
            found.append(None)
            continue
        marks: list[bytes] | None = known.get(block.dictionary)
        if marks is None:
            marks = known[block.dictionary] = possible(block.dictionary)
        read: Any = read_template_codes(block.body, at, block.row_count, plain)
        codes = read[0]
        for each in marks:
            if not _any_marked(codes.data.as_longlongs, len(codes), each):
                read = ()
                break
        found.append(read)
    return found


@cython.cfunc
@cython.exceptval(check=True)
def _any_marked(codes: cython.p_longlong, count: cython.Py_ssize_t, marks: bytes) -> cython.bint:
    """Whether the byte of any code is nonzero in `marks`; a code beyond the end counts as nonzero."""
    known: cython.ulonglong = len(marks)
    mark: cython.p_uchar = cython.cast(cython.p_uchar, PyBytes_AS_STRING(marks))
    i: cython.Py_ssize_t
    found: cython.uchar = 0
    for i in range(count):
        if cython.cast(cython.ulonglong, codes[i]) >= known:
            return True
        found |= mark[codes[i]]
    return found != 0


def mark_codes(rows: TemplateColumns, marks: cython.const[cython.uchar][::1], mask: cython.uchar[::1]) -> None:
    """Set the mask to 1 for rows whose template, counted from 1, has a nonzero byte in `marks`.

    Raises ValueError unless there is a byte for each template, with null as number 0, and for each row.
    """
    i: cython.Py_ssize_t
    if marks.shape[0] != rows._count + 1 or mask.shape[0] != rows.rows:
        raise ValueError("one byte for each template and each row is needed")
    for i in range(rows.rows):
        mask[i] |= marks[rows._codes[i]] != 0


# ------------------------------------------------------------ numbers


def mark_rows(rows: TemplateColumns, chain: Sequence[tuple[int, Any]], mask: cython.uchar[::1]) -> bool:
    """Set the mask to 1 for rows in which each variable of a chain has one of its numbers; return whether such a row
    exists.

    chain: variables that are numbers, all of which are loaded (see `lacks`), each with an ascending array of int64.
    Raises ValueError for any other, and unless there is a byte for each row.
    """
    count: cython.Py_ssize_t = rows.rows
    if mask.shape[0] != count:
        raise ValueError("one byte for each row is needed")
    if not count or not chain:
        return False
    memory: bytes = PyBytes_FromStringAndSize(cython.NULL, 2 * count)
    found: cython.p_uchar = cython.cast(cython.p_uchar, PyBytes_AS_STRING(memory))
    also: cython.p_uchar = found + count
    i: cython.Py_ssize_t
    first: cython.bint = True
    for variable, wanted in chain:
        if not _rows_with(rows, variable, wanted, found if first else also):
            return False
        if not first:
            for i in range(count):
                found[i] &= also[i]
        first = False
    any_found: cython.uchar = 0
    for i in range(count):
        any_found |= found[i]
        mask[i] |= found[i]
    return any_found != 0


@cython.cfunc
@cython.exceptval(-1, check=True)
def _rows_with(
    rows: TemplateColumns,
    variable: cython.Py_ssize_t,
    wanted: cython.const[cython.longlong][::1],
    out: cython.p_uchar,
) -> cython.int:
    """Write for each row whether a variable has one of ascending numbers. Returns 0, writing nothing, if none has."""
    i: cython.Py_ssize_t
    place: cython.Py_ssize_t = 0
    if rows.lacks(variable) or rows._columns[variable].count > rows.rows:
        raise ValueError("the numbers of the variable are not decoded")
    for i in range(1, wanted.shape[0]):
        if wanted[i] <= wanted[i - 1]:
            raise ValueError("numbers to look for do not ascend")
    column: cython.pointer(Column) = rows._columns + variable
    count: cython.Py_ssize_t = column.count
    if not count or not wanted.shape[0]:
        return 0
    memory: bytes = PyBytes_FromStringAndSize(cython.NULL, count)  # for each of its numbers, whether it is wanted
    hits: cython.p_uchar = cython.cast(cython.p_uchar, PyBytes_AS_STRING(memory))
    if not _find_numbers(column, cython.address(wanted[0]), wanted.shape[0], hits):
        return 0
    if count == rows.rows:
        memcpy(out, hits, count)
        return 1
    shows: bytes = _that_show(rows, variable)
    showing: cython.p_uchar = cython.cast(cython.p_uchar, PyBytes_AS_STRING(shows))
    for i in range(rows.rows):  # `count` of them show it, as `_count_values` counted
        out[i] = 0
        if showing[rows._codes[i]]:
            out[i] = hits[place]
            place += 1
    return 1


@cython.cfunc
@cython.exceptval(check=False)
def _find_numbers(
    column: cython.pointer(Column),
    wanted: cython.pointer(cython.const[cython.longlong]),
    wanted_count: cython.Py_ssize_t,
    hits: cython.p_uchar,
) -> cython.bint:
    """Write for each number of a column whether it is among ascending ones; return whether any is."""
    numbers = cython.declare(cython.longlong[256])
    i: cython.Py_ssize_t
    low: cython.Py_ssize_t
    size: cython.Py_ssize_t
    source: cython.pointer(cython.const[cython.longlong])
    any_hit: cython.uchar = 0
    for low in range(0, column.count, 256):
        size = min(column.count - low, 256)
        source = numbers
        if column.form == NUMBERS:
            source = column.numbers + low
        elif column.bits:
            unpack_bits(column.stored, column.size, column.bits, column.base, low, numbers, size)
        else:
            for i in range(size):
                numbers[i] = column.base
        if wanted_count == 1:
            for i in range(size):
                hits[low + i] = source[i] == wanted[0]
        else:
            for i in range(size):
                hits[low + i] = _is_among(source[i], wanted, wanted_count)
        for i in range(size):
            any_hit |= hits[low + i]
    return any_hit != 0


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def _is_among(
    number: cython.longlong, wanted: cython.pointer(cython.const[cython.longlong]), count: cython.Py_ssize_t
) -> cython.bint:
    """Whether a number is among ascending ones."""
    low: cython.Py_ssize_t = 0
    high: cython.Py_ssize_t = count
    middle: cython.Py_ssize_t
    while low < high:
        middle = low + (high - low) // 2
        if wanted[middle] < number:
            low = middle + 1
        else:
            high = middle
    return low < count and wanted[low] == number


@cython.cfunc
def _that_show(rows: TemplateColumns, variable: cython.Py_ssize_t) -> bytes:
    """For each code, whether its rows show a variable."""
    t: cython.Py_ssize_t
    i: cython.Py_ssize_t
    shows: bytes = bytes(rows._count + 1)
    showing: cython.p_uchar = cython.cast(cython.p_uchar, PyBytes_AS_STRING(shows))
    for t in range(rows._count):
        for i in range(rows._own_first[t], rows._own_first[t + 1]):
            showing[t + 1] |= rows._own[i] == variable
    return shows


# ------------------------------------------------------------ strings


def mark_texts(
    rows: TemplateColumns,
    variable: cython.Py_ssize_t,
    texts: Sequence[bytes],
    plain: Any,
    framed: Any,
    mask: cython.uchar[::1],
) -> None:
    """Set the mask to 1 for rows whose string of a variable contains one of some texts, none of which may be empty.

    plain, framed: decompressors without the column's dictionary and with it. Raises CorruptSegmentError, what they
    raise, and ValueError for another kind of variable, an empty text, and unless there is a byte for each row.
    """
    if mask.shape[0] != rows.rows:
        raise ValueError("one byte for each row is needed")
    if not 0 <= variable < rows._variables or rows._kind[variable] != STRING:
        raise ValueError("the variable has no strings")
    if b"" in texts:
        raise ValueError("an empty text is in every string")
    column: cython.pointer(Column) = rows._columns + variable
    if not column.count:
        return
    memory: bytes = bytes(column.count)  # for each of its strings, whether it contains a text
    hits: cython.p_uchar = cython.cast(cython.p_uchar, PyBytes_AS_STRING(memory))
    if not _find_texts(rows._held[0], column, texts, plain, framed, hits):
        return
    shows: bytes = _that_show(rows, variable)
    showing: cython.p_uchar = cython.cast(cython.p_uchar, PyBytes_AS_STRING(shows))
    i: cython.Py_ssize_t
    place: cython.Py_ssize_t = 0
    for i in range(rows.rows):  # `count` of them show it, as `_count_values` counted
        if showing[rows._codes[i]]:
            mask[i] |= hits[place]
            place += 1


@cython.cfunc
@cython.exceptval(-1, check=True)
def _find_texts(
    body: Any,
    column: cython.pointer(Column),
    texts: Sequence[bytes],
    plain: object,
    framed: object,
    hits: cython.p_uchar,
) -> cython.int:
    """Set `hits` to 1 for strings of a column that contain one of some texts; return whether any does.

    `end_of_strings` has already checked the node against the body: each frame, and its entry in the frame table, is
    within the body.
    """
    view: cython.const[cython.uchar][::1] = body
    data: cython.pointer(cython.const[cython.uchar]) = cython.address(view[0])
    pack = cython.declare(PackHead)
    count: cython.Py_ssize_t = column.count
    if not read_pack_head(data, view.shape[0], column.at + NODE_HEAD_BYTES, count, cython.address(pack)):
        raise CorruptSegmentError("the header of packed numbers breaks the format, or they are cut short")
    memory: bytes = PyBytes_FromStringAndSize(cython.NULL, 8 * count)
    lengths: cython.p_longlong = cython.cast(cython.p_longlong, PyBytes_AS_STRING(memory))
    fill_numbers(body, data, cython.address(pack), count, plain, 0, lengths, count)
    decompressor = framed if data[column.at + 1] & NEEDS_DICTIONARY else plain
    in_frame: cython.Py_ssize_t = data[column.at + 2] | data[column.at + 3] << 8  # number of strings
    codec: cython.int = data[pack.end]
    width: cython.Py_ssize_t = data[pack.end + 1]
    entry: cython.Py_ssize_t = pack.end + 2  # entry of the next frame, which begins at `at`, in the frame table
    at: cython.Py_ssize_t = entry + width * ((count + in_frame - 1) // in_frame)
    first: cython.Py_ssize_t
    some: cython.Py_ssize_t
    stored: cython.Py_ssize_t
    found: cython.int = 0
    for first in range(0, count, in_frame):
        some = min(in_frame, count - first)
        size: cython.longlong = _sum_of_lengths(lengths + first, some)
        stored = _stored_bytes(data + entry, width)
        frame: bytes = decompressor.decompress(codec, body[at : at + stored], size)
        if len(frame) != size:
            raise ValueError("a frame has a different size")
        for text in texts:
            found |= _find_text(frame, text, lengths + first, hits + first)
        entry, at = entry + width, at + stored
    return found


@cython.cfunc
@cython.exceptval(-1)
def _sum_of_lengths(lengths: cython.p_longlong, count: cython.Py_ssize_t) -> cython.longlong:
    """The total size of a frame's strings. Raises CorruptSegmentError."""
    i: cython.Py_ssize_t
    size: cython.longlong = 0
    for i in range(count):
        if not 0 <= lengths[i] <= _MOST_FRAME_BYTES - size:
            raise CorruptSegmentError("a stored length is out of bounds")
        size += lengths[i]
    return size


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _stored_bytes(entry: cython.pointer(cython.const[cython.uchar]), width: cython.Py_ssize_t) -> cython.Py_ssize_t:
    """The number of stored bytes of a frame, from its table entry of two or four bytes."""
    stored: cython.Py_ssize_t = entry[0] | entry[1] << 8
    if width == 4:
        stored |= cython.cast(cython.Py_ssize_t, entry[2]) << 16
        stored |= cython.cast(cython.Py_ssize_t, entry[3]) << 24
    return stored


@cython.cfunc
@cython.exceptval(-1, check=True)
def _find_text(frame: bytes, text: bytes, lengths: cython.p_longlong, hits: cython.p_uchar) -> cython.int:
    """Set `hits` to 1 for strings of a frame that contain a text; return whether any does.

    All bytes of the frame belong to its strings.
    """
    hit: cython.Py_ssize_t = frame.find(text)
    i: cython.Py_ssize_t = 0  # the string that begins at `edge`
    edge: cython.longlong = 0
    found: cython.int = 0
    while hit >= 0:  # within that string or a later one
        while edge + lengths[i] <= hit:
            edge += lengths[i]
            i += 1
        if hit + len(text) <= edge + lengths[i]:
            hits[i] = found = 1
            hit = frame.find(text, edge + lengths[i])
        else:  # the text begins in one string and ends in another
            hit = frame.find(text, hit + 1)
    return found
