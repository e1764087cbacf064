"""Find what is left of a damaged file: valid blocks, by walking from frame to frame, and the directory's entries.

Nothing is trusted: a block counts only if its checksum matches and the directory names it, or, if the directory is
lost, if it decodes as a block of this file.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from esformat.core.leaves import Leaf
from esformat.errors import CorruptSegmentError, EsdbError
from esformat.format.codec import Decompressor
from esformat.format.dictionary import ColumnDictionary, decode_dictionary
from esformat.format.directory import open_leaf
from esformat.format.frame import Block, decode_block, handle_of
from esformat.format.layout import HEADER_BYTES, TRAILER_BYTES, BlockHandle, BlockKind
from esformat.format.metadata import Metadata
from esformat.format.node import DecodeContext
from esformat.io.source import Source
from esformat.tools.verification.blocks import BAD_BYTES, Blocks
from esformat.tools.verification.directory import RootEntry, read_page, read_root
from esformat.tools.verification.opening import Opening, read_metadata
from esformat.tools.verification.report import Findings

Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class ValidBlock:
    """A block whose checksum matches."""

    handle: BlockHandle
    kind: int
    rows: int
    """The count in the frame."""
    dictionary: int


@dataclass(slots=True)
class Region:
    """The data blocks of one leaf, in bytes [start, end), as far as the directory is known.

    blocks: handle and rows of each, None if the leaf is lost. rows: of all, None if the root is lost, too.
    """

    start: int
    end: int
    rows: int | None
    blocks: list[tuple[BlockHandle, int]] | None


@dataclass(slots=True)
class DamagedFile:
    """A damaged file after a walk through it."""

    source: Source
    findings: Findings
    metadata: Metadata
    valid_blocks: list[ValidBlock]
    regions: list[Region]
    whole_directory: bool
    """Whether `regions` are all regions that the file had."""
    dictionaries: dict[int, list[ColumnDictionary]] = field(default_factory=dict)
    mixed: bool = False
    """Whether there are more dictionaries than the file had, because it contains parts of another file."""

    def read(self, handle: BlockHandle, kind: int) -> Block:
        """Read a block. Raises CorruptSegmentError."""
        return decode_block(self.source.read_at(handle.offset, handle.length), kind, handle.check, handle.offset)


def examine(source: Source, progress: Progress | None) -> DamagedFile:
    """Walk through a file. Raises CorruptSegmentError if its schema is lost, UnsupportedVersionError, OSError."""
    findings = Findings()
    blocks = Blocks(source, findings, None)
    opening = Opening(blocks, source.size)
    opening.check()
    walk = _Walk(source, blocks, progress)
    walk.run(source.size - TRAILER_BYTES if opening.entries is not None else source.size)
    metadata = opening.metadata or walk.metadata()
    if metadata is None:
        raise CorruptSegmentError(
            "both copies of the metadata are damaged: the columns are unknown",
            path=source.name,
            hint="restore the file from a copy",
        )
    for start, end in walk.gaps:
        findings.add(start, f"{end - start} bytes do not form a block")
    own = opening.own
    regions, whole = _regions(opening, walk, own)
    damaged = DamagedFile(source, findings, metadata, walk.valid_blocks, regions, whole)
    damaged.dictionaries = _dictionaries(damaged, opening, walk, own)
    different = {block.handle[1:] for block in walk.of_kind(BlockKind.DICTIONARY)}
    damaged.mixed = len(different) > _dictionary_count(opening, walk)
    return damaged


class _Walk:
    """All frames of a file: valid blocks, damaged ones, and bytes that are neither."""

    def __init__(self, source: Source, blocks: Blocks, progress: Progress | None) -> None:
        self.source = source
        self._blocks = blocks
        self._progress = progress
        self.valid_blocks: list[ValidBlock] = []
        self.gaps: list[tuple[int, int]] = []

    def run(self, end: int) -> None:
        """Walk through bytes [16, end)."""
        self._blocks.end = end
        for found in self._blocks.walk(HEADER_BYTES, end):
            if isinstance(found, tuple):
                self.gaps.append(found)
                continue
            stored = self.source.read_at(found.offset, found.length)
            try:
                block = decode_block(stored, found.kind, None, found.offset)
            except EsdbError as error:
                self._blocks.findings.add_error(error, found.offset)
                continue
            handle = handle_of(stored, found.offset)
            self.valid_blocks.append(ValidBlock(handle, found.kind, block.count, block.dictionary))
            if self._progress:
                self._progress(handle.end, 2 * self.source.size)

    def of_kind(self, kind: int) -> list[ValidBlock]:
        """The valid blocks of a kind, in file order."""
        return [block for block in self.valid_blocks if block.kind == kind]

    def read(self, block: ValidBlock) -> Block:
        """Read a valid block."""
        handle = block.handle
        return decode_block(self.source.read_at(*handle[:2]), block.kind, handle.check, handle.offset)

    def find(self, handle: BlockHandle, kind: int) -> Block | None:
        """The block that a handle refers to, wherever it is in the file; None if it is missing or damaged."""
        alike = [s for s in self.of_kind(kind) if s.handle[1:] == handle[1:]]
        alike.sort(key=lambda block: block.handle.offset != handle.offset)
        return self.read(alike[0]) if alike else None

    def metadata(self) -> Metadata | None:
        """The metadata from any valid block of it, preferably one with statistics; None if there is none."""
        found = []
        for each in self.of_kind(BlockKind.METADATA):
            try:
                found.append(read_metadata(self.read(each))[0])
            except BAD_BYTES as error:
                self._blocks.findings.add_error(error, each.handle.offset)
        return next((m for m in found if m.statistics), found[0] if found else None)


def _regions(opening: Opening, walk: _Walk, own: DecodeContext) -> tuple[list[Region], bool]:
    """The regions that are left of the directory, in file order, and whether its root and pages are left."""
    handle = (opening.entries or {}).get((BlockKind.DIRECTORY_ROOT, 0, 0))
    root = None if handle is None else walk.find(handle, BlockKind.DIRECTORY_ROOT)
    if handle is not None and root is not None:
        try:
            entries = _leaves_of(walk, *read_root(root, own, walk.source.size), own)
        except BAD_BYTES:
            entries = None
        if entries is not None:
            return [_region(walk, entry, own, in_place=root.offset == handle.offset) for entry in entries], True
    leaves = {(each.handle.check, each.handle.length): each for each in reversed(walk.of_kind(BlockKind.DIRECTORY))}
    regions = []
    for each in reversed(leaves.values()):
        try:
            leaf = open_leaf(walk.read(each), 0, 0, 0, own)
        except BAD_BYTES:
            continue
        start = each.handle.offset - leaf.block_offsets[-1]
        regions.append(Region(start, each.handle.offset, leaf.last_row, _expected(leaf, start)))
    return regions, False


def _leaves_of(walk: _Walk, entries: list[RootEntry], sizes: list[int], own: DecodeContext) -> list[RootEntry] | None:
    """The entries of leaves in the root, or in the pages that it names; None if a page is lost. Raises BAD_BYTES."""
    if not sizes:
        return entries
    leaves = []
    for entry, size in zip(entries, sizes, strict=True):
        page = walk.find(entry.handle, BlockKind.DIRECTORY_PAGE)
        if page is None:
            return None
        leaves += read_page(page, entry, size, own)
    return leaves


def _region(walk: _Walk, entry: RootEntry, own: DecodeContext, *, in_place: bool) -> Region:
    """The region of a leaf. in_place: offsets in handles are still right, because no bytes were inserted or removed."""
    block = walk.find(entry.handle, BlockKind.DIRECTORY)
    try:
        leaf = None if block is None else open_leaf(block, 0, 0, 0, own)
    except BAD_BYTES:
        leaf = None
    span = (entry.data_offset, entry.handle.offset) if in_place else (0, walk.source.size)
    return Region(*span, entry.rows, None if leaf is None else _expected(leaf, entry.data_offset))


def _expected(leaf: Leaf, start: int) -> list[tuple[BlockHandle, int]]:
    return [
        (
            BlockHandle(
                start + leaf.block_offsets[place],
                leaf.block_offsets[place + 1] - leaf.block_offsets[place],
                leaf.block_checks[place],
            ),
            leaf.block_rows[place + 1] - leaf.block_rows[place],
        )
        for place in range(leaf.block_count)
    ]


# ---------------------------------------------------------------- dictionaries


def _dictionaries(
    damaged: DamagedFile, opening: Opening, walk: _Walk, own: DecodeContext
) -> dict[int, list[ColumnDictionary]]:
    """The dictionaries that can be read, by number."""
    fields = damaged.metadata.schema.fields

    def decoded(block: Block | None) -> list[ColumnDictionary] | None:
        try:
            return None if block is None else decode_dictionary(block, fields, own)
        except BAD_BYTES:
            return None

    found: dict[int, list[ColumnDictionary]] = {}
    if opening.entries is not None:
        for copy in (0, 1):
            for number, handle in opening.handles(BlockKind.DICTIONARY, copy).items():
                dictionary = None if number in found else decoded(walk.find(handle, BlockKind.DICTIONARY))
                if dictionary is not None:
                    found[number] = dictionary
        return found
    most = _dictionary_count(opening, walk)
    for group in _adjacent(walk.of_kind(BlockKind.DICTIONARY)):  # spares, then the others, in order of numbers
        if len(group) == most or most == 1:
            made = [decoded(walk.read(block)) for block in group]
            found |= {n: d for n, d in enumerate(made, start=1) if d is not None and n not in found}
    return found


def _dictionary_count(opening: Opening, walk: _Walk) -> int:
    """The number of dictionaries that the file had, according to the footer, or else to the data blocks."""
    if opening.entries is not None:
        return len(opening.handles(BlockKind.DICTIONARY))
    return max((block.dictionary for block in walk.of_kind(BlockKind.DATA)), default=0)


def _adjacent(blocks: list[ValidBlock]) -> list[list[ValidBlock]]:
    groups: list[list[ValidBlock]] = []
    for block in blocks:
        if groups and groups[-1][-1].handle.end == block.handle.offset:
            groups[-1].append(block)
        else:
            groups.append([block])
    return groups


def plain_context() -> DecodeContext:
    """The decode context of blocks without a dictionary."""
    plain = Decompressor()
    return DecodeContext(plain, plain)
