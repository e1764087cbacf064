# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""Write the values of variables to cells, and assemble rows from literals and cells."""

import cython
from cython.cimports.esformat.core.cells import MISSING, Piece, Work, copy_some
from cython.cimports.esformat.core.packs import FOUR_TOGETHER_BITS, number_of_bits
from cython.cimports.esformat.core.template_columns import STRING, Column
from cython.cimports.libc.string import memcpy


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def write_enum(
    numbers: cython.pointer(cython.const[cython.longlong]),
    n: cython.Py_ssize_t,
    edges: cython.p_int,
    count: cython.Py_ssize_t,
    values: cython.p_uchar,
    sizes: cython.p_int,
    texts: cython.pointer(cython.p_uchar),
) -> cython.Py_ssize_t:
    """Write cells of n values of an enumeration with `count` values, whose edges in `values` are `edges`."""
    i: cython.Py_ssize_t
    for i in range(n):
        if not _put_enum(cython.cast(cython.ulonglong, numbers[i]), count, edges, values, sizes + i, texts + i):
            return MISSING
    return 0


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def write_enum_bits(
    column: cython.pointer(cython.const[Column]),
    first: cython.Py_ssize_t,
    n: cython.Py_ssize_t,
    edges: cython.p_int,
    count: cython.Py_ssize_t,
    values: cython.p_uchar,
    sizes: cython.p_int,
    texts: cython.pointer(cython.p_uchar),
) -> cython.Py_ssize_t:
    """Like `write_enum`, for the most frequent case: numbers of up to 32 bits without a base."""
    # Copies, because the compiler must assume that stores to cells change what `column` points to.
    stored: cython.pointer(cython.const[cython.uchar]) = column.stored
    bits: cython.Py_ssize_t = column.bits
    whole: cython.Py_ssize_t = column.whole
    i: cython.Py_ssize_t = 0
    k: cython.Py_ssize_t
    together: cython.Py_ssize_t = min(max(whole - first, 0), n) if bits <= FOUR_TOGETHER_BITS else 0
    place: cython.Py_ssize_t = bits * first
    word = cython.declare(cython.ulonglong)
    mask: cython.ulonglong = (cython.cast(cython.ulonglong, 1) << bits) - 1
    while i + 4 <= together:
        memcpy(cython.address(word), stored + (place >> 3), 8)
        word >>= place & 7
        for k in range(4):
            if not _put_enum(word & mask, count, edges, values, sizes + i + k, texts + i + k):
                return MISSING
            word >>= bits
        i += 4
        place += 4 * bits
    while i < n:
        word = cython.cast(cython.ulonglong, number_of_bits(stored, whole, bits, 0, first + i))
        if not _put_enum(word, count, edges, values, sizes + i, texts + i):
            return MISSING
        i += 1
    return 0


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _put_enum(
    number: cython.ulonglong,
    count: cython.Py_ssize_t,
    edges: cython.p_int,
    values: cython.p_uchar,
    size: cython.p_int,
    text: cython.pointer(cython.p_uchar),
) -> cython.bint:
    """Write the cell of one value of an enumeration with `count` values; False if it has no such value."""
    begin: cython.int
    if number >= cython.cast(cython.ulonglong, count):
        return False
    begin = edges[number]
    size[0] = edges[number + 1] - begin
    text[0] = values + begin
    return True


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def join_short(
    wide: cython.bint,
    work: cython.pointer(Work),
    text: cython.p_char,
    steps: cython.p_int,
    slots: cython.Py_ssize_t,
    n: cython.Py_ssize_t,
    offsets: cython.p_int,
    out: cython.p_uchar,
    at: cython.Py_ssize_t,
) -> cython.Py_ssize_t:
    """Assemble n rows. No literal may have more than 32 bytes; no value more than 32, or more than 16 if not `wide`.
    Returns the end.
    """
    if wide:
        return _join(32, work, text, steps, slots, n, offsets, out, at)
    return _join(16, work, text, steps, slots, n, offsets, out, at)


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def _join(
    value_bytes: cython.Py_ssize_t,
    work: cython.pointer(Work),
    text: cython.p_char,
    steps: cython.p_int,
    slots: cython.Py_ssize_t,
    n: cython.Py_ssize_t,
    offsets: cython.p_int,
    out: cython.p_uchar,
    at: cython.Py_ssize_t,
) -> cython.Py_ssize_t:
    """Like `join_short`, for values of at most `value_bytes`, a constant for the compiler."""
    pieces: cython.pointer(Piece) = work.pieces
    last: cython.pointer(Piece) = pieces + slots
    piece: cython.pointer(Piece)
    i: cython.Py_ssize_t
    k: cython.Py_ssize_t
    to: cython.p_uchar = out + at
    for k in range(slots + 1):
        pieces[k].literal = text + steps[8 * k]
        pieces[k].bytes = steps[8 * k + 1]
        if k < slots:
            pieces[k].texts = work.texts + work.slot[k]
            pieces[k].sizes = work.sizes + work.slot[k]
    for i in range(n):
        offsets[i] = cython.cast(cython.int, to - out)
        piece = pieces
        while piece < last:
            memcpy(to, piece.literal, 32)
            to += piece.bytes
            memcpy(to, piece.texts[i], value_bytes)
            to += piece.sizes[i]
            piece += 1
        memcpy(to, last.literal, 32)
        to += last.bytes
    return to - out


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def join_any(
    work: cython.pointer(Work),
    text: cython.p_char,
    steps: cython.p_int,
    slots: cython.Py_ssize_t,
    n: cython.Py_ssize_t,
    offsets: cython.p_int,
    out: cython.p_uchar,
    at: cython.Py_ssize_t,
) -> cython.void:
    """Like `join_short`, for any rows."""
    i: cython.Py_ssize_t
    k: cython.Py_ssize_t
    cell: cython.Py_ssize_t
    step: cython.p_int
    for i in range(n):
        offsets[i] = cython.cast(cython.int, at)
        step = steps
        for k in range(slots):
            copy_some(out + at, text + step[0], step[1])
            at += step[1]
            cell = work.slot[k] + i
            if step[2] != STRING:
                copy_some(out + at, cython.cast(cython.p_char, work.texts[cell]), work.sizes[cell])
            elif work.sizes[cell]:  # exactly its size: there may be no bytes after it
                memcpy(out + at, work.texts[cell], work.sizes[cell])
            at += work.sizes[cell]
            step += 8
        copy_some(out + at, text + step[0], step[1])
        at += step[1]
