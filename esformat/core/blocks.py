# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""Open blocks: verify the frame and return the body; for data blocks, find where each chunk is.

A block is: magic, u8 kind, u8 zero, u16 dictionary, u32 bytes of the body, u32 count; the body; the checksum as u64.
`esformat/format/frame.py` writes them. A data block's body is: i64 base, u32 runs, u32 chunks; the length of each chunk
as u32; the chunks. `esformat/format/data_block.py` writes those.
"""

import array as arrays
from collections.abc import Sequence
from typing import Any

import cython
from cython.cimports.cpython import array
from cython.cimports.cpython.bytes import PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cython.cimports.cpython.memoryview import PyMemoryView_FromObject
from cython.cimports.esformat.core.packs import PACK_HEAD_BYTES, PackHead, fill_numbers, read_pack_head
from cython.cimports.libc.string import memcmp

from esformat.core.numbers import Pack, read_pack
from esformat.errors import ChecksumMismatchError, CorruptSegmentError

LEAST_BLOCK_BYTES = 24
MOST_BLOCK_BYTES = 1 << 30
"""Most stored bytes of one block, including its frame."""
MOST_ROWS = 1 << 16
"""Most rows of a data block."""
LIGHT_BYTES = 16 << 10
"""Most stored bytes of a column chunk, other than codes, that events may keep alive."""
NODE_BYTES = 4
FIRST_COLUMN_CHUNK = 2

_MAGIC = cython.declare(cython.p_const_char, b"ESBK")
_NO_NUMBERS = cython.declare(
    cython.p_const_char, b"\0\0\0\0\0\0\0\0"
)  # the head of a pack of zeros, which is the whole pack
_FRAME = cython.declare(cython.Py_ssize_t, 16)
_CHECK = cython.declare(cython.Py_ssize_t, 8)
_SHORT = cython.declare(cython.ulonglong, 0xFFFF_FFFF)
_MOST_ROWS = cython.declare(cython.Py_ssize_t, 1 << 16)
_HEAD = cython.declare(cython.Py_ssize_t, 16)
_TIMESTAMPS = cython.declare(cython.Py_ssize_t, 1)
_FIRST_COLUMN = cython.declare(cython.Py_ssize_t, 2)
_NODE = cython.declare(cython.Py_ssize_t, 4)
_VALIDITY = cython.declare(cython.int, 1)
_FLAGS = cython.declare(cython.int, 3)
_CODES = cython.declare(cython.int, 3)  # shapes of nodes
_STRINGS = cython.declare(cython.int, 4)
_TEMPLATES = cython.declare(cython.int, 8)
_LONGS = cython.declare(array.array, arrays.array("q"))


@cython.final
@cython.cclass
class Block:
    """A block whose checksum was verified."""

    kind = cython.declare(cython.int, visibility="readonly")  # type: int
    dictionary = cython.declare(cython.int, visibility="readonly")  # type: int
    """Number of the dictionary block that the body needs; 0 for none."""
    count = cython.declare(cython.Py_ssize_t, visibility="readonly")  # type: int
    """Rows of a data block, entries of any other."""
    body = cython.declare(object, visibility="readonly")  # type: memoryview
    offset = cython.declare(cython.longlong, visibility="readonly")  # type: int
    """The block's offset in the file, for messages."""


def check_block_length(length: Any, offset: Any, path: Any = None) -> None:
    """Refuse a block length that no writer produces. path: of the file, for the error. Raises CorruptSegmentError."""
    if not LEAST_BLOCK_BYTES <= length <= MOST_BLOCK_BYTES:
        raise CorruptSegmentError(f"block length {length} is out of bounds", offset=offset, path=path)


def open_block(stored: Any, checksum: Any, kind: cython.int, check: Any, offset: cython.longlong) -> Block:
    """Open the block whose stored bytes are exactly `stored`.

    checksum: computes the checksum of bytes. kind: the expected one. check: the low 32 bits of the checksum from a
    handle; None without a handle. Raises ChecksumMismatchError or CorruptSegmentError.
    """
    whole = PyMemoryView_FromObject(stored)
    view: cython.const[cython.uchar][::1] = whole
    size: cython.Py_ssize_t = view.shape[0]
    if size < _FRAME + _CHECK:
        raise CorruptSegmentError(f"block is cut short: {size} bytes", offset=offset)
    computed: cython.ulonglong = checksum(whole[: size - _CHECK])
    data: cython.p_const_uchar = cython.address(view[0])
    found: cython.ulonglong = _number(data + size - _CHECK, 8)
    if computed != found:
        raise ChecksumMismatchError(
            f"block checksum is {computed:016x}, stored is {found:016x}", offset=offset, hint="run `esdb verify`"
        )
    if check is not None and cython.cast(cython.longlong, found & _SHORT) != cython.cast(cython.longlong, check):
        raise ChecksumMismatchError(
            f"block checksum ends in {found & _SHORT:08x}, its handle says {check:08x}: another block lies here",
            offset=offset,
            hint="run `esdb verify`",
        )
    length: cython.ulonglong = _number(data + 8, 4)
    if memcmp(data, _MAGIC, 4) or data[5] or length != cython.cast(cython.ulonglong, size - _FRAME - _CHECK):
        raise CorruptSegmentError("block header breaks the format", offset=offset)
    if data[4] != kind:
        raise CorruptSegmentError(f"block is of kind {data[4]}, expected {kind}", offset=offset)
    block: Block = Block.__new__(Block)
    block.kind, block.dictionary, block.count = kind, data[6] | data[7] << 8, _number(data + 12, 4)
    block.body, block.offset = whole[_FRAME : size - _CHECK], offset
    return block


@cython.cclass
class Chunks:
    """The chunks of a data block, as positions in its body: chunk i has the bytes chunks[i] to chunks[i + 1]."""

    body: memoryview
    chunks: Any
    row_count: int
    run_count: int
    """Number of runs in the first chunk."""
    base: int
    """The smallest timestamp, µs."""
    dictionary: int
    offset: int
    """The block's offset in the file, for messages."""
    _heads: bytes  # shape and flags of the node of each column; unknown flags if it is cut short
    size_bytes: int
    """Memory used, including per-row data that later reads cache."""
    cached_nodes: dict[int, Any]
    """Caches: nodes of text columns by column number here, other data in the attributes below."""
    cached_codes: dict[int, tuple[int, bytes] | None]
    cached_heads: dict[int, Any]
    _cached_steps: array.array  # difference between the timestamp of each row and the row before
    _times_read: cython.bint  # whether timestamps were read before
    times: Any
    """Timestamps of all rows, µs, if a caller that knows the runs stored them here."""
    cached_pieces: list[bytes] | None
    cached_light_pieces: list[bytes | None] | None

    def __init__(self, block: Block, column_count: cython.Py_ssize_t) -> None:
        """column_count: that of the schema. Raises CorruptSegmentError if the head breaks the format."""
        chunk_count: cython.Py_ssize_t = column_count + _FIRST_COLUMN
        offset: cython.longlong = block.offset
        view: cython.const[cython.uchar][::1] = block.body
        size: cython.Py_ssize_t = view.shape[0]
        if column_count < 0 or size < _HEAD:
            raise CorruptSegmentError("the head of a data block is cut short", offset=offset)
        data: cython.p_const_uchar = cython.address(view[0])
        count: cython.ulonglong = _number(data + 12, 4)
        if count != cython.cast(cython.ulonglong, chunk_count):
            raise CorruptSegmentError(f"a data block has {count} chunks, expected {chunk_count}", offset=offset)
        if chunk_count > (size - _HEAD) // 4:
            raise CorruptSegmentError("the head of a data block is cut short", offset=offset)
        self.body, self.row_count, self.dictionary, self.offset = block.body, block.count, block.dictionary, offset
        self.cached_nodes, self.cached_codes, self.cached_heads = {}, {}, {}
        self.size_bytes = size + 40 * block.count + 1000
        self.base = cython.cast(cython.longlong, _number(data, 8))
        self.run_count = cython.cast(cython.Py_ssize_t, _number(data + 8, 4))
        self.chunks = array.clone(_LONGS, chunk_count + 1, False)
        edges: cython.p_longlong = self.chunks.data.as_longlongs
        at: cython.longlong = _HEAD + 4 * chunk_count
        i: cython.Py_ssize_t
        # No sum overflows: a length is below 2^32, and there are fewer lengths than bytes in the body.
        for i in range(chunk_count):
            edges[i] = at
            at += cython.cast(cython.longlong, _number(data + _HEAD + 4 * i, 4))
        edges[chunk_count] = at
        self._heads = PyBytes_FromStringAndSize(cython.NULL, 2 * column_count)
        heads: cython.p_uchar = cython.cast(cython.p_uchar, PyBytes_AS_STRING(self._heads))
        for i in range(column_count):
            at = edges[_FIRST_COLUMN + i]
            heads[2 * i] = data[at] if at <= size - _NODE else 0
            heads[2 * i + 1] = data[at + 1] if at <= size - _NODE else 255
        at = edges[chunk_count]
        if at != size or not 0 < self.row_count <= _MOST_ROWS:
            raise CorruptSegmentError("the head of a data block does not fit its body", offset=offset)

    def detach(self) -> None:
        """Replace the body by a copy, so that the larger buffer to which it refers can be freed."""
        self.body = memoryview(bytes(self.body))

    def light_pieces(self, chunks: list[int]) -> list[bytes | None]:
        """Copies of some chunks, created once: every call must ask for the same chunks. None for text, and for long
        chunks other than codes, so that events do not keep much of a block alive. Raises CorruptSegmentError.
        """
        if self.cached_light_pieces is not None:
            return self.cached_light_pieces
        view: cython.const[cython.uchar][::1] = self.body
        at: cython.Py_ssize_t
        end: cython.Py_ssize_t
        pieces: list[bytes | None] = []
        for chunk in chunks:
            at = _start(self, chunk)
            end = self.chunks.data.as_longlongs[cython.cast(cython.Py_ssize_t, chunk) + 1]
            if end - at < _NODE or view[at + 1] & ~_FLAGS:
                raise CorruptSegmentError("the head of a column node breaks the format", offset=self.offset)
            shape: cython.int = view[at]
            short: cython.bint = end - at <= LIGHT_BYTES and shape != _STRINGS and shape != _TEMPLATES
            light: cython.bint = short or shape == _CODES
            pieces.append(
                PyBytes_FromStringAndSize(cython.cast(cython.p_char, cython.address(view[at])), end - at)
                if light
                else None
            )
        self.cached_light_pieces = pieces
        return pieces

    def run_times(
        self, start: cython.Py_ssize_t, low: cython.Py_ssize_t, high: cython.Py_ssize_t, decompressor: Any
    ) -> Any:
        """Timestamps of rows [low, high), all of the run that begins at row `start` of this block, µs: int64.

        Raises CorruptSegmentError, and ValueError for rows that the block does not have.
        """
        if not 0 <= start <= low <= high <= self.row_count:
            raise ValueError("the block does not have the requested rows")
        if self.times is not None:
            return self.times[low:high]
        steps: array.array = self._cached_steps
        first: cython.Py_ssize_t = start  # index of the run's first step
        if steps is None and self._times_read:
            steps = self._cached_steps = self._steps(0, self.row_count, decompressor)
        elif steps is None:
            self._times_read = True
            steps, first = self._steps(start, high, decompressor), 0
        made: array.array = array.clone(_LONGS, high - low, False)
        step: cython.p_longlong = steps.data.as_longlongs + first
        out: cython.p_longlong = made.data.as_longlongs
        i: cython.Py_ssize_t
        moment: cython.ulonglong = cython.cast(cython.ulonglong, self.base)
        for i in range(low - start):
            moment += cython.cast(cython.ulonglong, step[i])
        step += low - start
        for i in range(high - low):
            moment += cython.cast(cython.ulonglong, step[i])
            out[i] = cython.cast(cython.longlong, moment)
        return made

    @cython.cfunc
    def _steps(self, low: cython.Py_ssize_t, high: cython.Py_ssize_t, decompressor: object) -> array.array:
        """The steps of rows [low, high): difference to the timestamp before or, at the start of a run, to the base."""
        head = cython.declare(PackHead)
        view: cython.const[cython.uchar][::1] = self.body
        at: cython.Py_ssize_t = _start(self, _TIMESTAMPS)
        data: cython.p_const_uchar = cython.address(view[0])
        if not read_pack_head(data, view.shape[0], at, self.row_count, cython.address(head)):
            raise CorruptSegmentError("the header of packed numbers breaks the format, or they are cut short")
        steps: array.array = array.clone(_LONGS, high - low, False)
        fill_numbers(
            self.body,
            data,
            cython.address(head),
            self.row_count,
            decompressor,
            low,
            steps.data.as_longlongs,
            high - low,
        )
        return steps


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _number(data: cython.p_const_uchar, size: cython.Py_ssize_t) -> cython.ulonglong:
    """Read a little-endian number."""
    number: cython.ulonglong = 0
    i: cython.Py_ssize_t
    for i in range(size):
        number |= cython.cast(cython.ulonglong, data[i]) << (8 * i)
    return number


def packs_of(blocks: Sequence[Chunks], chunk: cython.Py_ssize_t, skipped: cython.Py_ssize_t) -> list[tuple[Any, Pack]]:
    """For each block, its body and the pack that follows the first `skipped` bytes of a chunk.

    Raises CorruptSegmentError.
    """
    block: Chunks
    packs: list[tuple[Any, Pack]] = []
    for block in blocks:
        at = _start(block, chunk) + skipped
        packs.append((block.body, read_pack(block.body, at, block.row_count)))
    return packs


def shapes_of(blocks: Sequence[Chunks], chunk: cython.Py_ssize_t) -> tuple[set[int], bool]:
    """The shapes of the nodes at the start of a chunk of each block, and whether any of them has nulls.

    Raises CorruptSegmentError.
    """
    block: Chunks
    shapes: set[int] = set()
    with_nulls: cython.bint = False
    head: cython.p_uchar
    last: cython.int = -1
    for block in blocks:
        at: cython.Py_ssize_t = _start(block, chunk)
        if chunk < _FIRST_COLUMN:
            raise IndexError("a chunk of keys or timestamps is not a column")
        head = cython.cast(cython.p_uchar, PyBytes_AS_STRING(block._heads)) + 2 * (chunk - _FIRST_COLUMN)
        if head[1] & ~_FLAGS:
            if at > len(block.body) - _NODE:
                raise CorruptSegmentError("a column node is cut short", offset=block.offset)
            raise CorruptSegmentError(f"a column node has unknown flags {head[1]:#x}", offset=block.offset)
        with_nulls |= head[1] & _VALIDITY
        if head[0] != last:
            shapes.add(head[0])
        last = head[0]
    return shapes, with_nulls


def without_values(blocks: Sequence[Chunks], chunk: cython.Py_ssize_t) -> bytes:
    """One byte for each block: 1 if a chunk is the node of a column whose values are all null, as shown by a validity
    that is packed as zeros of no width; 0 if this is not evident.
    """
    block: Chunks
    head: cython.p_uchar
    k: cython.Py_ssize_t = 0
    flags: bytes = bytes(len(blocks))
    out: cython.p_uchar = cython.cast(cython.p_uchar, PyBytes_AS_STRING(flags))
    for k in range(len(blocks)):
        block = blocks[k]
        if block is None:
            raise TypeError("a block is missing")
        at: cython.Py_ssize_t = _start(block, chunk) + _NODE
        if chunk < _FIRST_COLUMN:
            raise IndexError("a chunk of keys or timestamps is not a column")
        head = cython.cast(cython.p_uchar, PyBytes_AS_STRING(block._heads)) + 2 * (chunk - _FIRST_COLUMN)
        view: cython.const[cython.uchar][::1] = block.body
        if head[1] & _VALIDITY and at <= view.shape[0] - PACK_HEAD_BYTES:
            out[k] = memcmp(cython.address(view[at]), _NO_NUMBERS, PACK_HEAD_BYTES) == 0
    return flags


@cython.cfunc
@cython.exceptval(-1)
def _start(block: Chunks, chunk: cython.Py_ssize_t) -> cython.Py_ssize_t:
    """The position of a chunk in the body."""
    if not 0 <= chunk < cython.cast(cython.Py_ssize_t, len(block.chunks)) - 1:
        raise IndexError("a block has fewer chunks than requested")
    return cython.cast(cython.Py_ssize_t, block.chunks.data.as_longlongs[chunk])
