"""Check blocks that no handle refers to: find them by walking from frame to frame, and check each on its own."""

from __future__ import annotations

from collections.abc import Iterator

from esformat.format.frame import Block
from esformat.format.layout import BlockKind
from esformat.tools.verification.blocks import BAD_BYTES, KINDS, Blocks, Found
from esformat.tools.verification.data import DataCheck
from esformat.tools.verification.opening import Opening


class Orphans:
    """Walks through byte ranges and checks the blocks in them."""

    def __init__(self, blocks: Blocks, opening: Opening) -> None:
        self._blocks = blocks
        self._opening = opening
        self.event_count = 0

    def walk(self, start: int, end: int) -> Iterator[tuple[Block | None, list[object] | None]]:
        """Check bytes [start, end). Yields each block, None if it is damaged, and the columns of valid data blocks."""
        for found in self._blocks.walk(start, end):
            if isinstance(found, tuple):
                self._blocks.findings.add(found[0], f"{found[1] - found[0]} bytes do not form a block")
                yield None, None
                continue
            block = self._blocks.read_found(found)
            if block is None:
                yield None, None
                continue
            yield block, self._examine(block, found)

    def _examine(self, block: Block, found: Found) -> list[object] | None:
        if found.kind not in self._blocks.orphaned_kinds:
            name = BlockKind(found.kind).name if found.kind in KINDS else f"unknown ({found.kind})"
            self._blocks.findings.add(found.offset, f"no handle points to this block of kind {name}")
        if found.kind == BlockKind.METADATA:
            self._opening.adopt(block)
        elif found.kind == BlockKind.DICTIONARY and self._opening.entries is None and self._opening.schema is not None:
            if 1 not in self._opening.contexts:  # without a footer, the first one found is number 1
                self._opening.adopt_dictionary(1, block)
        elif found.kind == BlockKind.DATA:
            return self._examine_data(block)
        return None

    def _examine_data(self, block: Block) -> list[object] | None:
        schema = self._opening.schema
        if schema is None:
            return None
        opening, count = self._opening, len(schema.fields)
        if opening.entries is None:
            opening.contexts.lose(block.dictionary)
        check = DataCheck(schema, lambda number: opening.contexts.of(number, count), opening.own)
        try:
            columns: list[object] = list(check.check(block, None))
        except BAD_BYTES as error:
            self._blocks.lose(BlockKind.DATA, error, block.offset)
            return None
        self.event_count += block.count
        return columns
