# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""Open dictionary blocks: find where each column's zstd dictionary, values and templates are. Nothing is decoded.

An entry is: u16 column, u16 templates, u32 bytes of the zstd dictionary, u32 values; those bytes; the node of the
values; the templates, which begin with u32, the bytes that follow, and u32 variables. `esformat/format/dictionary.py`
writes them.
"""

from typing import Any

import cython
from cython.cimports.cpython.bytes import PyBytes_FromStringAndSize
from cython.cimports.esformat.core.packs import end_of_strings

from esformat.errors import CorruptSegmentError

_ENTRY_BYTES = cython.declare(cython.Py_ssize_t, 12)
_TEMPLATES_BYTES = cython.declare(cython.Py_ssize_t, 8)
_NOTHING = cython.declare(object, memoryview(b""))


@cython.cclass
class StoredColumn:
    """One column's entry in a dictionary block."""

    column = cython.declare(cython.Py_ssize_t, visibility="readonly")  # type: int
    zstd = cython.declare(bytes, visibility="readonly")  # type: bytes
    count = cython.declare(cython.Py_ssize_t, visibility="readonly")  # type: int
    """Number of values."""
    node = cython.declare(object, visibility="readonly")  # type: memoryview
    """The bytes of the values' node; empty if there are no values."""
    template_count = cython.declare(cython.Py_ssize_t, visibility="readonly")  # type: int
    stored_templates = cython.declare(object, visibility="readonly")  # type: memoryview
    offset = cython.declare(cython.longlong, visibility="readonly")  # type: int
    """The block's offset in the file, for messages."""
    decoded = cython.declare(dict, visibility="readonly")  # type: dict[str, Any]
    """Cache for decoded parts."""

    def __cinit__(self) -> None:
        self.decoded, self.node, self.stored_templates = {}, _NOTHING, _NOTHING


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _u16(data: cython.p_const_uchar) -> cython.Py_ssize_t:
    return data[0] | data[1] << 8


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _u32(data: cython.p_const_uchar) -> cython.Py_ssize_t:
    return _u16(data) | _u16(data + 2) << 16


def read_columns(
    body: Any,
    entries: cython.Py_ssize_t,
    columns: cython.Py_ssize_t,
    most_values: cython.Py_ssize_t,
    end_of_values: Any,
    column_class: Any,
    offset: cython.longlong,
) -> list[Any]:
    """Read the entries of a dictionary block as instances of `column_class`, a subclass of `StoredColumn`. Raises
    CorruptSegmentError.

    columns: number of columns in the schema.
    most_values: limit for one column.
    end_of_values: takes a body, place, count and column, and returns the byte after a node of values other than plain
        text.
    offset: stored in the entries.
    """
    view: cython.const[cython.uchar][::1] = body
    size: cython.Py_ssize_t = view.shape[0]
    at: cython.Py_ssize_t = 0
    end: cython.Py_ssize_t
    _: cython.Py_ssize_t
    zstd_bytes: cython.Py_ssize_t
    data: cython.p_const_uchar = cython.address(view[0]) if size else cython.NULL
    found: list[StoredColumn] = []
    for _ in range(entries):
        if size - at < _ENTRY_BYTES:
            raise CorruptSegmentError("a dictionary block is cut short", offset=offset)
        entry: StoredColumn = cython.cast(StoredColumn, column_class(), typecheck=True)
        entry.column, entry.template_count = _u16(data + at), _u16(data + at + 2)
        zstd_bytes, entry.count, entry.offset = _u32(data + at + 4), _u32(data + at + 8), offset
        at += _ENTRY_BYTES
        if entry.column >= columns or zstd_bytes > size - at or entry.count > most_values:
            raise CorruptSegmentError("a dictionary block breaks the format", offset=offset)
        entry.zstd = PyBytes_FromStringAndSize(cython.cast(cython.p_char, data + at), zstd_bytes)
        at = end = at + zstd_bytes
        if entry.count:
            end = end_of_strings(data, size, at, entry.count)
            if end < 0:
                end = end_of_values(body, at, entry.count, entry.column)
            if not at <= end <= size:
                raise CorruptSegmentError("a dictionary block breaks the format", offset=offset)
            entry.node = body[at:end]
        at = end
        if entry.template_count:
            if size - at < _TEMPLATES_BYTES or _u32(data + at) > size - at - _TEMPLATES_BYTES:
                raise CorruptSegmentError("the templates of a column are cut short", offset=offset)
            end = at + _TEMPLATES_BYTES + _u32(data + at)
            entry.stored_templates = body[at:end]
        at = end
        found.append(entry)
    if at != size:
        raise CorruptSegmentError("a dictionary block is longer than its columns", offset=offset)
    return found
