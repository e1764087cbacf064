# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""Open blocks: verify the frame and return the body; for data blocks, find where each chunk is, and verify it.

A block is: magic, u8 kind, u8 zero, u16 dictionary, u32 bytes of the body, u32 count; the body; the checksum of all
that as u64. `esformat/format/frame.py` writes them. A data block's body is a head (i64 base, u32 runs, u32 chunks; for
each chunk u32 offset, u32 length, u64 checksum), and the chunks. The block's checksum follows the head, and does not
cover the chunks. `esformat/format/data_block.py` writes those.
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
KEYS_CHUNK, TIMESTAMPS_CHUNK, FIRST_COLUMN_CHUNK = 0, 1, 2
"""Numbers of chunks; those of columns follow in schema order."""

_MAGIC = cython.declare(cython.p_const_char, b"ESBK")
_NO_NUMBERS = cython.declare(
    cython.p_const_char, b"\0\0\0\0\0\0\0\0"
)  # the head of a pack of zeros, which is the whole pack
_FRAME = cython.declare(cython.Py_ssize_t, 16)
_CHECK = cython.declare(cython.Py_ssize_t, 8)
_DATA = cython.declare(cython.int, 2)  # the kind of data blocks
_ENTRY = cython.declare(cython.Py_ssize_t, 16)  # bytes of a chunk's offset, length and checksum
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
    """A block whose checksum was verified; that of a data block does not cover its chunks."""

    kind = cython.declare(cython.int, visibility="readonly")  # type: int
    dictionary = cython.declare(cython.int, visibility="readonly")  # type: int
    """Number of the dictionary block that the body needs; 0 for none."""
    count = cython.declare(cython.Py_ssize_t, visibility="readonly")  # type: int
    """Rows of a data block, entries of any other."""
    body = cython.declare(object, visibility="readonly")  # type: memoryview
    """Of a data block, the head."""
    chunks = cython.declare(object, visibility="readonly")  # type: memoryview
    """Of a data block, the chunks, or as many bytes of them as were read; empty for others."""
    chunk_bytes = cython.declare(cython.longlong, visibility="readonly")  # type: int
    """The length of all chunks."""
    offset = cython.declare(cython.longlong, visibility="readonly")  # type: int
    """The block's offset in the file, for messages."""
    _checksum: Any  # computes the checksum of a chunk; None if all chunks were verified


def check_block_length(length: Any, offset: Any, path: Any = None) -> None:
    """Refuse a block length that no writer produces. path: of the file, for the error. Raises CorruptSegmentError."""
    if not LEAST_BLOCK_BYTES <= length <= MOST_BLOCK_BYTES:
        raise CorruptSegmentError(f"block length {length} is out of bounds", offset=offset, path=path)


def open_block(
    stored: Any,
    checksum: Any,
    kind: cython.int,
    check: Any,
    offset: cython.longlong,
    size: cython.longlong = -1,
) -> Block:
    """Open the block whose stored bytes are exactly `stored`; or, for a data block of `size` bytes, begin with those.

    The chunks of a data block are not verified yet: see `verify_chunks` and `Chunks`.

    checksum: computes the checksum of bytes. kind: the expected one. check: the low 32 bits of the checksum from a
    handle; None without a handle. Raises ChecksumMismatchError or CorruptSegmentError.
    """
    whole = PyMemoryView_FromObject(stored)
    view: cython.const[cython.uchar][::1] = whole
    given: cython.Py_ssize_t = view.shape[0]
    if size < 0:
        size = given
    if given < _FRAME + _CHECK or given > size:
        raise CorruptSegmentError(f"block is cut short: {given} bytes", offset=offset)
    data: cython.p_const_uchar = cython.address(view[0])
    covered: cython.Py_ssize_t = given - _CHECK
    is_data: cython.bint = data[4] == _DATA
    count: cython.ulonglong
    if is_data:
        count = _number(data + _FRAME + 12, 4) if given >= _FRAME + _HEAD + _CHECK else 0xFFFF_FFFF
        if count > cython.cast(cython.ulonglong, (given - _CHECK) // _ENTRY):  # so that nothing overflows
            raise CorruptSegmentError("the head of a data block is cut short", offset=offset)
        covered = _FRAME + _HEAD + cython.cast(cython.Py_ssize_t, count) * _ENTRY
        if covered > given - _CHECK:
            raise CorruptSegmentError("the head of a data block is cut short", offset=offset)
    elif given < size:
        raise CorruptSegmentError(f"block is cut short: {given} bytes", offset=offset)
    computed: cython.ulonglong = checksum(whole[:covered])
    found: cython.ulonglong = _number(data + covered, 8)
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
    block.body, block.offset = whole[_FRAME:covered], offset
    block.chunks, block.chunk_bytes = whole[covered + _CHECK :], size - covered - _CHECK
    block._checksum = checksum if is_data else None
    return block


def checksum_end(stored: Any) -> int:
    """The byte after the checksum of a block that this package has written."""
    view: cython.const[cython.uchar][::1] = stored
    size: cython.Py_ssize_t = view.shape[0]
    if size >= _FRAME + _HEAD + _CHECK and view[4] == _DATA:
        return _FRAME + _HEAD + _ENTRY * _number(cython.address(view[_FRAME + 12]), 4) + _CHECK
    return size


def verify_chunks(block: Block) -> None:
    """Verify all chunks of a block that was opened from all its bytes; a block of another kind has none.

    Raises ChecksumMismatchError, or CorruptSegmentError if the chunks are not all of the block's remaining bytes.
    """
    if block._checksum is not None:
        Chunks(block, (len(block.body) - _HEAD) // _ENTRY - _FIRST_COLUMN).check_places()
        block._checksum = None


@cython.cclass
class Chunks:
    """The chunks of a data block: of keys, of timestamps, and of each column. They are numbered in this order."""

    body: memoryview
    """The stored chunks. Only those that were verified may be used: see `start_of`."""
    chunk_count: int
    row_count: int
    run_count: int
    """Number of runs in the chunk of keys."""
    base: int
    """The smallest timestamp, µs."""
    dictionary: int
    offset: int
    """The block's offset in the file, for messages."""
    is_cut: bool
    """Whether a wanted chunk could not be verified, because too few bytes of the block were given."""
    _edges: array.array  # of chunk i: from byte [2 i] of the body to [2 i + 1]
    _verified: bytes  # whether each chunk was
    _heads: bytes  # shape and flags of the node of each verified column; unknown flags if it is cut short
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

    def __init__(self, block: Block, column_count: cython.Py_ssize_t, wanted: Any = None) -> None:
        """column_count: that of the schema. wanted: numbers of the chunks to verify; None for all.

        Raises CorruptSegmentError if the head breaks the format, ChecksumMismatchError.
        """
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
        if size != _HEAD + _ENTRY * chunk_count or not 0 < block.count <= _MOST_ROWS:
            raise CorruptSegmentError("the head of a data block does not fit its body", offset=offset)
        self.body, self.row_count, self.dictionary, self.offset = block.chunks, block.count, block.dictionary, offset
        self.cached_nodes, self.cached_codes, self.cached_heads = {}, {}, {}
        self.size_bytes = size + block.chunk_bytes + 40 * block.count + 1000
        self.base = cython.cast(cython.longlong, _number(data, 8))
        self.run_count = cython.cast(cython.Py_ssize_t, _number(data + 8, 4))
        self.chunk_count = chunk_count
        self._edges = array.clone(_LONGS, 2 * chunk_count, False)
        edges: cython.p_longlong = self._edges.data.as_longlongs
        chunk: cython.Py_ssize_t
        data += _HEAD - _ENTRY
        for chunk in range(chunk_count):
            data += _ENTRY
            edges[2 * chunk] = cython.cast(cython.longlong, _number(data, 4))
            edges[2 * chunk + 1] = edges[2 * chunk] + cython.cast(cython.longlong, _number(data + 4, 4))
            if edges[2 * chunk + 1] > block.chunk_bytes:
                raise CorruptSegmentError("the head of a data block does not fit its body", offset=offset)
        self._verified = bytes(chunk_count)
        self._heads = bytes(2 * column_count)
        stored: cython.const[cython.uchar][::1] = self.body
        bytes_given: cython.Py_ssize_t = stored.shape[0]
        first: cython.p_const_uchar = cython.address(stored[0]) if bytes_given else cython.NULL
        entries: cython.p_const_uchar = cython.address(view[0]) + _HEAD
        for chunk in range(chunk_count) if wanted is None else wanted:
            if not 0 <= chunk < chunk_count:
                raise IndexError("a block has fewer chunks than requested")
            _verify(self, chunk, entries + _ENTRY * chunk, first, bytes_given, block._checksum)

    @cython.cfunc
    @cython.exceptval(-1, check=False)
    def _start(self, chunk: cython.Py_ssize_t) -> cython.Py_ssize_t:
        if not 0 <= chunk < self.chunk_count:
            raise IndexError("a block has fewer chunks than requested")
        if not cython.cast(cython.p_uchar, PyBytes_AS_STRING(self._verified))[chunk]:
            raise LookupError("a chunk was not requested when its block was read")
        return cython.cast(cython.Py_ssize_t, self._edges.data.as_longlongs[2 * chunk])

    def start_of(self, chunk: cython.Py_ssize_t) -> int:
        """The first byte of a verified chunk in the body. Raises LookupError if it was not verified."""
        return self._start(chunk)

    def end_of(self, chunk: cython.Py_ssize_t) -> int:
        """The byte after a chunk in the body. Raises IndexError."""
        if not 0 <= chunk < self.chunk_count:
            raise IndexError("a block has fewer chunks than requested")
        return self._edges.data.as_longlongs[2 * chunk + 1]

    def size_of(self, chunk: cython.Py_ssize_t) -> int:
        """The length of a chunk, which need not be verified. Raises IndexError."""
        return self.end_of(chunk) - self._edges.data.as_longlongs[2 * chunk]

    def stored_up_to(self, chunks: Any) -> int:
        """The number of bytes of the stored block up to the end of the last of some chunks."""
        return _FRAME + _HEAD + _ENTRY * self.chunk_count + _CHECK + max(map(self.end_of, chunks), default=0)

    def check_places(self) -> None:
        """Raise CorruptSegmentError unless the chunks follow each other without gaps."""
        end: int = 0
        for first, last in sorted((self._edges[2 * n], self._edges[2 * n + 1]) for n in range(self.chunk_count)):
            if first != end:
                raise CorruptSegmentError("the chunks of a data block leave gaps, or overlap", offset=self.offset)
            end = last
        if end != len(self.body):
            raise CorruptSegmentError("the chunks of a data block do not add up to its body", offset=self.offset)

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
            at = self._start(chunk)
            end = self._edges.data.as_longlongs[2 * cython.cast(cython.Py_ssize_t, chunk) + 1]
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
        at: cython.Py_ssize_t = self._start(_TIMESTAMPS)
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


@cython.cfunc
def _verify(
    chunks: Chunks,
    chunk: cython.Py_ssize_t,
    entry: cython.p_const_uchar,
    data: cython.p_const_uchar,
    size: cython.Py_ssize_t,
    checksum: Any,
) -> object:
    """Verify a chunk of a block, if enough bytes of the block were given.

    entry: of the chunk in the head. data: the `size` bytes of the body, NULL if there are none. checksum: computes the
    checksum of a chunk; None if it was verified before.
    """
    edges: cython.p_longlong = chunks._edges.data.as_longlongs
    at: cython.Py_ssize_t = cython.cast(cython.Py_ssize_t, edges[2 * chunk])
    end: cython.Py_ssize_t = cython.cast(cython.Py_ssize_t, edges[2 * chunk + 1])
    if end > size:
        chunks.is_cut = True
        return None
    if checksum is not None:
        found: cython.ulonglong = _number(entry + 8, 8)
        computed: cython.ulonglong = checksum(chunks.body[at:end])
        if computed != found:
            raise ChecksumMismatchError(
                f"the checksum of chunk {chunk} of a data block is {computed:016x}, stored is {found:016x}",
                offset=chunks.offset,
                hint="run `esdb verify`",
            )
    cython.cast(cython.p_uchar, PyBytes_AS_STRING(chunks._verified))[chunk] = 1
    if chunk >= _FIRST_COLUMN:
        heads: cython.p_uchar = cython.cast(cython.p_uchar, PyBytes_AS_STRING(chunks._heads))
        heads += 2 * (chunk - _FIRST_COLUMN)
        heads[0] = data[at] if at <= size - _NODE else 0
        heads[1] = data[at + 1] if at <= size - _NODE else 255
    return None


def packs_of(blocks: Sequence[Chunks], chunk: cython.Py_ssize_t, skipped: cython.Py_ssize_t) -> list[tuple[Any, Pack]]:
    """For each block, its body and the pack that follows the first `skipped` bytes of a chunk.

    Raises CorruptSegmentError.
    """
    block: Chunks
    packs: list[tuple[Any, Pack]] = []
    for block in blocks:
        at = block._start(chunk) + skipped
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
        at: cython.Py_ssize_t = block._start(chunk)
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
        at: cython.Py_ssize_t = block._start(chunk) + _NODE
        if chunk < _FIRST_COLUMN:
            raise IndexError("a chunk of keys or timestamps is not a column")
        head = cython.cast(cython.p_uchar, PyBytes_AS_STRING(block._heads)) + 2 * (chunk - _FIRST_COLUMN)
        view: cython.const[cython.uchar][::1] = block.body
        if head[1] & _VALIDITY and at <= view.shape[0] - PACK_HEAD_BYTES:
            out[k] = memcmp(cython.address(view[at]), _NO_NUMBERS, PACK_HEAD_BYTES) == 0
    return flags
