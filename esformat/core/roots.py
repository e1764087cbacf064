# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""What opening a segment reads besides its metadata: the trailer, the entries of the footer, the root of the directory.

The trailer is: u64 opening offset, the footer's handle, u16 major and u16 minor version, u32 zero, u64 xxh3-64 of what
comes before, u64 magic; `esformat/format/layout.py` writes it. An entry of the footer is: u8 kind, u8 copy, u16
ordinal, and a handle, which is: u64 offset, u32 length, u32 check; `esformat/format/footer.py` writes them. A root's
body is: the node of each leaf's first space; in packs one after another, of each leaf: runs, rows, blocks, offset of
its first data block, its own offset, length and check, smallest timestamp, and how far the largest lies above it;
`esformat/format/directory.py` writes it.
"""

import array as arrays
from bisect import bisect_right
from typing import Any

import cython
from cython.cimports.cpython import array
from cython.cimports.cpython.bytes import PyBytes_FromStringAndSize
from cython.cimports.cpython.object import PyTypeObject
from cython.cimports.cpython.ref import PyObject
from cython.cimports.esformat.core.keys import Keys
from cython.cimports.esformat.core.leaves import Leaf
from cython.cimports.esformat.core.packs import PackHead, fill_numbers, number_of_bits, read_pack_head, whole_words
from cython.cimports.libc.string import memcmp

from esformat.core.blocks import LEAST_BLOCK_BYTES, MOST_BLOCK_BYTES, check_block_length
from esformat.core.keys import read_keys
from esformat.errors import CorruptSegmentError, UnsupportedVersionError

HEADER_BYTES = 16
TRAILER_BYTES = 48
TRAILER_MAGIC = b"\x1a\n\rBDSE\x89"
MAJOR_VERSION = 1
MOST_FILE_ROWS = 1 << 60
"""What sums of the rows of a file may reach."""

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
_COLUMNS = cython.declare(cython.Py_ssize_t, 9)
_ROWS = cython.declare(cython.Py_ssize_t, 1)
_BLOCKS = cython.declare(cython.Py_ssize_t, 2)
_DATA_OFFSET = cython.declare(cython.Py_ssize_t, 3)
_OFFSET = cython.declare(cython.Py_ssize_t, 4)
_LENGTH = cython.declare(cython.Py_ssize_t, 5)
_CHECK = cython.declare(cython.Py_ssize_t, 6)
_LOW = cython.declare(cython.Py_ssize_t, 7)
_SPAN = cython.declare(cython.Py_ssize_t, 8)
_MOST_ROWS = cython.declare(cython.longlong, MOST_FILE_ROWS)
_LONGS = cython.declare(array.array, arrays.array("q"))


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
def _handle(made: type, offset: object, length: object, check: object) -> object:
    """A handle: an instance of a class of named tuples, made quicker than by calling the class."""
    if not issubclass(made, tuple):
        raise TypeError("handles are named tuples")
    fields: tuple[tuple[Any, Any, Any]] = ((offset, length, check),)
    plain: cython.pointer(PyTypeObject) = cython.cast(cython.pointer(PyTypeObject), tuple)
    return plain.tp_new(made, cython.cast(cython.pointer(PyObject), fields), cython.NULL)


def check_version(major: int) -> None:
    """Refuse files of another major version. Raises UnsupportedVersionError."""
    if major != MAJOR_VERSION:
        raise UnsupportedVersionError(
            f"the file has format version {major}, this reader knows {MAJOR_VERSION}",
            hint="read it with a release of esformat that supports it",
        )


def read_trailer(tail: Any, file_size: cython.longlong, checksum: Any, made: Any) -> tuple[int, Any]:
    """The opening offset and the footer's handle from the last bytes of a file of `file_size` bytes.

    checksum: of bytes. made: the class of handles, named tuples. Raises CorruptSegmentError (not the end of a segment,
    damaged) or UnsupportedVersionError.
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
    return opening, _handle(made, footer, length, _u32(data + 20))


def read_entries(body: Any, count: cython.Py_ssize_t, offset: cython.ulonglong, made: Any) -> dict[Any, Any]:
    """The handle of each block that a footer names, by kind, ordinal and copy.

    offset: the footer's place in the file, behind all of them. made: the class of handles, named tuples.
    Raises CorruptSegmentError.
    """
    view: cython.const[cython.uchar][::1] = body
    if view.shape[0] % _ENTRY or view.shape[0] // _ENTRY != count:
        raise CorruptSegmentError("the footer's length does not fit its count", offset=offset)
    table: dict[Any, Any] = {}
    data: cython.p_const_uchar = cython.address(view[0]) if count else cython.NULL
    last: cython.longlong = -1
    for _ in range(count):  # whose bytes are all there
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
        table[kind, ordinal, copy] = _handle(made, at, length, _u32(data + 16))
        data += _ENTRY
    for kind, name in ((_METADATA, "metadata"), (_DIRECTORY_ROOT, "directory_root")):
        if (kind, 0, 0) not in table:
            raise CorruptSegmentError(f"the footer does not name the {name} block", offset=offset)
    return table


def check_opening(table: dict[Any, Any], start: cython.ulonglong) -> None:
    """Hold the opening offset `start` against the blocks that the footer names.

    Raises CorruptSegmentError unless the first of those that opening needs begins there, and no others follow.
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


@cython.final
@cython.cclass
class Root:
    """The root, one entry per leaf. Leaf i has rows `rows[i]`…`rows[i + 1]`; `blocks` is of the same kind.

    Its other numbers are read where they stand. Arrays of them, which nobody may change, are made for those who ask.
    """

    first_keys = cython.declare(Keys, visibility="readonly")  # type: Any
    """The first space of each leaf."""
    rows = cython.declare(array.array, visibility="readonly")  # type: Any
    blocks = cython.declare(array.array, visibility="readonly")  # type: Any
    _count: cython.Py_ssize_t
    _body: object
    _offset: Any
    _name: Any
    _made: object
    _heads: bytes  # memory of a PackHead for each column
    _decoded: list[Any]  # of each column its numbers; None where nobody asked, and they stand in the body as they are
    _highs: array.array

    def __init__(
        self, body: Any, count: cython.Py_ssize_t, offset: Any, plain: Any, framed: Any, made: Any, name: Any = None
    ) -> None:
        """body, count: of a block whose checksum was verified. offset, name: of the block and the file, for messages.

        plain, framed: decompressors without and with a dictionary. made: the class of handles, named tuples.
        Raises CorruptSegmentError where the root contradicts itself, UnsupportedVersionError.
        """
        view: cython.const[cython.uchar][::1] = body
        size: cython.Py_ssize_t = view.shape[0]
        self._body, self._count, self._offset, self._name, self._made = body, count, offset, name, made
        if count > size + 1:  # more leaves than a root of that size can name
            raise CorruptSegmentError("the directory root's count is out of bounds", path=name, offset=offset)
        self.first_keys, at = read_keys(body, 0, count, plain, framed)
        self._heads = PyBytes_FromStringAndSize(cython.NULL, _COLUMNS * cython.sizeof(PackHead))
        self._decoded = [None] * _COLUMNS
        place: cython.Py_ssize_t = at
        column: cython.Py_ssize_t
        for column in range(_COLUMNS):
            head: cython.pointer(PackHead) = self._head(column)
            if not read_pack_head(cython.address(view[0]), size, place, count, head):
                raise CorruptSegmentError("the header of packed numbers breaks the format, or they are cut short")
            place = head.end
            planes: cython.Py_ssize_t = head.width - head.raw
            if not head.bits and planes and (head.codec or place - head.stored_at != planes * count):
                self._decoded[column] = self._numbers(column, plain)
        if place != size:
            raise self._contradiction()
        self.rows, self.blocks = self._sums(_ROWS, plain), self._sums(_BLOCKS, plain)

    @cython.cfunc
    @cython.exceptval(check=False)
    def _head(self, column: cython.Py_ssize_t) -> cython.pointer(PackHead):
        heads: cython.p_char = self._heads
        return cython.cast(cython.pointer(PackHead), heads) + column

    @cython.cfunc
    def _numbers(self, column: cython.Py_ssize_t, plain: object) -> array.array:
        """The numbers of a column, decoded."""
        made: array.array = array.clone(_LONGS, self._count, False)
        view: cython.const[cython.uchar][::1] = self._body
        data: cython.p_const_uchar = cython.address(view[0])
        fill_numbers(self._body, data, self._head(column), self._count, plain, 0, made.data.as_longlongs, self._count)
        return made

    @cython.cfunc
    def _sums(self, column: cython.Py_ssize_t, plain: object) -> array.array:
        """The sums of the counts of a column, from 0 on. Raises CorruptSegmentError."""
        made: array.array = array.clone(_LONGS, self._count + 1, False)
        view: cython.const[cython.uchar][::1] = self._body
        sums: cython.p_longlong = made.data.as_longlongs
        data: cython.p_const_uchar = cython.address(view[0])
        sums[0] = 0
        fill_numbers(self._body, data, self._head(column), self._count, plain, 0, sums + 1, self._count)
        i: cython.Py_ssize_t
        for i in range(1, self._count + 1):
            if not 1 <= sums[i] <= _MOST_ROWS - sums[i - 1]:
                raise self._contradiction()
            sums[i] += sums[i - 1]
        return made

    @cython.cfunc
    def _column(self, column: cython.Py_ssize_t) -> array.array:
        """The numbers of a column, which are kept."""
        if self._decoded[column] is None:
            self._decoded[column] = self._numbers(column, None)
        return self._decoded[column]

    @cython.cfunc
    @cython.exceptval(check=False)
    def _number(
        self, data: cython.p_const_uchar, column: cython.Py_ssize_t, leaf: cython.Py_ssize_t
    ) -> cython.longlong:
        """What a column says of one leaf, modulo 2^64. The caller bounds both."""
        decoded: array.array = self._decoded[column]
        if decoded is not None:
            return decoded.data.as_longlongs[leaf]
        head: cython.pointer(PackHead) = self._head(column)
        if head.bits:
            whole: cython.Py_ssize_t = whole_words(head.end - head.stored_at, head.bits)
            return number_of_bits(data + head.stored_at, whole, head.bits, head.base, leaf)
        number: cython.ulonglong = 0
        k: cython.Py_ssize_t
        for k in range(head.width):  # raw planes, and behind them the others, which are as raw
            number |= cython.cast(cython.ulonglong, data[head.raw_at + k * self._count + leaf]) << (8 * k)
        return cython.cast(cython.longlong, number + cython.cast(cython.ulonglong, head.base))

    @cython.cfunc
    def _contradiction(self) -> Any:
        return CorruptSegmentError("the directory root contradicts itself", path=self._name, offset=self._offset)

    def __len__(self) -> int:
        return self._count

    @property
    def first_spaces(self) -> list[bytes]:
        """The first space of each leaf."""
        return self.first_keys.as_list()

    @property
    def data_offsets(self) -> Any:
        """Where the first data block of each leaf lies: an array of int64."""
        return self._column(_DATA_OFFSET)

    @property
    def min_timestamps(self) -> Any:
        """The earliest timestamp of each leaf, µs: an array of int64."""
        return self._column(_LOW)

    @property
    def max_timestamps(self) -> Any:
        """The latest timestamp of each leaf, µs: an array of int64. Raises CorruptSegmentError."""
        if self._highs is not None:
            return self._highs
        highs: array.array = array.copy(self._column(_SPAN))
        low: cython.p_longlong = self._column(_LOW).data.as_longlongs
        high: cython.p_longlong = highs.data.as_longlongs
        i: cython.Py_ssize_t
        for i in range(self._count):  # modulo 2^64, as they were written
            high[i] = cython.cast(
                cython.longlong, cython.cast(cython.ulonglong, low[i]) + cython.cast(cython.ulonglong, high[i])
            )
            if high[i] < low[i]:
                raise self._contradiction()
        self._highs = highs
        return highs

    def place(self, leaf: cython.Py_ssize_t) -> tuple[Any, int]:
        """The handle of a leaf, and where the first of its data blocks lies. Raises CorruptSegmentError, IndexError."""
        if not 0 <= leaf < self._count:
            raise IndexError("there is no such leaf")
        view: cython.const[cython.uchar][::1] = self._body
        data: cython.p_const_uchar = cython.address(view[0])
        data_offset: cython.longlong = self._number(data, _DATA_OFFSET, leaf)
        offset: cython.longlong = self._number(data, _OFFSET, leaf)
        length: cython.longlong = self._number(data, _LENGTH, leaf)
        if data_offset < 1 or offset < 1:
            raise self._contradiction()
        if not LEAST_BLOCK_BYTES <= length <= MOST_BLOCK_BYTES:
            check_block_length(length, offset, self._name)
        return _handle(self._made, offset, length, self._number(data, _CHECK, leaf)), data_offset

    def handle(self, leaf: cython.Py_ssize_t) -> Any:
        """Where a leaf lies. Raises CorruptSegmentError, IndexError."""
        return self.place(leaf)[0]

    def describes(self, number: cython.Py_ssize_t, leaf: Leaf) -> bool:
        """Whether a leaf has the rows and blocks that the root says, and the first space, where its keys are decoded.

        Times are for checkers.
        """
        if not 0 <= number < self._count:
            raise IndexError("there is no such leaf")
        return (
            leaf.last_row == self.rows.data.as_longlongs[number + 1]
            and leaf.first_block + leaf.block_count == self.blocks.data.as_longlongs[number + 1]
            and (leaf.spaces is None or leaf.spaces[0] == self.first_keys[number])
        )

    def leaves_of(self, space: bytes) -> Any:
        """The leaves that can hold a space: usually one."""
        return self.first_keys.holders_of(space)

    def leaves_before(self, space: bytes) -> int:
        """How many leaves begin with a smaller space."""
        return self.first_keys.places_of(space)[0]

    def leaf_of_row(self, row: int) -> int:
        """The leaf that covers a row of the segment."""
        return bisect_right(self.rows, row) - 1
