"""What can still be found in a damaged file: sound blocks by walking from frame to frame, and what leads to them.

Nothing is taken on trust: a block counts when its checksum matches, and is named by the directory or, where that is
lost, decodes as one of this file's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from esformat.block import Block, decode_block
from esformat.codec import Decompressor
from esformat.dictionary import ColumnDictionary, decode_dictionary
from esformat.directory import Leaf
from esformat.errors import CorruptSegmentError, EsdbError
from esformat.layout import HEADER_BYTES, TRAILER_BYTES, BlockHandle, BlockKind
from esformat.metadata import Metadata
from esformat.node import DecodeContext
from esformat.source import Source
from esformat.verify.blocks import BAD_BYTES, Blocks, Found
from esformat.verify.directory import RootEntry, read_root
from esformat.verify.opening import Opening, read_metadata
from esformat.verify.report import Findings

Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Sound:
    """A block whose checksum matches."""

    handle: BlockHandle
    kind: int
    rows: int
    """The frame's count."""
    dictionary: int


@dataclass(slots=True)
class Region:
    """Data blocks that one leaf covers, in bytes [start, end), as far as the directory is known.

    blocks: handle and rows of each, None where the leaf is lost. rows: of all, None where the root is lost, too.
    """

    start: int
    end: int
    rows: int | None
    blocks: list[tuple[BlockHandle, int]] | None


@dataclass(slots=True)
class Wreck:
    """A damaged file after it was walked through."""

    source: Source
    findings: Findings
    metadata: Metadata
    sound: list[Sound]
    broken_rows: int
    """Rows that damaged data blocks claim, if their frames can be believed."""
    regions: list[Region]
    whole_directory: bool
    """Whether `regions` are all that the file had."""
    dictionaries: dict[int, list[ColumnDictionary]] = field(default_factory=dict)

    def read(self, handle: BlockHandle, kind: int) -> Block:
        """A block. Raises CorruptSegmentError."""
        return decode_block(self.source.read_at(handle.offset, handle.length), kind, handle.check, handle.offset)


def examine(source: Source, progress: Progress | None) -> Wreck:
    """Walk through a file. Raises CorruptSegmentError if nothing tells its schema, UnsupportedVersionError, OSError."""
    findings = Findings()
    blocks = Blocks(source, findings, None)
    opening = Opening(blocks, source.size)
    opening.check()
    walk = _Walk(source, blocks, progress)
    walk.go(source.size - TRAILER_BYTES if opening.entries is not None else source.size)
    metadata = opening.metadata or walk.metadata()
    if metadata is None:
        raise CorruptSegmentError(
            "both copies of the metadata are damaged: nothing tells what the columns are",
            path=source.name,
            hint="restore the file from a copy",
        )
    for start, end in walk.gaps:
        findings.add(start, f"{end - start} bytes are no block")
    own = opening.own
    regions, whole = _regions(source, opening, walk, own)
    wreck = Wreck(source, findings, metadata, walk.sound, walk.broken_rows, regions, whole)
    wreck.dictionaries = _dictionaries(wreck, opening, walk, own)
    return wreck


class _Walk:
    """All frames of a file: sound blocks, damaged ones, and bytes that are neither."""

    def __init__(self, source: Source, blocks: Blocks, progress: Progress | None) -> None:
        self._source = source
        self._blocks = blocks
        self._progress = progress
        self.sound: list[Sound] = []
        self.gaps: list[tuple[int, int]] = []
        self.damaged: list[Found] = []
        self.broken_rows = 0

    def go(self, end: int) -> None:
        """Walk through bytes [16, end)."""
        self._blocks.end = end
        for found in self._blocks.walk(HEADER_BYTES, end):
            if isinstance(found, tuple):
                self.gaps.append(found)
                continue
            stored = self._source.read_at(found.offset, found.length)
            try:
                block = decode_block(stored, found.kind, None, found.offset)
            except EsdbError as error:
                self.damaged.append(found)
                if found.kind == BlockKind.DATA:
                    self.broken_rows += int.from_bytes(stored[12:16], "little")
                self._blocks.findings.add_error(error, found.offset)
                continue
            check = int.from_bytes(stored[-8:-4], "little")
            handle = BlockHandle(found.offset, found.length, check)
            self.sound.append(Sound(handle, found.kind, block.count, block.dictionary))
            if self._progress:
                self._progress(handle.end, 2 * self._source.size)

    def of_kind(self, kind: int) -> list[Sound]:
        """Sound blocks of a kind, in file order."""
        return [block for block in self.sound if block.kind == kind]

    def metadata(self) -> Metadata | None:
        """Metadata from any block that has it, those with statistics first."""
        found = []
        for each in self.of_kind(BlockKind.METADATA):
            handle = each.handle
            block = decode_block(self._source.read_at(handle.offset, handle.length), each.kind, None, handle.offset)
            try:
                found.append(read_metadata(block)[0])
            except BAD_BYTES as error:
                self._blocks.findings.add_error(error, handle.offset)
        return next((m for m in found if m.statistics), found[0] if found else None)


def _regions(source: Source, opening: Opening, walk: _Walk, own: DecodeContext) -> tuple[list[Region], bool]:
    """What is left of the directory, in file order; also, whether its root is."""
    entries = _root_entries(source, opening, own)
    if entries is not None:
        return [_region(source, entry, own) for entry in entries], True
    regions = []
    for each in walk.of_kind(BlockKind.DIRECTORY):
        handle = each.handle
        try:
            block = decode_block(source.read_at(handle.offset, handle.length), each.kind, None, handle.offset)
            leaf = Leaf(block, 0, 0, 0, own)
        except BAD_BYTES:
            continue
        start = handle.offset - leaf.block_offsets[-1]
        regions.append(Region(start, handle.offset, leaf.last_row, _expected(leaf, start)))
    return regions, False


def _root_entries(source: Source, opening: Opening, own: DecodeContext) -> list[RootEntry] | None:
    handle = (opening.entries or {}).get((BlockKind.DIRECTORY_ROOT, 0, 0))
    if handle is None:
        return None
    try:
        stored = source.read_at(handle.offset, handle.length)
        return read_root(decode_block(stored, BlockKind.DIRECTORY_ROOT, handle.check, handle.offset), own, source.size)
    except BAD_BYTES:
        return None


def _region(source: Source, entry: RootEntry, own: DecodeContext) -> Region:
    handle = entry.handle
    try:
        block = decode_block(
            source.read_at(handle.offset, handle.length), BlockKind.DIRECTORY, handle.check, handle.offset
        )
        leaf = Leaf(block, 0, 0, 0, own)
    except BAD_BYTES:
        return Region(entry.data_offset, handle.offset, entry.rows, None)
    return Region(entry.data_offset, handle.offset, entry.rows, _expected(leaf, entry.data_offset))


def _expected(leaf: Leaf, start: int) -> list[tuple[BlockHandle, int]]:
    return [
        (
            BlockHandle(start + leaf.block_offsets[place], leaf.handle(place).length, leaf.block_checks[place]),
            leaf.block_rows[place + 1] - leaf.block_rows[place],
        )
        for place in range(leaf.block_count)
    ]


# ---------------------------------------------------------------- dictionaries


def _dictionaries(wreck: Wreck, opening: Opening, walk: _Walk, own: DecodeContext) -> dict[int, list[ColumnDictionary]]:
    """The dictionaries that can be read, by number."""
    fields = wreck.metadata.schema.fields

    def decoded(handle: BlockHandle) -> list[ColumnDictionary] | None:
        try:
            return decode_dictionary(wreck.read(handle, BlockKind.DICTIONARY), fields, own)
        except BAD_BYTES:
            return None

    found: dict[int, list[ColumnDictionary]] = {}
    if opening.entries is not None:
        for copy in (0, 1):
            for number, handle in opening.handles(BlockKind.DICTIONARY, copy).items():
                dictionary = None if number in found else decoded(handle)
                if dictionary is not None:
                    found[number] = dictionary
        return found
    most = max((block.dictionary for block in walk.of_kind(BlockKind.DATA)), default=0)
    handles = [block.handle for block in walk.of_kind(BlockKind.DICTIONARY)]
    for group in _side_by_side(handles):  # the spares, then the others, each in the order of their numbers
        if len(group) == most or most == 1:
            made = [decoded(handle) for handle in group]
            found |= {n: d for n, d in enumerate(made, start=1) if d is not None and n not in found}
    return found


def _side_by_side(handles: list[BlockHandle]) -> list[list[BlockHandle]]:
    groups: list[list[BlockHandle]] = []
    for handle in handles:
        if groups and groups[-1][-1].end == handle.offset:
            groups[-1].append(handle)
        else:
            groups.append([handle])
    return groups


def plain_context() -> DecodeContext:
    """What blocks without a dictionary are decoded with."""
    plain = Decompressor()
    return DecodeContext(plain, plain)
