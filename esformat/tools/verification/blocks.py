"""Read blocks for a check: each once by its handle, the rest by walking from frame to frame."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pyarrow as pa

from esformat.errors import CorruptSegmentError, EsdbError
from esformat.format.frame import FRAME_BYTES, FRAME_HEADER_BYTES, Block, decode_block
from esformat.format.layout import BLOCK_MAGIC, HEADER_BYTES, MAX_BLOCK_BYTES, TRAILER_BYTES, BlockHandle, BlockKind
from esformat.io.source import Source
from esformat.tools.verification.coverage import Coverage
from esformat.tools.verification.report import RESTORE, Findings

BAD_BYTES = (EsdbError, ValueError, ArithmeticError, LookupError, MemoryError, struct.error, pa.ArrowException)
"""Errors that decoding of hostile bytes can raise: this package's, and unforeseen ones of libraries."""

CHILDREN = {
    BlockKind.FOOTER: set(BlockKind),
    BlockKind.DIRECTORY_ROOT: {BlockKind.DIRECTORY_PAGE, BlockKind.DIRECTORY, BlockKind.DATA},
    BlockKind.DIRECTORY_PAGE: {BlockKind.DIRECTORY, BlockKind.DATA},
    BlockKind.DIRECTORY: {BlockKind.DATA},
    BlockKind.INDEX_ROOT: {BlockKind.INDEX, BlockKind.POSTINGS},
    BlockKind.INDEX: {BlockKind.POSTINGS},
}
"""Kinds of blocks that become unreachable if a block of a kind is damaged; these are not reported as problems."""

KINDS = frozenset(map(int, BlockKind))
"""Block kinds that this version knows."""

LOSSES = {
    BlockKind.METADATA: "the other copy tells the schema, if it is whole",
    BlockKind.DATA: "the events in it are lost",
    BlockKind.DIRECTORY: "the events of the data blocks before it are not found, but still there",
    BlockKind.DIRECTORY_ROOT: "the file does not open, but its events are still there",
    BlockKind.DIRECTORY_PAGE: "the events of the leaves that it names are not found, but still there",
    BlockKind.INDEX: "scans by these values of the index fail",
    BlockKind.INDEX_ROOT: "scans by this index fail",
    BlockKind.POSTINGS: "scans by a value of an index fail",
    BlockKind.FILTER: "`may_contain` takes longer, as it asks the directory",
    BlockKind.DICTIONARY: "the other copy is used, if it is whole; without both, the columns that need it are lost",
    BlockKind.FOOTER: "the file does not open, but its events are still there",
}
"""The consequence of losing a block, by kind, as in the specification."""

_FRAME_HEAD = struct.Struct("<4sBBHII")
_SEARCH_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Found:
    """A block frame that a walk found: the fields of its header, not verified."""

    offset: int
    length: int
    kind: int


class Blocks:
    """Reads the blocks of one source. Damage is added to `findings`; the other blocks can still be read."""

    def __init__(self, source: Source, findings: Findings, progress: Callable[[int, int], None] | None) -> None:
        self._source = source
        self.findings = findings
        self._progress = progress
        self._covered = Coverage()
        self._done = 0
        self.count = 0
        self.orphaned_kinds: set[int] = set()
        """Kinds of blocks that may be unreachable, because a block that refers to them is damaged."""
        self.end = max(source.size - TRAILER_BYTES, 0)
        self._search_budget = 2 * source.size

    def bytes_at(self, offset: int, length: int) -> bytes:
        """Bytes of the source. Raises CorruptSegmentError if it has fewer, OSError."""
        return self._source.read_at(offset, length)

    def read(self, handle: BlockHandle, kind: int) -> Block | None:
        """The block of a handle; None, and a problem, if it is missing or damaged. Call once for each block."""
        try:
            if not (HEADER_BYTES <= handle.offset <= handle.end <= self.end):
                raise CorruptSegmentError("a handle points outside the blocks of the file", offset=handle.offset)
            if not FRAME_BYTES <= handle.length <= MAX_BLOCK_BYTES:
                raise CorruptSegmentError(f"a handle claims a block of {handle.length} bytes", offset=handle.offset)
            if not self._covered.add(handle.offset, handle.end):
                raise CorruptSegmentError("two handles point to the same bytes", offset=handle.offset)
            self._advance(handle.length)
            return self._decode(handle, kind, handle.check)
        except EsdbError as error:
            self.lose(kind, error, handle.offset)
            return None

    def read_again(self, handle: BlockHandle, kind: int) -> Block | None:
        """A block that `read` returned before; None if it changed meanwhile."""
        try:
            return decode_block(self.bytes_at(handle.offset, handle.length), kind, handle.check, handle.offset)
        except EsdbError as error:
            self.lose(kind, error, handle.offset)
            return None

    def lose(self, kind: int, error: Exception, offset: int) -> None:
        """Record that a block cannot be used, and which kinds of blocks thereby become unreachable."""
        loss = LOSSES[BlockKind(kind)] if kind in KINDS else "this version of the format does not use it"
        self.findings.add_error(error, offset, f"{loss}; {RESTORE}")
        if kind in KINDS:
            self.orphaned_kinds |= CHILDREN.get(BlockKind(kind), set())

    def _decode(self, handle: BlockHandle, kind: int, check: int | None) -> Block:
        block = decode_block(self.bytes_at(handle.offset, handle.length), kind, check, handle.offset)
        if block.dictionary and kind in KINDS - {BlockKind.DATA}:
            raise CorruptSegmentError("a block other than a data block names a dictionary", offset=handle.offset)
        self.count += 1
        return block

    def _advance(self, length: int) -> None:
        self._done += length
        if self._progress:
            self._progress(min(self._done, self._source.size), self._source.size)

    # ------------------------------------------------------------ without handles

    def gaps(self, start: int, end: int) -> list[tuple[int, int]]:
        """Ranges within [start, end) that no handle referred to."""
        return self._covered.gaps(start, min(end, self.end))

    def read_found(self, found: Found) -> Block | None:
        """A block that a walk found; None, and a problem, if it is damaged."""
        self._covered.add(found.offset, found.offset + found.length)
        self._advance(found.length)
        try:
            return self._decode(BlockHandle(found.offset, found.length, 0), found.kind, None)
        except EsdbError as error:
            self.lose(found.kind, error, found.offset)
            return None

    def walk(self, start: int, end: int) -> Iterator[Found | tuple[int, int]]:
        """Walk from frame to frame through bytes [start, end). Yields blocks, and ranges of bytes that form none."""
        at = start
        while at < end:
            found = self._frame_at(at, end)
            if found is None:
                after = self._next_frame(at + 1, end)
                yield at, after
                at = after
            else:
                yield found
                at += found.length

    def _frame_at(self, at: int, end: int) -> Found | None:
        """The frame that begins at a byte, or None. The next frame must follow it, or its checksums must match."""
        if at + FRAME_BYTES > end:
            return None
        magic, kind, reserved, _, body_length, _ = _FRAME_HEAD.unpack(self.bytes_at(at, FRAME_HEADER_BYTES))
        length = body_length + FRAME_BYTES
        after = at + length
        if magic != BLOCK_MAGIC or reserved or length > MAX_BLOCK_BYTES or after > end:
            return None
        if after < end and self.bytes_at(after, min(4, end - after)) != BLOCK_MAGIC[: end - after]:
            return Found(at, length, kind) if self._is_whole(at, length, kind) else None
        return Found(at, length, kind)

    def _is_whole(self, at: int, length: int, kind: int) -> bool:
        """Whether a frame's checksums match. Always False after this has read twice the size of the file."""
        self._search_budget -= length
        if self._search_budget < 0:
            return False
        try:
            stored = self.bytes_at(at, length)
            decode_block(stored, kind, None, at)
        except EsdbError:
            return False
        return True

    def _next_frame(self, at: int, end: int) -> int:
        """The first byte from `at` on at which a frame begins; `end` if none does."""
        overlap = len(BLOCK_MAGIC) - 1
        while at < end:
            piece = self.bytes_at(at, min(_SEARCH_BYTES, end - at))
            place = piece.find(BLOCK_MAGIC)
            while place >= 0:
                if self._frame_at(at + place, end) is not None:
                    return at + place
                place = piece.find(BLOCK_MAGIC, place + 1)
            at += max(1, len(piece) - overlap) if at + len(piece) < end else len(piece)
        return end
