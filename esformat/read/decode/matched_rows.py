"""Rows that match a query: found group by group, with their columns decoded for several groups together.

If few rows match, few blocks of each group contain any, and the fixed cost of a group in Python would be most of the
work.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from esformat.format.data_block import I64
from esformat.read.decode.block_group import BlockGroup

GATHERED_BLOCKS = 24  # blocks whose other columns are decoded together
GATHERED_ROWS = 1 << 15

Matches = Callable[[pa.RecordBatch], pa.BooleanArray]
"""Returns for each row of a batch whether it is wanted, without nulls. Called from several threads."""


RequiredTexts = Mapping[str, Sequence[Sequence[bytes]]]
"""For columns of text or binary, lists of texts: a value contains at least one text of each list."""


class Test(NamedTuple):
    """The rows that a caller wants. matches: decides by some `columns`; None wants every row that may satisfy
    `required_texts`.

    required_texts: texts that the values of wanted rows contain. suffices: every row that is known to satisfy
        `required_texts` is wanted.
    """

    columns: tuple[str, ...]
    matches: Matches | None
    required_texts: RequiredTexts
    suffices: bool = False


def filtered(batches: Iterable[pa.RecordBatch], columns: Sequence[str], test: Test) -> Iterator[pa.RecordBatch]:
    """The rows of batches that a test wants, with some columns."""
    assert test.matches is not None, "rows are chosen by their columns"
    for batch in batches:
        found = batch.select(columns).filter(test.matches(batch.select(test.columns)))
        if len(found):
            yield found


@dataclass(frozen=True, slots=True)
class MatchedRows:
    """Rows at `places` (None: all) of some blocks, with the columns already decoded for a test, in row order."""

    blocks: BlockGroup
    places: I64 | None
    looked_at: pa.RecordBatch | None = None

    def __len__(self) -> int:
        return self.blocks.row_count if self.places is None else len(self.places)

    def fills(self, most_rows: int) -> bool:
        """Whether the rows are enough to decode their other columns now; at most `most_rows` are decoded together."""
        return 2 * len(self.blocks) > GATHERED_BLOCKS or 2 * len(self) > most_rows

    def complete(self, schema: pa.Schema, *, reverse: bool) -> pa.RecordBatch:
        """The rows with the columns of `schema`."""
        tested = () if self.looked_at is None else self.looked_at.schema.names
        batch = self.blocks.to_batch([name for name in schema.names if name not in tested], self.places)
        if self.looked_at is not None:
            arrays = [(self.looked_at if name in tested else batch).column(name) for name in schema.names]
            batch = pa.RecordBatch.from_arrays(arrays, schema=schema)
        return batch.take(pa.array(np.arange(len(batch) - 1, -1, -1))) if reverse else batch


def completed(
    found: Iterable[MatchedRows | pa.RecordBatch], schema: pa.Schema, most_rows: Callable[[], int], *, reverse: bool
) -> Iterator[pa.RecordBatch]:
    """Yield batches in order. Matched rows between them are completed, as many as possible at a time.

    most_rows: returns the most rows to complete together, as currently estimated.
    """
    waiting: list[MatchedRows] = []
    blocks = rows = 0
    for one in found:
        if isinstance(one, MatchedRows):
            one.blocks.detach()
            waiting.append(one)
            blocks, rows = blocks + len(one.blocks), rows + len(one)
            if blocks < GATHERED_BLOCKS and rows < most_rows():
                continue
        if waiting:
            yield _joined(waiting, reverse=reverse).complete(schema, reverse=reverse)
            waiting, blocks, rows = [], 0, 0
        if not isinstance(one, MatchedRows):
            yield one
    if waiting:
        yield _joined(waiting, reverse=reverse).complete(schema, reverse=reverse)


def _joined(parts: Sequence[MatchedRows], *, reverse: bool) -> MatchedRows:
    if len(parts) == 1:
        return parts[0]
    ascending = parts[::-1] if reverse else parts
    blocks, places = BlockGroup.joined([(part.blocks, part.places) for part in ascending])
    looked_at = [part.looked_at for part in ascending if part.looked_at is not None]
    return MatchedRows(blocks, places, pa.concat_batches(looked_at) if len(looked_at) == len(parts) else None)
