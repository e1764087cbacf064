# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""Open leaves of the directory: decode their runs, and the table of the blocks that contain the rows of those runs.

A leaf's body is: u32 blocks; the packed rows of its runs; the nodes of their spaces and groupings; for each block, in
adjacent packs: rows, bytes, check, smallest timestamp, and the largest timestamp minus the smallest.
`esformat/format/directory.py` writes them.
"""

import array as arrays
from collections.abc import Sequence
from typing import Any

import cython
from cython.cimports.cpython import array
from cython.cimports.esformat.core.blocks import Chunks
from cython.cimports.esformat.core.packs import FRONT_CODED, PackHead, end_of_texts, fill_numbers, read_pack_head

from esformat.core.blocks import LEAST_BLOCK_BYTES, MOST_BLOCK_BYTES, check_block_length, open_block
from esformat.core.keys import Keys, read_keys
from esformat.errors import CorruptSegmentError

MOST_BLOCKS = 256  # of a leaf
MOST_RUNS = 1 << 17
_MOST = cython.declare(cython.longlong, 1 << 61)  # rows, or bytes: no sum of two overflows
_LARGEST = cython.declare(cython.longlong, (1 << 63) - 1)
_LEAST = cython.declare(cython.longlong, -_LARGEST - 1)
_LEAST_BYTES = cython.declare(cython.longlong, LEAST_BLOCK_BYTES)
_MOST_BYTES = cython.declare(cython.longlong, MOST_BLOCK_BYTES)
_DATA = cython.declare(cython.int, 2)  # the kind of data blocks
_COLUMNS = cython.declare(cython.Py_ssize_t, 5)
_LONGS = cython.declare(array.array, arrays.array("q"))


@cython.final
@cython.cclass
class Leaf:
    """A decoded leaf. Rows and blocks are numbered as in the whole segment; arrays are of int64.

    `spaces`, `groupings`: those of the runs, None until `open_keys`; `run_rows[i]`…`run_rows[i + 1]`: rows of run i.
    `block_rows[j]`…`block_rows[j + 1]`: rows of the leaf's block j; `block_offsets[j]`…`[j + 1]`: its bytes.
    """

    spaces: Any
    groupings: Any
    run_rows: Any
    block_rows: Any
    block_offsets: Any
    block_checks: Any
    block_min: Any
    block_max: Any
    block_count: int
    """Number of data blocks that the leaf covers."""
    _body: object
    _keys_at: cython.Py_ssize_t
    _keys_end: cython.Py_ssize_t
    first_row: int
    last_row: int
    first_block: int
    has_groupings: bool
    size_bytes: int
    """Memory used."""

    def __init__(
        self,
        body: Any,
        runs: cython.Py_ssize_t,
        first_row: cython.longlong,
        first_block: cython.longlong,
        data_offset: cython.longlong,
        plain: Any,
    ) -> None:
        """plain: a decompressor without a dictionary. Raises CorruptSegmentError if the leaf contradicts itself."""
        view: cython.const[cython.uchar][::1] = body
        size: cython.Py_ssize_t = view.shape[0]
        if size < 4:
            raise CorruptSegmentError("a directory leaf is cut short")
        data: cython.p_const_uchar = cython.address(view[0])
        blocks: cython.ulonglong = data[0] | data[1] << 8 | data[2] << 16 | cython.cast(cython.ulonglong, data[3]) << 24
        if not 0 < blocks <= MOST_BLOCKS or not 0 < runs <= MOST_RUNS:
            raise CorruptSegmentError("a directory leaf's counts are out of bounds")
        self.first_row, self.first_block, self.block_count = first_row, first_block, blocks
        head = cython.declare(PackHead)
        self.run_rows = array.clone(_LONGS, runs + 1, False)
        _read_pack(body, view, 4, runs, cython.address(head), plain, self.run_rows.data.as_longlongs + 1)
        self.last_row = _summed(self.run_rows.data.as_longlongs, runs, first_row)
        self._body, self._keys_at = body, head.end
        at: cython.Py_ssize_t = end_of_texts(data, size, head.end, runs)
        self._keys_end = end_of_texts(data, size, at, runs) if at >= 0 else -1
        if self._keys_end < 0:
            raise CorruptSegmentError("the keys of a directory leaf break the format")
        end: cython.Py_ssize_t = self._read_blocks(body, view, self._keys_end, data_offset, plain)
        if end != size or self.block_rows.data.as_longlongs[blocks] != self.last_row:
            raise CorruptSegmentError("a directory leaf contradicts itself")
        opened: cython.Py_ssize_t = 5 if data[head.end] == FRONT_CODED else 4  # approximate ratio to stored bytes
        self.size_bytes = 1200 + 24 * runs + 40 * self.block_count + opened * (self._keys_end - self._keys_at)

    def open_keys(self, plain: Any, framed: Any) -> None:
        """Decode the keys of the runs, unless they are decoded: scans of other columns need none.

        plain, framed: decompressors without and with a dictionary. Raises CorruptSegmentError, UnsupportedVersionError.
        """
        body: Any = self._body
        if self.spaces is not None:
            return
        runs: cython.Py_ssize_t = len(self.run_rows) - 1
        spaces, at = read_keys(body, self._keys_at, runs, plain, framed)
        groupings, at = read_keys(body, at, runs, plain, framed)
        if at != self._keys_end:
            raise CorruptSegmentError("a directory leaf contradicts itself")
        if not spaces.ascend_with(groupings):
            raise CorruptSegmentError("the runs of a directory leaf do not ascend")
        self.groupings, self.has_groupings = groupings, not groupings.all_empty
        self.spaces = spaces  # last, because another thread may check it

    @cython.cfunc
    def _read_blocks(
        self,
        body: object,
        view: cython.const[cython.uchar][::1],
        at: cython.Py_ssize_t,
        data_offset: cython.longlong,
        plain: object,
    ) -> cython.Py_ssize_t:
        """Read the tables of the blocks; return the byte after them."""
        count: cython.Py_ssize_t = self.block_count
        self.block_rows = array.clone(_LONGS, count + 1, False)
        self.block_offsets = array.clone(_LONGS, count + 1, False)
        self.block_checks = array.clone(_LONGS, count, False)
        self.block_min = array.clone(_LONGS, count, False)
        self.block_max = array.clone(_LONGS, count, False)
        head = cython.declare(PackHead)
        head.end = at
        columns = cython.declare(cython.p_longlong[5])
        columns[0] = self.block_rows.data.as_longlongs + 1
        columns[1] = self.block_offsets.data.as_longlongs + 1
        columns[2] = self.block_checks.data.as_longlongs
        columns[3] = self.block_min.data.as_longlongs
        columns[4] = self.block_max.data.as_longlongs
        column: cython.Py_ssize_t
        for column in range(_COLUMNS):
            _read_pack(body, view, head.end, count, cython.address(head), plain, columns[column])
        i: cython.Py_ssize_t
        high: cython.longlong
        for i in range(count):
            if not _LEAST_BYTES <= columns[1][i] <= _MOST_BYTES:
                check_block_length(columns[1][i], None)
            high = cython.cast(  # modulo 2^64, as it was written
                cython.longlong,
                cython.cast(cython.ulonglong, columns[3][i]) + cython.cast(cython.ulonglong, columns[4][i]),
            )
            if high < columns[3][i]:
                raise CorruptSegmentError("a directory leaf contradicts itself")
            columns[4][i] = high
        _summed(self.block_rows.data.as_longlongs, count, self.first_row)
        _summed(self.block_offsets.data.as_longlongs, count, data_offset)
        return head.end

    def runs_of(self, space: bytes) -> tuple[int, int]:
        """The runs [first, last) of a space in this leaf; an empty range if it has none."""
        return self.spaces.places_of(space)

    def runs_of_each(self, spaces: list[bytes]) -> list[tuple[int, int]]:
        """The runs [first, last) of each of ascending spaces, without those that the leaf lacks.

        Raises ValueError before `open_keys`.
        """
        held: Keys = self.spaces
        if held is None:
            raise ValueError("the keys of the leaf are not decoded")
        first = cython.declare(cython.Py_ssize_t)
        last = cython.declare(cython.Py_ssize_t)
        low: cython.Py_ssize_t = 0
        high: cython.Py_ssize_t = len(spaces)
        middle: cython.Py_ssize_t
        while low < high:  # find the first space that is not before the leaf's
            middle = low + (high - low) // 2
            if held._order(0, spaces[middle]) > 0:
                low = middle + 1
            else:
                high = middle
        found: list[tuple[int, int]] = []
        space: bytes
        for middle in range(low, len(spaces)):
            space = spaces[middle]
            if held._order(held._count - 1, space) < 0:
                break
            held._places(space, cython.address(first), cython.address(last))
            if first < last:
                found.append((first, last))
        return found

    def block_of(self, row: cython.longlong) -> int:
        """The leaf's block that contains a row of the segment."""
        return self._block_of(row)

    def open_data_block(
        self,
        number: cython.Py_ssize_t,
        stored: Any,
        checksum: Any,
        block_class: Any,
        columns: cython.Py_ssize_t,
        wanted: Any = None,
    ) -> Any:
        """Open the leaf's block of that number, of which `stored` is all bytes, or the first ones if not all chunks
        are wanted.

        checksum: computes the checksum of bytes. block_class: the class of the result, a kind of `Chunks`. columns:
        number of columns in the schema. wanted: numbers of the chunks that will be used; None for all. Raises
        ChecksumMismatchError, CorruptSegmentError.
        """
        if not 0 <= number < self.block_count:
            raise ValueError("a leaf has fewer blocks")
        edges: cython.p_longlong = self.block_offsets.data.as_longlongs
        offset: cython.longlong = edges[number]
        rows: cython.p_longlong = self.block_rows.data.as_longlongs
        check: cython.longlong = self.block_checks.data.as_longlongs[number]
        block = open_block(stored, checksum, _DATA, check, offset, edges[number + 1] - offset)
        if block.count != rows[number + 1] - rows[number]:
            raise CorruptSegmentError("a data block and its directory leaf disagree about its rows", offset=offset)
        opened = block_class(block, columns, wanted)
        if opened.base != self.block_min.data.as_longlongs[number]:
            raise CorruptSegmentError("a data block and its directory leaf disagree about its time", offset=offset)
        return opened

    @cython.cfunc
    @cython.exceptval(check=False)
    def _block_of(self, row: cython.longlong) -> cython.Py_ssize_t:
        return _place(self.block_rows.data.as_longlongs, self.block_count + 1, row + 1) - 1

    @cython.cfunc
    @cython.exceptval(check=False)
    def _run_of(self, row: cython.longlong) -> cython.Py_ssize_t:
        """The leaf's run that contains a row of the segment."""
        return _place(self.run_rows.data.as_longlongs, len(self.run_rows), row + 1) - 1

    def slices(
        self,
        first: cython.longlong,
        last: cython.longlong,
        run_start: cython.longlong,
        blocks: Any = None,
        rows: Any = None,
        start: Any = None,
        end: Any = None,
    ) -> list[Any]:
        """Split rows [first, last) of the segment by the leaf's blocks that may contain wanted rows: `BlockSlice`s.

        Raises ValueError if the leaf does not have the rows.

        run_start: stored in each slice.
        blocks: numbers of data blocks of the segment, rows: numbers of rows; both ascending arrays of int64, or None
            for all.
        start, end: timestamps, µs, or None.
        """
        if not self.first_row <= first < last <= self.last_row:
            raise ValueError("the leaf does not have the requested rows")
        cut: array.array = self.block_rows
        edges: cython.p_longlong = cut.data.as_longlongs
        lows: array.array = self.block_min
        highs: array.array = self.block_max
        i: cython.Py_ssize_t
        number: cython.Py_ssize_t = self._block_of(first)
        wanted: cython.const[cython.longlong][::1] = blocks
        listed: cython.const[cython.longlong][::1] = rows
        next_wanted: cython.Py_ssize_t = 0
        from_row: cython.Py_ssize_t = 0
        if blocks is not None and wanted.shape[0]:
            next_wanted = _place(cython.address(wanted[0]), wanted.shape[0], self.first_block + number)
        if rows is not None and listed.shape[0]:
            from_row = _place(cython.address(listed[0]), listed.shape[0], first)
        to_row: cython.Py_ssize_t = from_row
        low: cython.longlong = _LEAST if start is None else start
        high: cython.longlong = _LARGEST if end is None else end
        open_end: cython.bint = end is None
        found: list[BlockSlice] = []
        for i in range(number, self.block_count):
            if edges[i] >= last:
                break
            one: cython.longlong = max(first, edges[i])
            two: cython.longlong = min(last, edges[i + 1])
            if rows is not None:
                from_row = to_row
                while to_row < listed.shape[0] and listed[to_row] < two:
                    to_row += 1
                if from_row == to_row:
                    continue
            if blocks is not None:
                while next_wanted < wanted.shape[0] and wanted[next_wanted] < self.first_block + i:
                    next_wanted += 1
                if next_wanted == wanted.shape[0] or wanted[next_wanted] != self.first_block + i:
                    continue
            if highs.data.as_longlongs[i] < low or (not open_end and lows.data.as_longlongs[i] >= high):
                continue
            found.append(BlockSlice(self, i, one, two, None if rows is None else rows[from_row:to_row], run_start))
        return found


@cython.final
@cython.freelist(64)
@cython.cclass
class BlockSlice:
    """Rows [first, last) of the segment in one data block of a leaf; `rows` lists them if not all are wanted."""

    leaf = cython.declare(Leaf, visibility="readonly")  # type: Leaf
    block = cython.declare(cython.Py_ssize_t, visibility="readonly")  # type: int
    """The block's number in the leaf."""
    number = cython.declare(cython.longlong, visibility="readonly")  # type: int
    """The block's number in the segment."""
    first = cython.declare(cython.longlong, visibility="readonly")  # type: int
    last = cython.declare(cython.longlong, visibility="readonly")  # type: int
    rows = cython.declare(object, visibility="readonly")  # type: Any
    run_start = cython.declare(cython.longlong, visibility="readonly")  # type: int
    """The first row of the run to which all rows belong; -1 if they may belong to several."""
    origin = cython.declare(cython.longlong, visibility="readonly")  # type: int
    """The block's first row."""
    run_row = cython.declare(cython.longlong, visibility="readonly")  # type: int
    """The block's row, counted from its first, at which that run begins or continues."""
    block_rows = cython.declare(cython.Py_ssize_t, visibility="readonly")  # type: int
    offset = cython.declare(cython.longlong, visibility="readonly")  # type: int
    """The block's offset in the file."""
    end = cython.declare(cython.longlong, visibility="readonly")  # type: int
    """The byte after the block."""
    min_timestamp = cython.declare(cython.longlong, visibility="readonly")  # type: int
    max_timestamp = cython.declare(cython.longlong, visibility="readonly")  # type: int

    def __init__(
        self,
        leaf: Leaf,
        block: cython.Py_ssize_t,
        first: cython.longlong,
        last: cython.longlong,
        rows: Any,
        run_start: cython.longlong,
    ) -> None:
        if not 0 <= block < leaf.block_count:
            raise ValueError("a leaf has fewer blocks")
        self.leaf, self.block, self.first, self.last, self.rows = leaf, block, first, last, rows
        self.run_start, self.number = run_start, leaf.first_block + block
        rows_at: cython.p_longlong = leaf.block_rows.data.as_longlongs
        offsets: cython.p_longlong = leaf.block_offsets.data.as_longlongs
        self.origin, self.block_rows = rows_at[block], rows_at[block + 1] - rows_at[block]
        self.run_row = max(run_start - self.origin, 0)
        self.offset, self.end = offsets[block], offsets[block + 1]
        self.min_timestamp = leaf.block_min.data.as_longlongs[block]
        self.max_timestamp = leaf.block_max.data.as_longlongs[block]


def open_data_blocks(
    parts: Sequence[BlockSlice],
    stored: Any,
    start: cython.longlong,
    checksum: Any,
    block_class: Any,
    columns: cython.Py_ssize_t,
    wanted: Any = None,
) -> list[Any]:
    """Open the blocks of slices. `stored`, a memoryview, contains all their bytes; its first byte is byte `start` of
    the file.

    Other parameters and errors as in `Leaf.open_data_block`.
    """
    part: BlockSlice
    blocks: list[Any] = []
    for part in parts:
        piece = stored[part.offset - start : part.end - start]
        blocks.append(part.leaf.open_data_block(part.block, piece, checksum, block_class, columns, wanted))
    return blocks


def beginnings(parts: Sequence[BlockSlice], share: float, least: cython.longlong) -> Any:
    """The beginning of the block of each slice: a share of it, and `least` bytes more, but no more than all.

    Returns the offset and the length of each in the file, in an array of int64.
    """
    part: BlockSlice
    k: cython.Py_ssize_t
    places: array.array = array.clone(_LONGS, 2 * len(parts), False)
    factor: cython.double = share
    for k, part in enumerate(parts):
        size: cython.longlong = part.end - part.offset
        places.data.as_longlongs[2 * k] = part.offset
        places.data.as_longlongs[2 * k + 1] = min(size, least + cython.cast(cython.longlong, factor * size))
    return places


def open_beginnings(
    parts: Sequence[BlockSlice],
    ranges: Any,
    stored: Any,
    checksum: Any,
    block_class: Any,
    columns: cython.Py_ssize_t,
    wanted: Any,
) -> tuple[list[Any], list[int]]:
    """Open the blocks of slices, of which only beginnings are given; also return which of these are too short.

    ranges: from `beginnings`. stored: a memoryview of their bytes, one after another. Other parameters and errors as in
    `Leaf.open_data_block`.
    """
    part: BlockSlice
    block: Chunks
    blocks: list[Any] = []
    cut: list[int] = []
    start: cython.Py_ssize_t = 0
    for part, length in zip(parts, ranges[1::2], strict=True):
        piece = stored[start : start + length]
        start += length
        block = part.leaf.open_data_block(part.block, piece, checksum, block_class, columns, wanted)
        if block.is_cut:
            cut.append(len(blocks))
        blocks.append(block)
    return blocks, cut


def rows_within(parts: Sequence[BlockSlice]) -> bytearray | None:
    """For each row of the blocks of slices, 1 if it is within the slices, else 0; None if all are."""
    part: BlockSlice
    total: cython.Py_ssize_t = 0
    whole: cython.bint = True
    for part in parts:
        total += part.block_rows
        whole = whole and part.rows is None and part.last - part.first == part.block_rows
    if whole:
        return None
    mask = bytearray(total)
    within: cython.uchar[::1] = mask
    row: cython.Py_ssize_t = 0
    k: cython.Py_ssize_t
    for part in parts:
        if part.rows is None:
            if not part.origin <= part.first <= part.last <= part.origin + part.block_rows:
                raise ValueError("a slice has rows of another block")
            for k in range(row + part.first - part.origin, row + part.last - part.origin):
                within[k] = 1
        else:
            listed: cython.const[cython.longlong][::1] = part.rows
            for k in range(listed.shape[0]):
                if not part.origin <= listed[k] < part.origin + part.block_rows:
                    raise ValueError("a slice has rows of another block")
                within[row + listed[k] - part.origin] = 1
        row += part.block_rows
    return mask


def row_starts(parts: Sequence[BlockSlice]) -> tuple[Any, Any]:
    """For the blocks of slices, one after another: the number of rows of each, and the row at which it begins."""
    part: BlockSlice
    counts: array.array = array.clone(_LONGS, len(parts), False)
    starts: array.array = array.clone(_LONGS, len(parts), False)
    k: cython.Py_ssize_t
    row: cython.longlong = 0
    for k, part in enumerate(parts):
        counts.data.as_longlongs[k], starts.data.as_longlongs[k] = part.block_rows, row
        row += part.block_rows
    return counts, starts


def run_starts(parts: Sequence[BlockSlice]) -> tuple[Any, Any, Any]:
    """The rows at which runs and blocks begin in the blocks of ascending slices, counted from the first block's first
    row.

    Returns arrays of int64: those rows, ascending; the run that begins or continues at each, counted from the first
    leaf of the slices; and the smallest timestamp of the block that contains it.
    """
    part: BlockSlice
    size: cython.Py_ssize_t = 0
    for part in parts:
        size += part.leaf._run_of(part.origin + part.block_rows - 1) - part.leaf._run_of(part.origin) + 1
    starts: array.array = array.clone(_LONGS, size, False)
    runs: array.array = array.clone(_LONGS, size, False)
    bases: array.array = array.clone(_LONGS, size, False)
    made: cython.Py_ssize_t = 0
    row: cython.longlong = 0
    runs_before: cython.longlong = 0
    runs_of_leaf: cython.longlong = 0
    leaf_row: cython.longlong = -1
    for part in parts:
        edges: cython.p_longlong = part.leaf.run_rows.data.as_longlongs
        if part.leaf.first_row != leaf_row:  # the same leaf may have been opened twice
            runs_before += runs_of_leaf
            leaf_row, runs_of_leaf = part.leaf.first_row, len(part.leaf.run_rows) - 1
        end: cython.longlong = part.origin + part.block_rows
        run: cython.Py_ssize_t = part.leaf._run_of(part.origin)
        place: cython.longlong = part.origin
        while place < end:
            starts.data.as_longlongs[made] = row + place - part.origin
            runs.data.as_longlongs[made] = runs_before + run
            bases.data.as_longlongs[made] = part.min_timestamp
            made += 1
            run += 1
            place = edges[run]
        row += part.block_rows
    return starts, runs, bases


@cython.cfunc
@cython.exceptval(check=False)
def _place(
    numbers: cython.pointer(cython.const[cython.longlong]), count: cython.Py_ssize_t, number: cython.longlong
) -> cython.Py_ssize_t:
    """The number of values less than `number` among `count` ascending numbers."""
    low: cython.Py_ssize_t = 0
    high: cython.Py_ssize_t = count
    middle: cython.Py_ssize_t
    while low < high:
        middle = low + (high - low) // 2
        if numbers[middle] < number:
            low = middle + 1
        else:
            high = middle
    return low


@cython.cfunc
@cython.exceptval(-1)
def _read_pack(
    body: object,
    view: cython.const[cython.uchar][::1],
    at: cython.Py_ssize_t,
    count: cython.Py_ssize_t,
    head: cython.pointer(PackHead),
    plain: object,
    out: cython.p_longlong,
) -> cython.int:
    """Read the numbers of a pack at a byte; `head.end` becomes the byte after it."""
    if not read_pack_head(cython.address(view[0]), view.shape[0], at, count, head):
        raise CorruptSegmentError("the header of packed numbers breaks the format, or they are cut short")
    return fill_numbers(body, cython.address(view[0]), head, count, plain, 0, out, count)


@cython.cfunc
@cython.exceptval(-1, check=True)
def _summed(numbers: cython.p_longlong, count: cython.Py_ssize_t, first: cython.longlong) -> cython.longlong:
    """Turn numbers[1:] into sums beginning with `first`; return the last. Each must be at least 1, no sum too large."""
    i: cython.Py_ssize_t
    total: cython.longlong = first
    numbers[0] = first
    for i in range(1, count + 1):
        if not 0 < numbers[i] <= _MOST or total > _MOST:
            raise CorruptSegmentError("a count of a directory leaf is out of bounds")
        total += numbers[i]
        numbers[i] = total
    return total
