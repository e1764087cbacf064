# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""The end of a segment, which is read first on opening: the trailer, and the entries of the footer.

The trailer is: u64 opening offset, the footer's handle, u16 major and u16 minor version, u32 zero, u64 xxh3-64 of the
bytes before, u64 magic; `esformat/format/layout.py` writes it. An entry of the footer is: u8 kind, u8 copy, u16
ordinal, and a handle, which is: u64 offset, u32 length, u32 check; `esformat/format/footer.py` writes them.
"""

from typing import Any

import cython
from cython.cimports.cpython.bytes import PyBytes_FromStringAndSize
from cython.cimports.cpython.object import PyTypeObject
from cython.cimports.cpython.ref import PyObject
from cython.cimports.libc.string import memcmp

from esformat.core.blocks import LEAST_BLOCK_BYTES, MOST_BLOCK_BYTES, check_block_length
from esformat.errors import CorruptSegmentError, UnsupportedVersionError

HEADER_BYTES = 16
TRAILER_BYTES = 48
TRAILER_MAGIC = b"\x1a\n\rBDSE\x89"
MAJOR_VERSION = 1
_LEAST = cython.declare(cython.ulonglong, LEAST_BLOCK_BYTES)
_MOST = cython.declare(cython.ulonglong, MOST_BLOCK_BYTES)
_HEADER = cython.declare(cython.ulonglong, HEADER_BYTES)
_ENTRY = cython.declare(cython.Py_ssize_t, 20)
_TRAILER = cython.declare(cython.Py_ssize_t, TRAILER_BYTES)
_CHECKED = cython.declare(cython.Py_ssize_t, 32)  # bytes of the trailer before its checksum
_MAGIC = cython.declare(bytes, TRAILER_MAGIC)
_MAGIC_BYTES = cython.declare(cython.Py_ssize_t, 8)
_METADATA = cython.declare(cython.int, 1)  # kinds of blocks
_DIRECTORY_ROOT = cython.declare(cython.int, 4)
_FILTER = cython.declare(cython.int, 8)
_DICTIONARY = cython.declare(cython.int, 9)


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _u32(data: cython.p_const_uchar) -> cython.ulonglong:
    return data[0] | data[1] << 8 | data[2] << 16 | cython.cast(cython.ulonglong, data[3]) << 24


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _u64(data: cython.p_const_uchar) -> cython.ulonglong:
    return _u32(data) | _u32(data + 4) << 32


@cython.cfunc
def new_handle(handle_class: type, offset: object, length: object, check: object) -> object:
    """Create a handle: an instance of a named tuple class, created faster than by calling the class."""
    if not issubclass(handle_class, tuple):
        raise TypeError("handles are named tuples")
    fields: tuple[tuple[Any, Any, Any]] = ((offset, length, check),)
    plain: cython.pointer(PyTypeObject) = cython.cast(cython.pointer(PyTypeObject), tuple)
    return plain.tp_new(handle_class, cython.cast(cython.pointer(PyObject), fields), cython.NULL)


def check_version(major: int) -> None:
    """Refuse files of another major version. Raises UnsupportedVersionError."""
    if major != MAJOR_VERSION:
        raise UnsupportedVersionError(
            f"the file has format version {major}, this reader knows {MAJOR_VERSION}",
            hint="read it with a release of esformat that supports it",
        )


def read_trailer(tail: Any, file_size: cython.longlong, checksum: Any, handle_class: Any) -> tuple[int, Any]:
    """Read the opening offset and the footer's handle from the last bytes of a file of `file_size` bytes.

    checksum: computes the checksum of bytes. handle_class: the class of handles, named tuples. Raises
    CorruptSegmentError (not the end of a segment, or damaged) or UnsupportedVersionError.
    """
    view: cython.const[cython.uchar][::1] = tail
    size: cython.Py_ssize_t = view.shape[0]
    at: cython.longlong = file_size - TRAILER_BYTES
    if size < _TRAILER or at < HEADER_BYTES:
        raise CorruptSegmentError(
            f"the file is too short for a segment: {file_size} bytes", hint="it may be cut off; restore it"
        )
    data: cython.p_const_uchar = cython.address(view[size - _TRAILER])
    if memcmp(data + _TRAILER - _MAGIC_BYTES, cython.cast(cython.p_const_uchar, _MAGIC), _MAGIC_BYTES):
        raise CorruptSegmentError(
            "no segment trailer at the end: not an .esdb file, or cut off", offset=at, hint="restore it from a copy"
        )
    if _u64(data + _CHECKED) != cython.cast(
        cython.ulonglong, checksum(PyBytes_FromStringAndSize(cython.cast(cython.p_char, data), _CHECKED))
    ):
        raise CorruptSegmentError("the trailer's checksum does not match", offset=at, hint="restore it from a copy")
    check_version(data[24] | data[25] << 8)
    if _u32(data + 28):
        raise CorruptSegmentError(f"reserved trailer field is {_u32(data + 28)}, not 0", offset=at + 28)
    opening: cython.ulonglong = _u64(data)
    footer: cython.ulonglong = _u64(data + 8)
    length: cython.ulonglong = _u32(data + 16)
    end: cython.ulonglong = at
    if length > end or footer != end - length or not _HEADER <= opening <= footer:
        raise CorruptSegmentError("the trailer does not fit the file's size", offset=at, hint="it may be cut off")
    return opening, new_handle(handle_class, footer, length, _u32(data + 20))


def read_entries(body: Any, count: cython.Py_ssize_t, offset: cython.ulonglong, handle_class: Any) -> dict[Any, Any]:
    """The handles in a footer, by kind, ordinal and copy.

    offset: of the footer in the file, after all other blocks. handle_class: the class of handles, named tuples. Raises
    CorruptSegmentError.
    """
    view: cython.const[cython.uchar][::1] = body
    if view.shape[0] % _ENTRY or view.shape[0] // _ENTRY != count:
        raise CorruptSegmentError("the footer's length does not fit its count", offset=offset)
    table: dict[Any, Any] = {}
    data: cython.p_const_uchar = cython.address(view[0]) if count else cython.NULL
    last: cython.longlong = -1
    for _ in range(count):  # all their bytes exist
        kind: cython.int = data[0]
        copy: cython.int = data[1]
        ordinal: cython.int = data[2] | data[3] << 8
        order: cython.longlong = cython.cast(cython.longlong, kind) << 24 | ordinal << 8 | copy
        if copy > 1 or order <= last:
            raise CorruptSegmentError("the entries of the footer are not in order", offset=offset)
        last = order
        at: cython.ulonglong = _u64(data + 4)
        length: cython.ulonglong = _u32(data + 12)
        if not _LEAST <= length <= _MOST:
            check_block_length(length, at)
        if not _HEADER <= at <= offset or length > offset - at:
            raise CorruptSegmentError("the footer points outside the file", offset=offset)
        table[kind, ordinal, copy] = new_handle(handle_class, at, length, _u32(data + 16))
        data += _ENTRY
    for kind, name in ((_METADATA, "metadata"), (_DIRECTORY_ROOT, "directory_root")):
        if (kind, 0, 0) not in table:
            raise CorruptSegmentError(f"the footer does not name the {name} block", offset=offset)
    return table


def check_opening(table: dict[Any, Any], start: cython.ulonglong) -> None:
    """Check the opening offset `start` against the blocks that the footer lists.

    Raises CorruptSegmentError unless the first of the blocks that opening needs begins there, and no others follow.
    """
    first: cython.ulonglong = 0xFFFF_FFFF_FFFF_FFFF
    fits: cython.bint = True
    for key, handle in table.items():
        kind: cython.int = cython.cast(tuple, key)[0]
        copy: cython.int = cython.cast(tuple, key)[2]
        offset: cython.ulonglong = cython.cast(tuple, handle)[0]
        if offset < start:
            fits &= copy != 0 or (kind != _DICTIONARY and kind != _DIRECTORY_ROOT and kind != _METADATA)
        else:
            fits &= not copy and kind != _FILTER
            first = min(first, offset)
    if not fits or first != start:
        raise CorruptSegmentError(f"the opening offset {start} is not where the blocks for opening begin")
