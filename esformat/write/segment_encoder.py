"""Write sorted rows to a segment: cut into blocks, encoded by several threads, laid out, indexed.

The rows are added in steps, each in memory. Rows that do not fill a task at the end of a step are returned to the
caller, who prepends them to the next step. So the blocks do not depend on how the rows were divided into steps.
"""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import Executor
from dataclasses import replace
from functools import partial
from pathlib import Path
from threading import local
from typing import Any

import numpy as np

from esformat.format.codec import Codec
from esformat.format.dictionary import ColumnDictionary
from esformat.format.metadata import Metadata, Statistics
from esformat.format.order import Ranked
from esformat.write.block_encoder import (
    TASK_BYTES,
    BlockEncoder,
    BlockFormat,
    EncodedBlock,
    SortedRows,
    choose_raw,
    choose_raws,
    cut_blocks,
    cut_tasks,
)
from esformat.write.builder import SegmentBuilder
from esformat.write.index_sorter import IndexSorter
from esformat.write.memory import Budget
from esformat.write.rows import OrderedRows
from esformat.write.space_hashes import SpaceHashes
from esformat.write.tasks import InFlight


class SegmentEncoder:
    """Writes one segment to a sink: `add` for each step of rows, then `finish` with the last one."""

    def __init__(
        self, sink: Any, metadata: Metadata, codec: Codec, dictionaries: dict[int, ColumnDictionary],
        *, budget: Budget, pool: Executor, threads: int, temp_dir: Path,
    ) -> None:  # fmt: skip
        """`temp_dir`: for rows of indexes that do not fit into memory."""
        self._form = BlockFormat(metadata.schema, codec, metadata.level, dictionaries, {}, metadata.frame_bytes)
        self._hashes = SpaceHashes(temp_dir)
        self._builder = SegmentBuilder(sink, metadata, self._form, hashes=self._hashes)
        self._builder.start()
        self._flight: InFlight[list[EncodedBlock]] = InFlight(pool, 2 * threads + 1, budget.flight)
        self._mine = local()
        self._rows = 0
        self.spans: list[tuple[int, int, int]] = []  # offset, length and rows of each data block
        places = [place for place, field in enumerate(metadata.schema.fields) if field.indexed]
        share = budget.postings // max(1, len(places))
        self._indexes = {place: IndexSorter(temp_dir, share) for place in places}
        self.carry: SortedRows | None = None
        """The rows that were added but not written: they come first in the next step."""

    @property
    def rows(self) -> int:
        """Number of rows written, without the carry."""
        return self._rows

    def add(self, ordered: OrderedRows) -> None:
        """Write the next rows, at least one. They begin with the carry, and end with the new carry, which is not
        written.

        Raises OSError.
        """
        written = self._write(ordered, last=False)
        self._collect(ordered, written)
        self.carry = ordered.rows(written, ordered.count, plain=True)

    def finish(self, ordered: OrderedRows) -> Statistics:
        """Write the last rows, which begin with the carry, and everything that follows the events."""
        alone = self._rows == 0
        self._write(ordered, last=True)
        self._add_blocks(self._flight.drain())
        if alone:  # all rows are in memory
            for place in self._indexes:
                self._builder.add_index(place, ordered.sorted_ranks(place))
        else:
            self._collect(ordered, ordered.count)
            for place, index in self._indexes.items():
                self._builder.add_index_stream(place, index.chunks())
        statistics = self._builder.finish()
        self.close()
        return statistics

    @property
    def dictionaries(self) -> dict[int, ColumnDictionary]:
        """The dictionaries of the blocks' columns."""
        return self._form.dictionaries

    def flush(self) -> None:
        """Write everything but the carry to the sink."""
        self._add_blocks(self._flight.drain())

    def close(self) -> None:
        """Stop, and free temporary space."""
        self._flight.cancel()
        self._hashes.close()
        for index in self._indexes.values():
            index.close()

    # ------------------------------------------------------------ blocks

    def _write(self, ordered: OrderedRows, *, last: bool) -> int:
        """Submit the complete tasks for encoding. Returns the number of rows in them."""
        for place, dictionary in self._form.dictionaries.items():
            if dictionary.values is not None:
                ordered.store_as_codes(place, dictionary.values)
        sizes = ordered.row_bytes()
        edges = cut_blocks(sizes, ordered.count)
        tasks = cut_tasks(edges, sizes)
        if not last:
            tasks.pop()  # more rows may belong to it
        if tasks and not self._rows:
            first = ordered.rows(0, edges[1])
            raw = choose_raw(first, self._form.schema, self._form.codec, self._form.level)
            self._form = replace(self._form, raw=raw, raws=choose_raws(first, self._form))
        ends = None if sizes is None else np.append(0, np.cumsum(sizes))
        for a, b in tasks:
            size = TASK_BYTES if ends is None else int(ends[edges[b]] - ends[edges[a]])
            self._add_blocks(self._flight.submit(partial(self._encode, ordered, edges[a : b + 1]), size))
        return edges[tasks[-1][1]] if tasks else 0

    def _encode(self, ordered: OrderedRows, bounds: list[int]) -> list[EncodedBlock]:
        """Encode one task, in a thread."""
        if not hasattr(self._mine, "encoder"):
            self._mine.encoder = BlockEncoder(self._form)
        encoder: BlockEncoder = self._mine.encoder
        return encoder.encode(ordered.rows(bounds[0], bounds[-1]), [edge - bounds[0] for edge in bounds])

    def _add_blocks(self, tasks: Iterable[list[EncodedBlock]]) -> None:
        for blocks in tasks:
            for block in blocks:
                self.spans.append((self._builder.offset, len(block.stored), block.span.rows))
                self._builder.add_block(block)

    def _collect(self, ordered: OrderedRows, count: int) -> None:
        """Add the first `count` rows to the indexes."""
        for place, index in self._indexes.items():
            ranked = ordered.sorted_ranks(place)
            index.add(Ranked(ranked.ranks[:count], ranked.values), self._rows)
        self._rows += count
