"""Check the events and everything derived from them: directory, data blocks, indexes, space filter, statistics."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import Any

from esformat.errors import CorruptSegmentError
from esformat.format.layout import BlockKind
from esformat.format.schema import EventSchema
from esformat.tools.verification.blocks import BAD_BYTES, Blocks
from esformat.tools.verification.data import DataCheck, Key
from esformat.tools.verification.directory import (
    LeafContents,
    RootEntry,
    expected_blocks,
    read_leaf,
    read_page,
    read_root,
)
from esformat.tools.verification.filters import FilterCheck
from esformat.tools.verification.indexes import IndexCheck
from esformat.tools.verification.opening import Opening
from esformat.tools.verification.orphans import Orphans


class Contents:
    """Checks the contents of a file in one pass along its directory."""

    def __init__(self, blocks: Blocks, opening: Opening, orphans: Orphans, schema: EventSchema) -> None:
        self._blocks = blocks
        self._opening = opening
        self._orphans = orphans
        self._schema = schema
        self._data = DataCheck(schema, lambda number: opening.contexts.of(number, len(schema.fields)), opening.own)
        self._filter = FilterCheck(blocks, self._filter_pages())
        self._indexes: dict[int, IndexCheck] = {}
        self._last_key: Key | None = None
        self._spaces = self._runs = 0
        self._whole_directory = True
        self.event_count = 0

    def _filter_pages(self) -> list[Any]:
        handles = self._opening.handles(BlockKind.FILTER)
        if list(handles) != list(range(len(handles))):
            first = next(iter(handles.values()))
            self._blocks.findings.add(first.offset, "the pages of the space filter are not numbered from 0")
        return list(handles.values())

    def check(self) -> None:
        """Check everything."""
        roots = self._opening.handles(BlockKind.DIRECTORY_ROOT)
        block = self._blocks.read(roots[0], BlockKind.DIRECTORY_ROOT)
        entries: list[RootEntry] | None = None
        pages: list[int] = []
        if block is not None:
            try:
                entries, pages = read_root(block, self._opening.own, self._blocks.end)
            except BAD_BYTES as error:
                self._blocks.lose(BlockKind.DIRECTORY_ROOT, error, block.offset)
        if entries is None:
            self._blocks.orphaned_kinds |= {
                BlockKind.INDEX,
                BlockKind.POSTINGS,
            }  # they cannot be checked without row numbers
            for handle in self._opening.handles(BlockKind.INDEX_ROOT).values():
                self._blocks.read(handle, BlockKind.INDEX_ROOT)
            return
        row_count = sum(entry.rows for entry in entries)
        block_count = sum(entry.blocks for entry in entries)
        self._open_indexes(row_count, block_count)
        for entry in self._leaves_of(entries, pages) if pages else entries:
            self._check_leaf(entry)
        for index in self._indexes.values():
            index.compare()
        self._filter.finish(self._spaces if self._whole_directory else None)
        self._check_statistics(entries, row_count, block_count)

    # ------------------------------------------------------------ indexes

    def _open_indexes(self, row_count: int, block_count: int) -> None:
        fields = self._schema.fields
        for place, handle in self._opening.handles(BlockKind.INDEX_ROOT).items():
            root = self._blocks.read(handle, BlockKind.INDEX_ROOT)
            if root is None:
                continue
            try:
                if place >= len(fields) or not fields[place].indexed:
                    raise CorruptSegmentError(f"an index on column {place}, which the schema does not index")
                field = fields[place]
                index = IndexCheck(field.name, field.type, self._blocks, self._opening.own, row_count, block_count)
                index.open(root)
                self._indexes[place] = index
            except BAD_BYTES as error:
                self._blocks.lose(BlockKind.INDEX_ROOT, error, handle.offset)
        for place, field in enumerate(fields):
            if field.indexed and place not in self._opening.handles(BlockKind.INDEX_ROOT):
                footer = self._opening.handles(BlockKind.METADATA)[0]
                self._blocks.findings.add(footer.offset, f"the index on {field.name!r} is missing")

    def _lose_rows(self, first_row: int, end_row: int, first_block: int, end_block: int) -> None:
        if first_row < end_row:
            for index in self._indexes.values():
                index.lose(first_row, end_row, first_block, end_block)

    def _add_columns(self, columns: list[Any], first_row: int, row_count: int, block: int) -> None:
        for place, index in self._indexes.items():
            if columns[place] is None:  # its dictionary is lost
                index.lose(first_row, first_row + row_count, block, block + 1)
            else:
                index.add_column(columns[place], first_row, block)

    # ------------------------------------------------------------ directory and data

    def _leaves_of(self, entries: list[RootEntry], sizes: list[int]) -> Iterator[RootEntry]:
        """The entries of leaves in the directory's pages."""
        for entry, leaves in zip(entries, sizes, strict=True):
            block = self._blocks.read(entry.handle, BlockKind.DIRECTORY_PAGE)
            if block is not None:
                try:
                    yield from read_page(block, entry, leaves, self._opening.own)
                    continue
                except BAD_BYTES as error:
                    self._blocks.lose(BlockKind.DIRECTORY_PAGE, error, entry.handle.offset)
            self._whole_directory = False
            self._lose_rows(
                entry.first_row, entry.first_row + entry.rows, entry.first_block, entry.first_block + entry.blocks
            )

    def _check_leaf(self, entry: RootEntry) -> None:
        block = self._blocks.read(entry.handle, BlockKind.DIRECTORY)
        if block is not None:
            try:
                leaf = read_leaf(block, entry, self._opening.own)
                self._follow(leaf)
            except BAD_BYTES as error:
                self._blocks.lose(BlockKind.DIRECTORY, error, entry.handle.offset)
            else:
                self._check_blocks(entry, leaf)
                return
        self._whole_directory = False
        self._check_orphans(entry)

    def _follow(self, leaf: LeafContents) -> None:
        """Compare a leaf's keys with the previous leaf, count runs and spaces, pass the spaces to the filter check."""
        first, last = leaf.keys[0], self._last_key
        if last is not None and first < last:
            raise CorruptSegmentError("the runs of a leaf do not follow those of the previous leaf")
        spaces = [space for space, _ in groupby(space for space, _ in leaf.keys)]
        fresh = spaces[1:] if last is not None and spaces[0] == last[0] else spaces
        self._spaces += len(fresh)
        self._runs += len(leaf.keys) - (first == last)
        self._last_key = leaf.keys[-1]
        self._filter.add(fresh)

    def _check_blocks(self, entry: RootEntry, leaf: LeafContents) -> None:
        row, number = entry.first_row, entry.first_block
        for handle, rows, expected in expected_blocks(leaf):
            block = self._blocks.read(handle, BlockKind.DATA)
            columns = None
            if block is not None:
                try:
                    if block.count != rows:
                        raise CorruptSegmentError(f"a data block has {block.count} rows, the directory says {rows}")
                    columns = self._data.check(block, expected)
                    self.event_count += rows
                except BAD_BYTES as error:
                    self._blocks.lose(BlockKind.DATA, error, handle.offset)
            if columns is None:
                self._lose_rows(row, row + rows, number, number + 1)
            else:
                self._add_columns(columns, row, rows, number)
            row, number = row + rows, number + 1

    def _check_orphans(self, entry: RootEntry) -> None:
        """Check the data blocks of a lost leaf. Their rows count for the indexes up to the first damaged block."""
        row, number = entry.first_row, entry.first_block
        end_row, end_number = row + entry.rows, number + entry.blocks
        known = True
        for start, end in self._blocks.gaps(entry.data_offset, entry.handle.offset):
            for block, columns in self._orphans.walk(start, end):
                known = known and block is not None and columns is not None and row + block.count <= end_row
                if known and block is not None and columns is not None and number < end_number:
                    self._add_columns(columns, row, block.count, number)
                    row, number = row + block.count, number + 1
        self._lose_rows(row, end_row, number, end_number)

    # ------------------------------------------------------------ statistics

    def _check_statistics(self, entries: list[RootEntry], row_count: int, block_count: int) -> None:
        statistics = self._opening.metadata.statistics if self._opening.metadata else None
        if statistics is None:
            return  # the metadata at the end is damaged, which was already reported
        counted: dict[str, Any] = {
            "events": row_count,
            "data_blocks": block_count,
            "min_timestamp": min((entry.min_timestamp for entry in entries), default=None),
            "max_timestamp": max((entry.max_timestamp for entry in entries), default=None),
        }
        if self._whole_directory:
            counted |= {"spaces": self._spaces, "runs": self._runs}
        offset = self._opening.handles(BlockKind.METADATA)[0].offset
        for name, number in counted.items():
            stated = getattr(statistics, name)
            if stated != number:
                self._blocks.findings.add(offset, f"the statistics say {name} {stated}, but the file has {number}")
        if set(statistics.indexes) != set(self._schema.indexes):
            self._blocks.findings.add(offset, "the statistics do not name the indexes of the schema")
        for index in self._indexes.values():
            facts = {"values": index.value_count, "events": index.event_count}
            if index.complete and statistics.indexes.get(index.name, facts) != facts:
                stated = statistics.indexes[index.name]
                self._blocks.findings.add(
                    offset, f"the statistics say {stated} of index {index.name!r}, but it has {facts}"
                )
