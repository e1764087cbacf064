"""The directory: which rows belong to which space and grouping, and where the data blocks with those rows lie.

It has two levels. A leaf covers a group of data blocks that follow each other in the file: its runs
(space, grouping, rows) and, for each block, rows, length, check and time span. The root names every leaf's first space,
its rows and its place; it is read when a segment is opened. A run that crosses from one leaf's blocks
into the next's appears in both.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from esformat.core.leaves import MOST_BLOCKS, Leaf
from esformat.core.numbers import read_edges
from esformat.errors import CorruptSegmentError
from esformat.format.codec import Codec, Decompressor, make_compressor
from esformat.format.data_block import Runs, decode_keys, encode_runs_of_keys
from esformat.format.encoding import encode_node
from esformat.format.frame import Block, check_length, encode_block
from esformat.format.layout import BlockHandle, BlockKind
from esformat.format.node import DecodeContext, EncodeContext
from esformat.format.packing import decode_columns, encode_ints, read_packs, uncompressed_number

_LEAF = struct.Struct(
    "<I"  # data blocks that the leaf covers
)
LEAF_RUNS = 256  # a leaf ends at the block with which it holds so many runs …
LEAF_BLOCKS = MOST_BLOCKS  # … or so many blocks
GROWTH_LEAVES = 1024  # after so many leaves of one size the next ones may hold twice the runs
MAX_LEAF_RUNS = 4096
MOST_ROWS = 1 << 60  # of a file: what sums of them may reach

_RAW = make_compressor(Codec.NONE)

I64 = npt.NDArray[np.int64]


def leaf_is_full(leaves_before: int, run_count: int, block_count: int) -> bool:
    """Whether a leaf with so many runs and blocks ends here. Leaves grow with the file so that the root stays small."""
    limit = min(LEAF_RUNS << min(leaves_before // GROWTH_LEAVES, 8), MAX_LEAF_RUNS)
    return run_count >= limit or block_count >= LEAF_BLOCKS


@dataclass(frozen=True, slots=True)
class BlockSpan:
    """One data block as its leaf describes it."""

    rows: int
    length: int
    check: int
    min_timestamp: int
    max_timestamp: int


def _lengths(spans: list[tuple[int, int]]) -> list[int]:
    """Largest less smallest timestamp, modulo 2^64: the ends of time are further apart than an int64 can tell."""
    ends = np.array(spans, dtype=np.int64).reshape(-1, 2)
    return (ends[:, 1] - ends[:, 0]).tolist()  # type: ignore[no-any-return]


def _column(values: list[int]) -> bytes:
    """A table's column. Not compressed: a few bytes less in each leaf would cost a tenth of opening."""
    return encode_ints(np.array(values, dtype=np.int64), _RAW)


def encode_leaf(runs: Runs, spans: list[BlockSpan], context: EncodeContext) -> bytes:
    """One framed leaf."""
    body = b"".join(
        [
            _LEAF.pack(len(spans)),
            encode_runs_of_keys(runs, context),
            _column([span.rows for span in spans]),
            _column([span.length for span in spans]),
            _column([span.check for span in spans]),
            _column([span.min_timestamp for span in spans]),
            _column(_lengths([(span.min_timestamp, span.max_timestamp) for span in spans])),
        ]
    )
    return encode_block(BlockKind.DIRECTORY, body, count=len(runs.rows))


def open_leaf(
    block: Block, first_row: int, first_block: int, data_offset: int, context: DecodeContext, *, keys: bool = True
) -> Leaf:
    """A leaf whose checksum was verified. Raises CorruptSegmentError where it contradicts itself.

    keys: decode its keys, too.
    """
    try:
        leaf = Leaf(block.body, block.count, first_row, first_block, data_offset, context.plain)
        if keys:
            leaf.open_keys(context.plain, context.framed)
    except CorruptSegmentError as error:
        error.offset = block.offset
        raise
    for length in (leaf.least_block_bytes, leaf.most_block_bytes):
        check_length(length, block.offset)
    return leaf


def block_handle(leaf: Leaf, block: int) -> BlockHandle:
    """Where the leaf's `block`-th data block lies."""
    offset = leaf.block_offsets[block]
    return BlockHandle(offset, leaf.block_offsets[block + 1] - offset, leaf.block_checks[block])


@dataclass(frozen=True, slots=True)
class LeafEntry:
    """One leaf as the root describes it."""

    first_space: bytes
    runs: int
    rows: int
    blocks: int
    data_offset: int
    handle: BlockHandle
    min_timestamp: int
    max_timestamp: int


def encode_root(entries: list[LeafEntry], context: EncodeContext) -> bytes:
    """The framed root of the directory."""
    body = b"".join(
        [
            encode_node(pa.array([entry.first_space for entry in entries], pa.binary()), context),
            _column([entry.runs for entry in entries]),
            _column([entry.rows for entry in entries]),
            _column([entry.blocks for entry in entries]),
            _column([entry.data_offset for entry in entries]),
            _column([entry.handle.offset for entry in entries]),
            _column([entry.handle.length for entry in entries]),
            _column([entry.handle.check for entry in entries]),
            _column([entry.min_timestamp for entry in entries]),
            _column(_lengths([(entry.min_timestamp, entry.max_timestamp) for entry in entries])),
        ]
    )
    return encode_block(BlockKind.DIRECTORY_ROOT, body, count=len(entries))


class _Leaves(NamedTuple):
    """What the root says of every leaf besides its rows and blocks, in leaf order."""

    data_offsets: list[int]
    handles: list[BlockHandle]
    min_timestamps: list[int]
    max_timestamps: list[int]


class Root:
    """The decoded root, one entry per leaf. Leaf i has rows `rows[i]`…`rows[i + 1]`; `blocks` is of the same kind.

    A first question needs no more than that, and the place of one leaf; the rest is decoded for the second.
    """

    __slots__ = (
        "_asked",
        "_body",
        "_leaves",
        "_name",
        "_offset",
        "_packs",
        "blocks",
        "first_keys",
        "leaves_of",
        "rows",
    )

    def __init__(self, block: Block, context: DecodeContext, name: str | None = None) -> None:
        """`name`: the file's, for later messages. Raises CorruptSegmentError where the root contradicts itself."""
        body, count = block.body, block.count
        self._body, self._offset, self._name = body, block.offset, name
        if count > len(body) + 1:  # more leaves than a root of that size can name
            raise CorruptSegmentError("the directory root's count is out of bounds", offset=block.offset)
        self.first_keys, at = decode_keys(body, 0, count, context)
        """The first space of each leaf, as bytes side by side."""
        self._packs = read_packs(body, at, count, 9)
        if self._packs[-1].end != len(body):
            raise self._contradiction()
        self.rows: Sequence[int]
        self.blocks: Sequence[int]
        try:
            self.rows, at = read_edges(body, self._packs[0].end, count, MOST_ROWS, context.plain)
            self.blocks, _ = read_edges(body, at, count, MOST_ROWS, context.plain)
        except CorruptSegmentError:
            raise self._contradiction() from None
        self._asked = False
        self._leaves: _Leaves | None = None
        self.leaves_of = self.first_keys.holders_of
        """The leaves that can hold a space: usually one."""

    def __len__(self) -> int:
        return len(self.rows) - 1

    def _contradiction(self) -> CorruptSegmentError:
        return CorruptSegmentError("the directory root contradicts itself", path=self._name, offset=self._offset)

    def _all_leaves(self) -> _Leaves:
        if self._leaves is None:
            at = self._packs[2].end
            try:
                columns, _ = decode_columns(self._body, at, len(self), 6, Decompressor())  # by whoever asks first
            except CorruptSegmentError as error:
                error.path, error.offset = self._name, self._offset
                raise
            high = columns[4] + columns[5]  # modulo 2^64, as they were written
            if columns[:2].min(initial=1) < 1 or (high < columns[4]).any():
                raise self._contradiction()
            data_offsets, offsets, lengths, checks, low, _ = columns.tolist()
            handles = list(map(BlockHandle._make, zip(offsets, lengths, checks, strict=True)))
            self._leaves = _Leaves(data_offsets, handles, low, high.tolist())
        return self._leaves

    @property
    def first_spaces(self) -> list[bytes]:
        """The first space of each leaf."""
        return self.first_keys.as_list()

    @property
    def data_offsets(self) -> list[int]:
        """Where the first data block of each leaf lies. Raises CorruptSegmentError."""
        return self._all_leaves().data_offsets

    @property
    def min_timestamps(self) -> list[int]:
        """The earliest timestamp of each leaf, µs. Raises CorruptSegmentError."""
        return self._all_leaves().min_timestamps

    @property
    def max_timestamps(self) -> list[int]:
        """The latest timestamp of each leaf, µs. Raises CorruptSegmentError."""
        return self._all_leaves().max_timestamps

    def place(self, leaf: int) -> tuple[BlockHandle, int]:
        """Where a leaf lies, and where the first of its data blocks. Raises CorruptSegmentError."""
        if self._leaves is None and not self._asked:
            self._asked = True
            found = (uncompressed_number(self._body, pack, leaf) for pack in self._packs[3:7])
            numbers = [number for number in found if number is not None]
            if len(numbers) == 4:
                data_offset, offset, length, check = numbers
                if min(data_offset, offset) < 1:
                    raise self._contradiction()
                return BlockHandle(offset, length, check), data_offset
        leaves = self._all_leaves()
        return leaves.handles[leaf], leaves.data_offsets[leaf]

    def handle(self, leaf: int) -> BlockHandle:
        """Where a leaf lies. Raises CorruptSegmentError."""
        return self.place(leaf)[0]

    def describes(self, number: int, leaf: Leaf) -> bool:
        """Whether a leaf has the rows and blocks that the root says, and the first space, where its keys are decoded.

        Times are for checkers.
        """
        return (
            leaf.last_row == self.rows[number + 1]
            and leaf.first_block + leaf.block_count == self.blocks[number + 1]
            and (leaf.spaces is None or leaf.spaces[0] == self.first_keys[number])
        )

    def leaves_before(self, space: bytes) -> int:
        """How many leaves begin with a smaller space."""
        return self.first_keys.places_of(space)[0]

    def leaf_of_row(self, row: int) -> int:
        """The leaf that covers a row of the segment."""
        return bisect_right(self.rows, row) - 1
