"""Check what opening a file needs: header, trailer, footer, metadata and dictionaries, with their spare copies."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from esformat.errors import CorruptSegmentError, UnsupportedVersionError
from esformat.format.codec import CODEC_NAMES, Decompressor
from esformat.format.dictionary import context_of
from esformat.format.footer import check_opening
from esformat.format.frame import Block
from esformat.format.layout import HEADER_BYTES, TRAILER_BYTES, BlockHandle, BlockKind, Trailer, check_header
from esformat.format.metadata import Metadata
from esformat.format.node import DecodeContext
from esformat.format.schema import EventSchema
from esformat.tools.verification.blocks import BAD_BYTES, KINDS, Blocks, Found
from esformat.tools.verification.dictionaries import Contexts, read_dictionary
from esformat.tools.verification.parts import Parts

Key = tuple[int, int, int]
"""Kind, ordinal, copy."""
_ENTRY = struct.Struct("<BBHQII")  # kind, copy, ordinal, offset, length, check

_VERSION_IN_HEADER, _VERSION_IN_TRAILER, _VERSION_BYTES = 8, 24, 4  # major and minor version

NAMED_KINDS = {
    BlockKind.METADATA,
    BlockKind.DIRECTORY_ROOT,
    BlockKind.INDEX_ROOT,
    BlockKind.FILTER,
    BlockKind.DICTIONARY,
}
SPARED_KINDS = {BlockKind.METADATA, BlockKind.DICTIONARY}
NUMBERED_KINDS = {BlockKind.INDEX_ROOT, BlockKind.FILTER, BlockKind.DICTIONARY}


class Opening:
    """Checks the parts needed for opening, and keeps what the other checks need; None for what is lost."""

    def __init__(self, blocks: Blocks, size: int) -> None:
        self._blocks = blocks
        self._size = size
        plain = Decompressor()
        self.own = DecodeContext(plain, plain)
        self.entries: dict[Key, BlockHandle] | None = None
        self.metadata: Metadata | None = None
        self.contexts = Contexts(self.own)

    @property
    def schema(self) -> EventSchema | None:
        """The schema, from whichever copy of the metadata could be read."""
        return self.metadata.schema if self.metadata else None

    def handles(self, kind: int, copy: int = 0) -> dict[int, BlockHandle]:
        """Blocks of a kind that the footer names, by ordinal."""
        entries = self.entries or {}
        return {
            ordinal: handle for (found, ordinal, spare), handle in entries.items() if (found, spare) == (kind, copy)
        }

    def check(self) -> None:
        """Check everything. Raises UnsupportedVersionError for a file of another major version."""
        header_is_sound = self._check_header()
        trailer = self._read_trailer()
        if header_is_sound and trailer is not None:
            self._compare_versions()
        footer = trailer.footer if trailer else self._search_footer()
        block = self._blocks.read(footer, BlockKind.FOOTER) if footer else None
        if block is None:
            self._blocks.orphaned_kinds |= set(BlockKind)
            return
        try:
            self.entries = _read_footer(block, self.own)
        except BAD_BYTES as error:
            self._blocks.lose(BlockKind.FOOTER, error, block.offset)
            return
        if trailer is not None:
            self._check_opening_offset(trailer, self.entries)
        self._read_metadata()
        self._read_dictionaries()

    # ------------------------------------------------------------ header, trailer, footer

    def _check_header(self) -> bool:
        try:
            check_header(self._blocks.bytes_at(0, min(HEADER_BYTES, self._size)))
        except (CorruptSegmentError, UnsupportedVersionError) as error:
            self._blocks.findings.add_error(error, 0)
            return False
        return True

    def _compare_versions(self) -> None:
        first = self._blocks.bytes_at(_VERSION_IN_HEADER, _VERSION_BYTES)
        last = self._blocks.bytes_at(self._size - TRAILER_BYTES + _VERSION_IN_TRAILER, _VERSION_BYTES)
        if first != last:
            self._blocks.findings.add(_VERSION_IN_HEADER, "header and trailer name different versions")

    def _read_trailer(self) -> Trailer | None:
        tail = min(TRAILER_BYTES, self._size)
        try:
            return Trailer.decode(self._blocks.bytes_at(self._size - tail, tail), self._size)
        except CorruptSegmentError as error:
            self._blocks.findings.add_error(error, self._size - tail)
            return None

    def _search_footer(self) -> BlockHandle | None:
        """The footer of a file without its trailer: the last block, if the file ends where it should."""
        footer: Found | None = None
        end = self._blocks.end
        self._blocks.end = self._size
        for found in self._blocks.walk(HEADER_BYTES, end):
            if isinstance(found, Found) and found.kind == BlockKind.FOOTER and found.offset + found.length == end:
                footer = found
        if footer is None:
            return None
        self._blocks.end = end
        checksum = self._blocks.bytes_at(end - 8, 4)
        return BlockHandle(footer.offset, footer.length, int.from_bytes(checksum, "little"))

    def _check_opening_offset(self, trailer: Trailer, entries: Mapping[Key, BlockHandle]) -> None:
        try:
            check_opening(dict(entries), trailer.opening_offset)
        except CorruptSegmentError as error:
            self._blocks.findings.add_error(error, self._size - TRAILER_BYTES)

    # ------------------------------------------------------------ metadata

    def _read_metadata(self) -> None:
        assert self.entries is not None
        documents: list[dict[str, Any]] = []
        for copy in (0, 1):
            handle = self.entries.get((BlockKind.METADATA, 0, copy))
            block = self._blocks.read(handle, BlockKind.METADATA) if handle else None
            if block is None:
                continue
            try:
                metadata, document = read_metadata(block)
                if copy == 0 and metadata.statistics is None:
                    raise CorruptSegmentError("the metadata has no statistics")
            except BAD_BYTES as error:
                self._blocks.lose(BlockKind.METADATA, error, block.offset)
                continue
            self.metadata = self.metadata or metadata
            documents.append(document)
            if copy == 1 and block.offset != HEADER_BYTES:
                self._blocks.findings.add(block.offset, f"the spare metadata is not at byte {HEADER_BYTES}")
        if len(documents) == 2:
            documents[0].pop("statistics")
            if documents[0] != documents[1]:
                self._blocks.findings.add(HEADER_BYTES, "the spare copy of the metadata differs from the first")

    def adopt(self, block: Block) -> None:
        """Use a metadata block that a walk found, if there is no better one."""
        if self.metadata is None:
            try:
                self.metadata, _ = read_metadata(block)
            except BAD_BYTES as error:
                self._blocks.findings.add_error(error, block.offset)

    # ------------------------------------------------------------ dictionaries

    def _read_dictionaries(self) -> None:
        schema = self.schema
        if schema is None:
            return
        spares = self.handles(BlockKind.DICTIONARY, 1)
        self._check_places_of_dictionaries()
        for number, handle in self.handles(BlockKind.DICTIONARY).items():
            copies = [self._blocks.read(handle, BlockKind.DICTIONARY)]
            if number in spares:
                copies.append(self._blocks.read(spares[number], BlockKind.DICTIONARY))
            whole = [block for block in copies if block is not None]
            if len(whole) == 2 and whole[0].body != whole[1].body:
                self._blocks.findings.add(whole[1].offset, "the spare copy of a dictionary differs from the first")
            self.contexts.lose(number)
            if whole:
                self.adopt_dictionary(number, whole[0])

    def _check_places_of_dictionaries(self) -> None:
        """Check that dictionaries are adjacent and numbered from 1: they are then identifiable without the footer."""
        spare = (self.entries or {}).get((BlockKind.METADATA, 0, 1))
        for copy, what, where in ((0, "", ""), (1, "spare ", ", behind the spare metadata")):
            handles = self.handles(BlockKind.DICTIONARY, copy)
            places = [spare, *handles.values()] if copy and spare else [*handles.values()]
            side_by_side = all(one.offset + one.length == other.offset for one, other in pairwise(places))
            if not side_by_side or list(handles) != [*range(1, len(handles) + 1)]:
                wrong = f"the {what}dictionaries are not adjacent and numbered from 1{where}"
                self._blocks.findings.add(places[-1].offset, wrong)

    def adopt_dictionary(self, number: int, block: Block) -> None:
        """Decode a dictionary block, and use it for a number."""
        assert self.schema is not None
        try:
            columns = read_dictionary(block, self.schema.fields, self.own)
            made: list[DecodeContext | None] = [self.own] * len(self.schema.fields)
            for column in columns:
                made[column.column] = context_of(column, self.own.plain)
        except BAD_BYTES as error:
            self._blocks.lose(BlockKind.DICTIONARY, error, block.offset)
            return
        self.contexts.add(number, made)


def _read_footer(block: Block, own: DecodeContext) -> dict[Key, BlockHandle]:
    """The footer's entries. Raises CorruptSegmentError."""
    parts = Parts(block.body, own)
    entries: dict[Key, BlockHandle] = {}
    last: Key = (-1, 0, 0)
    for _ in range(block.count):
        kind, copy, ordinal, *handle = parts.fields(_ENTRY)
        key = (kind, ordinal, copy)
        if key <= last:
            raise CorruptSegmentError("the entries of the footer are not in order")
        if kind in KINDS:
            _check_entry(BlockKind(kind), copy, ordinal)
        entries[key] = BlockHandle(*handle)
        last = key
    parts.end()
    for kind in (BlockKind.METADATA, BlockKind.DIRECTORY_ROOT):
        if (kind, 0, 0) not in entries:
            raise CorruptSegmentError(f"the footer does not name the {kind.name.lower()} block")
    return entries


def _check_entry(kind: BlockKind, copy: int, ordinal: int) -> None:
    if kind not in NAMED_KINDS or copy > (kind in SPARED_KINDS) or (ordinal and kind not in NUMBERED_KINDS):
        raise CorruptSegmentError(f"the footer names a {kind.name} block, copy {copy}, ordinal {ordinal}")


def read_metadata(block: Block) -> tuple[Metadata, dict[str, Any]]:
    """The metadata, and its JSON document. Raises CorruptSegmentError."""
    metadata = Metadata.decode(block)
    if metadata.codec not in CODEC_NAMES:
        raise CorruptSegmentError(f"the metadata names the unknown codec {metadata.codec!r}")
    if block.count:
        raise CorruptSegmentError(f"a metadata block has a count of {block.count}")
    return metadata, json.loads(bytes(block.body))
