# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""The root of the directory, and its pages.

A root's body is: u32 leaves of the file; entries, one for each leaf, or if they are fewer, for each page of leaves. A
page's body is the entries of its leaves. Entries are: the node of the first space of each; then adjacent packs of their
runs, rows, blocks, offset of the first data block, own offset, length and check, smallest timestamp, and the largest
timestamp minus the smallest. `esformat/format/directory.py` writes them.
"""

import array as arrays
from typing import Any

import cython
from cython.cimports.cpython import array
from cython.cimports.cpython.bytes import PyBytes_FromStringAndSize
from cython.cimports.esformat.core.footers import new_handle
from cython.cimports.esformat.core.leaves import Leaf
from cython.cimports.esformat.core.packs import PackHead, fill_numbers, number_of_bits, read_pack_head, whole_words

from esformat.core.blocks import LEAST_BLOCK_BYTES, MOST_BLOCK_BYTES, check_block_length
from esformat.core.keys import read_keys
from esformat.errors import CorruptSegmentError

MOST_FILE_ROWS = 1 << 60
"""Limit of sums of rows in a file."""
PAGE_LEAVES = 256
"""Number of leaves that each page of the directory lists, except the last page."""

_EACH = cython.declare(cython.Py_ssize_t, PAGE_LEAVES)
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


@cython.final
@cython.cclass
class Entries:
    """The entries of leaves or pages in the root, or of leaves in a page. Entry i has rows `rows[i]`…`rows[i + 1]` of
    the segment; `blocks` works the same way.

    Other numbers are read in place. Arrays of them are created on demand; callers must not modify them.
    """

    first_keys: Any
    """The first space of each; none is less than the one before it."""
    rows: Any
    blocks: Any
    _count: cython.Py_ssize_t
    _body: object
    _offset: Any
    _name: Any
    _handle_class: object
    _heads: bytes  # memory of a PackHead for each column
    _decoded: list[Any]  # the numbers of each column; None if not needed so far and stored uncompressed in the body
    _highs: array.array

    def __init__(
        self,
        body: Any,
        at: cython.Py_ssize_t,
        count: cython.Py_ssize_t,
        first_row: cython.longlong,
        first_block: cython.longlong,
        offset: Any,
        plain: Any,
        framed: Any,
        handle_class: Any,
        name: Any = None,
    ) -> None:
        """Raises CorruptSegmentError if the entries contradict themselves, UnsupportedVersionError.

        body: of a block whose checksum was verified; `count` entries begin at its byte `at`, and end with it.
        first_row, first_block: numbers of the first row and block.
        offset, name: of the block and the file, for messages.
        plain, framed: decompressors without and with a dictionary.
        handle_class: the class of handles, named tuples.
        """
        view: cython.const[cython.uchar][::1] = body
        size: cython.Py_ssize_t = view.shape[0]
        self._body, self._count, self._offset, self._name, self._handle_class = body, count, offset, name, handle_class
        if not 0 <= count <= size:  # more than a block of that size can list
            raise CorruptSegmentError("the directory root's count is out of bounds", path=name, offset=offset)
        self.first_keys, at = read_keys(body, at, count, plain, framed)
        if self.first_keys.descend():
            raise self._contradiction()
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
        self.rows, self.blocks = self._sums(_ROWS, first_row, plain), self._sums(_BLOCKS, first_block, plain)

    @cython.cfunc
    @cython.exceptval(check=False)
    def _head(self, column: cython.Py_ssize_t) -> cython.pointer(PackHead):
        heads: cython.p_char = self._heads
        return cython.cast(cython.pointer(PackHead), heads) + column

    @cython.cfunc
    def _numbers(self, column: cython.Py_ssize_t, plain: object) -> array.array:
        """Decode the numbers of a column."""
        made: array.array = array.clone(_LONGS, self._count, False)
        view: cython.const[cython.uchar][::1] = self._body
        data: cython.p_const_uchar = cython.address(view[0])
        fill_numbers(self._body, data, self._head(column), self._count, plain, 0, made.data.as_longlongs, self._count)
        return made

    @cython.cfunc
    def _sums(self, column: cython.Py_ssize_t, first: cython.longlong, plain: object) -> array.array:
        """The cumulative sums of a column of counts, starting with `first`. Raises CorruptSegmentError."""
        made: array.array = array.clone(_LONGS, self._count + 1, False)
        view: cython.const[cython.uchar][::1] = self._body
        sums: cython.p_longlong = made.data.as_longlongs
        data: cython.p_const_uchar = cython.address(view[0])
        sums[0] = first
        fill_numbers(self._body, data, self._head(column), self._count, plain, 0, sums + 1, self._count)
        i: cython.Py_ssize_t
        for i in range(1, self._count + 1):
            if not 1 <= sums[i] <= _MOST_ROWS - sums[i - 1]:
                raise self._contradiction()
            sums[i] += sums[i - 1]
        return made

    @cython.cfunc
    def _column(self, column: cython.Py_ssize_t) -> array.array:
        """The numbers of a column, cached."""
        if self._decoded[column] is None:
            self._decoded[column] = self._numbers(column, None)
        return self._decoded[column]

    @cython.cfunc
    @cython.exceptval(check=False)
    def _number(
        self, data: cython.p_const_uchar, column: cython.Py_ssize_t, entry: cython.Py_ssize_t
    ) -> cython.longlong:
        """The number of one entry in a column, modulo 2^64. The caller bounds both."""
        decoded: array.array = self._decoded[column]
        if decoded is not None:
            return decoded.data.as_longlongs[entry]
        head: cython.pointer(PackHead) = self._head(column)
        if head.bits:
            whole: cython.Py_ssize_t = whole_words(head.end - head.stored_at, head.bits)
            return number_of_bits(data + head.stored_at, whole, head.bits, head.base, entry)
        number: cython.ulonglong = 0
        k: cython.Py_ssize_t
        for k in range(head.width):  # raw planes, followed by the others, which are uncompressed too
            number |= cython.cast(cython.ulonglong, data[head.raw_at + k * self._count + entry]) << (8 * k)
        return cython.cast(cython.longlong, number + cython.cast(cython.ulonglong, head.base))

    @cython.cfunc
    def _contradiction(self) -> Any:
        return CorruptSegmentError("the directory root contradicts itself", path=self._name, offset=self._offset)

    @property
    def data_offsets(self) -> Any:
        """The offset of the first data block of each: an array of int64."""
        return self._column(_DATA_OFFSET)

    @property
    def min_timestamps(self) -> Any:
        """The earliest timestamp of each, µs: an array of int64."""
        return self._column(_LOW)

    @property
    def max_timestamps(self) -> Any:
        """The latest timestamp of each, µs: an array of int64. Raises CorruptSegmentError."""
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

    @cython.cfunc
    @cython.exceptval(check=False)
    def _entry_of(self, row: cython.longlong) -> cython.Py_ssize_t:
        """The entry with a row of the segment; -1 or the number of entries if no entry has it."""
        rows: cython.p_longlong = self.rows.data.as_longlongs
        low: cython.Py_ssize_t = 0
        high: cython.Py_ssize_t = self._count + 1
        middle: cython.Py_ssize_t
        while low < high:
            middle = low + (high - low) // 2
            if rows[middle] <= row:
                low = middle + 1
            else:
                high = middle
        return low - 1

    @cython.cfunc
    @cython.exceptval(check=False)
    def _holders(
        self, key: bytes, first: cython.pointer(cython.Py_ssize_t), last: cython.pointer(cython.Py_ssize_t)
    ) -> cython.void:
        """The entries [first, last) that can contain a space: usually one."""
        self.first_keys._places(key, first, last)
        first[0] = max(first[0] - 1, 0)

    @cython.cfunc
    def _place(self, entry: cython.Py_ssize_t) -> Any:
        """The handle of a leaf or page, and the offset of its first data block; the caller bounds the number.

        Raises CorruptSegmentError.
        """
        view: cython.const[cython.uchar][::1] = self._body
        data: cython.p_const_uchar = cython.address(view[0])
        data_offset: cython.longlong = self._number(data, _DATA_OFFSET, entry)
        offset: cython.longlong = self._number(data, _OFFSET, entry)
        length: cython.longlong = self._number(data, _LENGTH, entry)
        if data_offset < 1 or offset < 1:
            raise self._contradiction()
        if not LEAST_BLOCK_BYTES <= length <= MOST_BLOCK_BYTES:
            check_block_length(length, offset, self._name)
        return new_handle(self._handle_class, offset, length, self._number(data, _CHECK, entry)), data_offset

    @cython.cfunc
    def _times(self, entry: cython.Py_ssize_t) -> Any:
        """The earliest and the latest timestamp; the caller bounds the number. Raises CorruptSegmentError."""
        view: cython.const[cython.uchar][::1] = self._body
        data: cython.p_const_uchar = cython.address(view[0])
        low: cython.longlong = self._number(data, _LOW, entry)
        span: cython.longlong = self._number(data, _SPAN, entry)
        high: cython.longlong = cython.cast(  # modulo 2^64, as it was written
            cython.longlong, cython.cast(cython.ulonglong, low) + cython.cast(cython.ulonglong, span)
        )
        if high < low:
            raise self._contradiction()
        return low, high


@cython.final
@cython.cclass
class Root:
    """The leaves of a segment: if few, the directory's root lists them; if many, the pages that it lists.

    A page is read when one of its leaves is first needed, and then cached. Functions for all leaves read all pages.
    """

    events: int
    """The number of rows of all leaves."""
    data_blocks: int
    """The number of data blocks of all leaves."""
    _pages: list[Any]  # the entries of each page, None before it is read; without pages the root itself
    _top: Entries
    _count: cython.Py_ssize_t
    _paged: cython.bint
    _read: Any
    _of_all: dict[Any, Any]

    def __init__(
        self,
        body: Any,
        count: cython.Py_ssize_t,
        offset: Any,
        plain: Any,
        framed: Any,
        handle_class: Any,
        name: Any = None,
        read: Any = None,
    ) -> None:
        """Raises CorruptSegmentError if the root contradicts itself, UnsupportedVersionError.

        body, count: of a block whose checksum was verified.
        offset, name: of the block and the file, for messages.
        plain, framed: decompressors without and with a dictionary.
        handle_class: the class of handles, named tuples.
        read: reads pages, from a list of what `page_place` returns for them.
        """
        view: cython.const[cython.uchar][::1] = body
        if view.shape[0] < 4:
            raise CorruptSegmentError("the directory root is cut short", path=name, offset=offset)
        data: cython.p_const_uchar = cython.address(view[0])
        self._count = data[0] | data[1] << 8 | data[2] << 16 | cython.cast(cython.ulonglong, data[3]) << 24
        self._top = top = Entries(body, 4, count, 0, 0, offset, plain, framed, handle_class, name)
        self._paged, self._read, self._of_all = count != self._count, read, {}
        if self._paged and count != (self._count + _EACH - 1) // _EACH:
            raise top._contradiction()
        self._pages = [None] * count if self._paged else [top]
        self.events, self.data_blocks = top.rows.data.as_longlongs[count], top.blocks.data.as_longlongs[count]

    def __len__(self) -> int:
        return self._count

    @cython.cfunc
    def _page(self, number: cython.Py_ssize_t) -> Entries:
        """The page of that number, read if needed; without pages, the root itself. The caller bounds the number."""
        page: Entries = self._pages[number]
        return self._read_pages(number, number + 1) if page is None else page

    @cython.cfunc
    def _read_pages(self, first: cython.Py_ssize_t, last: cython.Py_ssize_t) -> Entries:
        """Read pages [first, last); return the first. Raises CorruptSegmentError, also if the root contradicts them."""
        top: Entries = self._top
        page: Entries
        number: cython.Py_ssize_t
        read: list[Any] = self._read([self.page_place(number) for number in range(first, last)])
        if len(read) != last - first:
            raise ValueError("different pages were requested")
        rows: cython.p_longlong = top.rows.data.as_longlongs
        blocks: cython.p_longlong = top.blocks.data.as_longlongs
        for number in range(first, last):
            page = read[number - first]
            if (
                page._count != min(_EACH, self._count - _EACH * number)
                or page.rows.data.as_longlongs[0] != rows[number]
                or page.rows.data.as_longlongs[page._count] != rows[number + 1]
                or page.blocks.data.as_longlongs[0] != blocks[number]
                or page.blocks.data.as_longlongs[page._count] != blocks[number + 1]
                or page.first_keys[0] != top.first_keys[number]
            ):
                raise CorruptSegmentError("a directory page and the root disagree", path=top._name, offset=page._offset)
            self._pages[number] = page
        return self._pages[first]

    @cython.cfunc
    def _of_leaf(self, leaf: cython.Py_ssize_t, entry: cython.pointer(cython.Py_ssize_t)) -> Entries:
        """The entries that list a leaf, and its place there. Raises IndexError, CorruptSegmentError."""
        if not 0 <= leaf < self._count:
            raise IndexError("no such leaf")
        number: cython.Py_ssize_t = leaf // _EACH if self._paged else 0
        entry[0] = leaf - _EACH * number
        return self._page(number)

    @property
    def page_count(self) -> int:
        """The number of pages; 0 if the root itself lists the leaves."""
        return len(self._pages) if self._paged else 0

    def page_place(self, number: cython.Py_ssize_t) -> Any:
        """The handle of a page, and the rows and blocks before it. Raises CorruptSegmentError, IndexError."""
        if not 0 <= number < len(self._pages) or not self._paged:
            raise IndexError("no such page")
        top: Entries = self._top
        return top._place(number)[0], top.rows.data.as_longlongs[number], top.blocks.data.as_longlongs[number]

    # ------------------------------------------------------------ one leaf

    def place(self, leaf: cython.Py_ssize_t) -> tuple[Any, int]:
        """The handle of a leaf, and the offset of its first data block. Raises CorruptSegmentError, IndexError."""
        entry = cython.declare(cython.Py_ssize_t)
        return self._of_leaf(leaf, cython.address(entry))._place(entry)

    def handle(self, leaf: cython.Py_ssize_t) -> Any:
        """The handle of a leaf. Raises CorruptSegmentError, IndexError."""
        return self.place(leaf)[0]

    def rows_of(self, leaf: cython.Py_ssize_t) -> tuple[int, int]:
        """The rows [first, last) of a leaf. Raises CorruptSegmentError, IndexError."""
        entry = cython.declare(cython.Py_ssize_t)
        page: Entries = self._of_leaf(leaf, cython.address(entry))
        return page.rows.data.as_longlongs[entry], page.rows.data.as_longlongs[entry + 1]

    def blocks_of(self, leaf: cython.Py_ssize_t) -> tuple[int, int]:
        """The data blocks [first, last) of a leaf. Raises CorruptSegmentError, IndexError."""
        entry = cython.declare(cython.Py_ssize_t)
        page: Entries = self._of_leaf(leaf, cython.address(entry))
        return page.blocks.data.as_longlongs[entry], page.blocks.data.as_longlongs[entry + 1]

    def times_of(self, leaf: cython.Py_ssize_t) -> tuple[int, int]:
        """The earliest and the latest timestamp of a leaf, µs. Raises CorruptSegmentError, IndexError."""
        entry = cython.declare(cython.Py_ssize_t)
        return self._of_leaf(leaf, cython.address(entry))._times(entry)

    def first_space_of(self, leaf: cython.Py_ssize_t) -> bytes:
        """The first space of a leaf. Raises CorruptSegmentError, IndexError."""
        entry = cython.declare(cython.Py_ssize_t)
        if self._paged and 0 <= leaf < self._count and leaf % _EACH == 0:  # the root stores it
            return self._top.first_keys[leaf // _EACH]
        page: Entries = self._of_leaf(leaf, cython.address(entry))
        return page.first_keys[entry]

    def describes(self, number: cython.Py_ssize_t, leaf: Leaf) -> bool:
        """Whether a leaf has the rows and blocks that the root states, and the first space, if its keys are decoded.

        Times are left to verification.
        """
        entry = cython.declare(cython.Py_ssize_t)
        page: Entries = self._of_leaf(number, cython.address(entry))
        return (
            leaf.last_row == page.rows.data.as_longlongs[entry + 1]
            and leaf.first_block + leaf.block_count == page.blocks.data.as_longlongs[entry + 1]
            and (leaf.spaces is None or leaf.spaces[0] == page.first_keys[entry])
        )

    # ------------------------------------------------------------ leaves that contain something

    @cython.cfunc
    @cython.exceptval(-1)
    def _leaves_of(
        self, space: bytes, first: cython.pointer(cython.Py_ssize_t), last: cython.pointer(cython.Py_ssize_t)
    ) -> cython.int:
        """The leaves [first, last) that can contain a space. Raises CorruptSegmentError."""
        top: Entries = self._top
        page: Entries
        top._holders(space, first, last)
        if not self._paged or first[0] == last[0]:
            return 0
        beyond = cython.declare(cython.Py_ssize_t)
        number: cython.Py_ssize_t = first[0]
        final: cython.Py_ssize_t = last[0] - 1
        page = self._page(number)
        page._holders(space, first, cython.address(beyond))
        first[0] += _EACH * number
        if number != final:
            page = self._page(final)
            page._holders(space, last, cython.address(beyond))
        last[0] = _EACH * final + beyond
        return 0

    def leaves_of(self, space: bytes) -> range:
        """The leaves that can contain a space: usually one. Raises CorruptSegmentError."""
        first = cython.declare(cython.Py_ssize_t)
        last = cython.declare(cython.Py_ssize_t)
        self._leaves_of(space, cython.address(first), cython.address(last))
        return range(first, last)

    def leaves_of_each(self, spaces: list[bytes]) -> list[int]:
        """The leaves that can contain any of ascending spaces, ascending. Raises CorruptSegmentError."""
        first = cython.declare(cython.Py_ssize_t)
        last = cython.declare(cython.Py_ssize_t)
        found: list[int] = []
        listed: cython.Py_ssize_t = 0  # the leaves before this one
        space: bytes
        for space in spaces:
            self._leaves_of(space, cython.address(first), cython.address(last))
            found.extend(range(max(first, listed), last))
            listed = max(listed, last)
        return found

    def has_pages_for(self, space: bytes) -> bool:
        """Whether the leaves that can contain a space are known without reading a page."""
        first = cython.declare(cython.Py_ssize_t)
        last = cython.declare(cython.Py_ssize_t)
        top: Entries = self._top
        top._holders(space, cython.address(first), cython.address(last))
        return not self._paged or first == last or None not in (self._pages[first], self._pages[last - 1])

    def leaves_before(self, space: bytes) -> int:
        """The number of leaves that begin with a smaller space. Raises CorruptSegmentError."""
        top: Entries = self._top
        before: int = top.first_keys.places_of(space)[0]
        if not self._paged or not before:
            return before
        return PAGE_LEAVES * (before - 1) + self._page(before - 1).first_keys.places_of(space)[0]

    def leaf_of_row(self, row: cython.longlong) -> int:
        """The leaf that covers a row of the segment; -1 or the number of leaves if none does.

        Raises CorruptSegmentError.
        """
        top: Entries = self._top
        number: cython.Py_ssize_t = top._entry_of(row)
        if not self._paged:
            return number
        if not 0 <= number < len(self._pages):
            return -1 if number < 0 else self._count
        return _EACH * number + self._page(number)._entry_of(row)

    # ------------------------------------------------------------ all leaves

    def read_pages(self) -> None:
        """Read all pages that have not been read, many at a time."""
        first: cython.Py_ssize_t = 0
        last: cython.Py_ssize_t
        while first < len(self._pages):
            last = first
            while last < len(self._pages) and last < first + 64 and self._pages[last] is None:
                last += 1
            if last > first:
                self._read_pages(first, last)
            first = max(last, first + 1)

    def _of_each(self, name: str, edges: cython.bint = False) -> Any:
        """Numbers of all leaves, concatenated; for edges, the last of a page is the first of the next."""
        found: Any = self._of_all.get(name)
        if found is None:
            self.read_pages()
            if not self._paged:
                return getattr(self._top, name)
            found = arrays.array("q")
            for page in self._pages:
                if edges and len(found):
                    found.pop()
                found.extend(getattr(page, name))
            self._of_all[name] = found
        return found

    @property
    def rows(self) -> Any:
        """Leaf i has rows [rows[i], rows[i + 1]): an array of int64, which callers must not modify."""
        return self._of_each("rows", True)

    @property
    def blocks(self) -> Any:
        """Leaf i has data blocks [blocks[i], blocks[i + 1]): an array of int64, which callers must not modify."""
        return self._of_each("blocks", True)

    @property
    def first_spaces(self) -> list[bytes]:
        """The first space of each leaf."""
        self.read_pages()
        return [key for page in self._pages for key in page.first_keys.as_list()]

    @property
    def data_offsets(self) -> Any:
        """The offset of the first data block of each leaf: an array of int64, which callers must not modify."""
        return self._of_each("data_offsets")

    @property
    def min_timestamps(self) -> Any:
        """The earliest timestamp of each leaf, µs: an array of int64, which callers must not modify."""
        return self._of_each("min_timestamps")

    @property
    def max_timestamps(self) -> Any:
        """The latest timestamp of each leaf, µs: an array of int64, which callers must not modify. Raises
        CorruptSegmentError.
        """
        return self._of_each("max_timestamps")
