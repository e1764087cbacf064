"""`repair`: write every readable block of a damaged file to a valid one, and report exactly what is lost."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter

from esformat.errors import CorruptSegmentError
from esformat.format.data_block import DataBlock, Runs, keys_array
from esformat.format.dictionary import ColumnDictionary, context_of
from esformat.format.frame import Block
from esformat.format.layout import BlockHandle, BlockKind
from esformat.format.metadata import Metadata
from esformat.format.node import DecodeContext
from esformat.io.buffered import in_windows
from esformat.io.location import Options, Target, apply_options, source_of
from esformat.tools.damaged_file import DamagedFile, Region, ValidBlock, examine, plain_context
from esformat.tools.new_segment import Progress, check_output, make_segment, published
from esformat.tools.original import BlockRef
from esformat.tools.plan import plan_assembly
from esformat.tools.rows import Bound, decode_timestamps
from esformat.tools.selection import everything
from esformat.tools.verification.blocks import BAD_BYTES
from esformat.tools.verification.data import DataCheck
from esformat.tools.verification.report import Problem


@dataclass(frozen=True, slots=True)
class RepairReport:
    """What `repair` saved and lost.

    saved_events: number of events in the new file. lost_events: exact number of events that the damaged file had
    besides; None if the information about that is itself lost. lost_at_least: number of events that are certainly lost.
    problems: the damage found, by place in the file.
    """

    path: str
    saved_events: int
    lost_events: int | None
    lost_at_least: int
    problems: tuple[Problem, ...]

    @property
    def complete(self) -> bool:
        """Whether certainly no event is lost."""
        return self.lost_events == 0


@dataclass(frozen=True, slots=True)
class _Saved:
    """A readable data block, with the keys and timestamps of its first and last row.

    place: the byte where it belongs: its place according to a directory leaf, else where it was found.
    """

    handle: BlockHandle
    place: int
    rows: int
    low: Bound
    high: Bound


def repair(
    path: Target,
    out: Target,
    *,
    overwrite: bool = False,
    progress: Progress | None = None,
    storage_options: Options = None,
) -> RepairReport:
    """Write every readable event of a damaged segment to a new segment at `out`.

    Blocks are found by walking through the file; directory, indexes, filter and statistics are rebuilt. So the events
    of a file that was truncated, or that lost everything except its data blocks, are still saved. Blocks that were
    moved or duplicated are written once, in their place. A block is lost without a copy of the metadata and of its
    dictionary. progress, storage_options: as for `merge`. The damaged file is not changed.
    Raises CorruptSegmentError if the schema is lost, UnsupportedVersionError, UsageError, OSError.
    """
    path, out = apply_options(storage_options, path, out)
    check_output(out, [path])
    source = in_windows(source_of(path))
    damaged = examine(source, progress)
    saved, lost = _Salvage(damaged).choose()
    originals = [SavedBlocks(damaged, chain) for chain in _chains(saved)] or [SavedBlocks(damaged, [])]
    metadata = replace(damaged.metadata, statistics=None)
    plan, copied = plan_assembly(originals, metadata, [damaged.dictionaries] + [{} for _ in originals[1:]])
    plan = replace(plan, numbers=[plan.numbers[0]] * len(originals))
    with published(out, overwrite=overwrite) as publication:
        made = make_segment(
            publication,
            originals,
            [everything] * len(originals),
            plan,
            copied[:1] * len(originals),
            built=metadata.schema.indexes,
        )
    if progress:
        progress(source.size, source.size)
    events = made.statistics.events
    exact = lost.exact(events)
    return RepairReport(
        publication.name, events, exact, lost.known if exact is None else exact, damaged.findings.problems()
    )


class SavedBlocks:
    """Data blocks of a damaged file in ascending order, as an original."""

    def __init__(self, damaged: DamagedFile, blocks: Sequence[_Saved]) -> None:
        self.name = damaged.source.name
        self.size = sum(block.handle.length for block in blocks)
        self.metadata: Metadata = replace(damaged.metadata, statistics=None)
        self._damaged = damaged
        self._blocks = blocks
        self._contexts = _Contexts(damaged)

    def blocks(self) -> Iterator[BlockRef]:
        """The blocks, with their runs read from the blocks themselves."""
        own = self._contexts.own
        first_row = 0
        for number, saved in enumerate(self._blocks):
            block = self._damaged.read(saved.handle, BlockKind.DATA)
            data = DataBlock(block, len(self.metadata.schema.fields))
            keys = data.runs(own)
            runs = Runs(keys_array(keys.spaces), keys_array(keys.groupings), keys.rows)
            times = decode_timestamps(data, keys.rows, own.plain)
            low, high = int(times.min()), int(times.max())
            yield BlockRef(saved.handle, number, first_row, saved.rows, runs, low, high)
            first_row += saved.rows

    def read(self, refs: Sequence[BlockRef]) -> Iterator[tuple[memoryview, Block]]:
        """Read some blocks: the stored bytes, and the verified block."""
        for ref in refs:
            stored = self._damaged.source.read_at(ref.handle.offset, ref.handle.length)
            yield memoryview(stored), self._damaged.read(ref.handle, BlockKind.DATA)

    def contexts(self, dictionary: int) -> list[DecodeContext]:
        """For each column, the decode context in blocks that use a dictionary."""
        return [context or self._contexts.own for context in self._contexts.of(dictionary)]

    def dictionaries(self) -> dict[int, list[ColumnDictionary]]:
        """The dictionaries by number."""
        return self._damaged.dictionaries


class _Contexts:
    """The decode contexts of a damaged file's columns; None for a lost dictionary."""

    def __init__(self, damaged: DamagedFile) -> None:
        self.own = plain_context()
        self._count = len(damaged.metadata.schema.fields)
        self._made = {number: self._make(columns) for number, columns in damaged.dictionaries.items()}

    def _make(self, columns: Sequence[ColumnDictionary]) -> list[DecodeContext | None]:
        made: list[DecodeContext | None] = [self.own] * self._count
        for column in columns:
            made[column.column] = context_of(column, self.own.plain)
        return made

    def of(self, number: int) -> list[DecodeContext | None]:
        """The contexts of blocks that use a dictionary."""
        return self._made.get(number, [None] * self._count) if number else [self.own] * self._count


@dataclass(slots=True)
class _Losses:
    """The losses, as far as they are known. total: number of events of the file, None if unknown."""

    total: int | None
    known: int = 0

    def exact(self, saved: int) -> int | None:
        """Number of lost events; None if the total is unknown."""
        return None if self.total is None else self.total - saved


class _Salvage:
    """Decides which valid blocks contain the file's events."""

    def __init__(self, damaged: DamagedFile) -> None:
        self._damaged = damaged
        self._contexts = _Contexts(damaged)
        self._valid_blocks = [block for block in damaged.valid_blocks if block.kind == BlockKind.DATA]
        self._offsets = [block.handle.offset for block in self._valid_blocks]
        self._by_content: dict[tuple[int, int, int], list[ValidBlock]] = {}
        for block in self._valid_blocks:
            self._by_content.setdefault(_content(block.handle, block.rows), []).append(block)
        self._taken: set[int] = set()
        self._named = {_content(*block) for region in damaged.regions for block in region.blocks or ()}

    def choose(self) -> tuple[list[_Saved], _Losses]:
        """The blocks to keep, and the losses."""
        damaged = self._damaged
        statistics = damaged.metadata.statistics
        losses = _Losses(statistics.events if statistics else None)
        if damaged.whole_directory:
            losses.total = sum(region.rows or 0 for region in damaged.regions)
        saved: list[_Saved] = []
        for region in damaged.regions:
            saved += self._save_region(region, losses)
        if not damaged.whole_directory or not saved:
            saved += self._save_unnamed(saved)
            if damaged.whole_directory and saved:  # the directory is another file's
                losses.total = None
            saved.sort(key=attrgetter("place"))  # keeps the order of events with equal keys and timestamp
        if losses.total is not None and losses.total < sum(block.rows for block in saved):
            losses.total = None
        return saved, losses

    def _save_region(self, region: Region, losses: _Losses) -> Iterator[_Saved]:
        if region.blocks is None:
            a, b = bisect_left(self._offsets, region.start), bisect_left(self._offsets, region.end)
            kept = list(self._save_once(self._valid_blocks[a:b], self._named))
            losses.known += max(0, (region.rows or 0) - sum(block.rows for block in kept))
            yield from kept
            return
        for handle, rows in region.blocks:
            places = self._by_content.get(_content(handle, rows), [])
            here = [block for block in places if block.handle.offset == handle.offset]
            saved = self._save((here or places)[0], handle.offset) if places else None
            if saved is None:
                losses.known += rows
            else:
                yield saved

    def _save_unnamed(self, named: Sequence[_Saved]) -> Iterator[_Saved]:
        """Blocks that no leaf names, if the directory's root is lost or another file's."""
        covered = [(region.start, region.end) for region in self._damaged.regions if named]
        left = [block for block in self._valid_blocks if not any(a <= block.handle.offset < b for a, b in covered)]
        yield from self._save_once(left, {_content(block.handle, block.rows) for block in named})

    def _save_once(self, blocks: Sequence[ValidBlock], known: set[tuple[int, int, int]]) -> Iterator[_Saved]:
        """The blocks that decode. A block that occurs several times is returned once.

        The exception is a block whose events all have the same keys and timestamp: several equal ones can be intended.
        """
        seen = set(known)
        for block in blocks:
            content = _content(block.handle, block.rows)
            if block.handle.offset in self._taken:
                continue
            if self._damaged.mixed and block.dictionary:
                error = CorruptSegmentError("a data block may belong to another file, parts of which are in this one")
                self._damaged.findings.add_error(error, block.handle.offset, "its events are left out")
                continue
            self._taken.add(block.handle.offset)
            saved = self._save(block)
            if saved is not None and (content not in seen or saved.low == saved.high):
                seen.add(content)
                yield saved

    def _save(self, valid: ValidBlock, place: int | None = None) -> _Saved | None:
        """A block, if all of it decodes; else None. place: the block's place according to a leaf, if one names it."""
        schema = self._damaged.metadata.schema
        handle = valid.handle
        try:
            block = self._damaged.read(handle, BlockKind.DATA)
            columns = DataCheck(schema, self._contexts.of, self._contexts.own).check(block, None)
            if any(column is None for column in columns):
                raise CorruptSegmentError(f"a data block needs dictionary {block.dictionary}, which is lost")
            data = DataBlock(block, len(schema.fields))
            keys = data.runs(self._contexts.own)
        except BAD_BYTES as error:
            self._damaged.findings.add_error(error, handle.offset, "its events are lost")
            return None
        times = decode_timestamps(data, keys.rows, self._contexts.own.plain)
        spaces, groupings = keys.spaces.as_list(), keys.groupings.as_list()
        low, high = (spaces[0], groupings[0], int(times[0])), (spaces[-1], groupings[-1], int(times[-1]))
        return _Saved(handle, handle.offset if place is None else place, valid.rows, low, high)


def _content(handle: BlockHandle, rows: int) -> tuple[int, int, int]:
    return handle.check, handle.length, rows


def _chains(blocks: Sequence[_Saved]) -> list[list[_Saved]]:
    """Distribute blocks into ascending sequences: a single one, unless some blocks are out of order."""
    chains: list[list[_Saved]] = []
    for block in blocks:
        chain = next((chain for chain in chains if chain[-1].high <= block.low), None)
        if chain is None:
            chains.append([block])
        else:
            chain.append(block)
    return chains
