"""The events of a run, the questions asked about them and the right answers.

The answers come from a plain sort of the generated table, with nothing of any contender in them.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.contenders.protocol import ROW_COLUMNS, SCHEMA, Digest, Row, fingerprint_of, in_order
from benchmarks.generate import generate

SEED = 7
QUERY_SEED = 11

POINT_INDEX = ("type", "purchase")
"""The index value asked for within a space: 9 % of the events."""

FILE_INDEX = ("type", "refund")
"""The index value asked for over the whole file: 1 % of the events."""

LATEST = 10


def fingerprint() -> str:
    """What decides the events, apart from their number: seed and generator."""
    return fingerprint_of(str(SEED), Path(inspect.getfile(generate)))


def load(events: int, cache: Path) -> pa.Table:
    """Generate the unsorted events, or take them from the cache, into memory."""
    path = cache / f"events-{events}-{fingerprint()}.arrow"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        table = generate(events, SEED)
        partial = path.with_suffix(".partial")
        with pa.OSFile(str(partial), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table)
        partial.rename(path)
    with pa.OSFile(str(path), "rb") as source:
        return pa.ipc.open_file(source).read_all()


@dataclass(frozen=True)
class Questions:
    """Spaces to ask about: those of the warm-up, then those that count."""

    warmup: Sequence[str]
    counted: Sequence[str]


class Dataset:
    """The events as they arrive, and as they must come back."""

    def __init__(self, table: pa.Table) -> None:
        self.table = table

    def __len__(self) -> int:
        return len(self.table)

    @cached_property
    def ordered(self) -> pa.Table:
        """Every event by space, time and arrival."""
        return in_order(self.table).combine_chunks()

    @cached_property
    def _bounds(self) -> tuple[list[str], npt.NDArray[np.int64]]:
        """The spaces in order, and the row where each begins, with the number of rows at the end."""
        spaces = self.ordered["space"].combine_chunks().dictionary_encode()
        counts = np.bincount(spaces.indices.to_numpy())
        return spaces.dictionary.to_pylist(), np.concatenate([[0], np.cumsum(counts)])

    @cached_property
    def _positions(self) -> dict[str, int]:
        return {space: position for position, space in enumerate(self._bounds[0])}

    @cached_property
    def last(self) -> Row:
        """The event that ends the file."""
        return self.history(self.ordered["space"][-1].as_py())[-1]

    @cached_property
    def digest(self) -> Digest:
        """What touching every event must add up to."""
        timestamps = self.table["timestamp"].cast(pa.int64()).to_numpy()
        data_bytes = pc.sum(pc.binary_length(self.table["data"])).as_py()
        return Digest(int(np.bitwise_xor.reduce(timestamps)), data_bytes)

    def history(self, space: str) -> list[Row]:
        """The right answer to R2."""
        starts, position = self._bounds[1], self._positions[space]
        table = self.ordered.slice(starts[position], starts[position + 1] - starts[position]).select(ROW_COLUMNS)
        table = table.set_column(0, "timestamp", table["timestamp"].cast(pa.int64()))
        return list(zip(*(column.to_pylist() for column in table.columns), strict=True))

    def latest(self, space: str) -> list[Row]:
        """The right answer to R4."""
        return self.history(space)[: -LATEST - 1 : -1]

    def indexed(self, space: str) -> list[Row]:
        """The right answer to R3."""
        index, value = POINT_INDEX
        place = ROW_COLUMNS.index(index)
        return [row for row in reversed(self.history(space)) if row[place] == value]

    @cached_property
    def matching(self) -> pa.Table:
        """The right answer to R5, in file order."""
        index, value = FILE_INDEX
        return self.ordered.filter(pc.equal(self.ordered[index], value)).cast(SCHEMA)

    def uniform(self, warmup: int, counted: int) -> Questions:
        """Spaces drawn uniformly: mostly small ones."""
        spaces = self._bounds[0]
        drawn = np.random.default_rng(QUERY_SEED).integers(0, len(spaces), warmup + counted)
        return _questions([spaces[position] for position in drawn], warmup)

    def weighted(self, warmup: int, counted: int) -> Questions:
        """The spaces of events drawn uniformly: mostly large ones."""
        drawn = np.random.default_rng(QUERY_SEED + 1).integers(0, len(self), warmup + counted)
        return _questions(self.ordered["space"].take(pa.array(drawn)).to_pylist(), warmup)


def _questions(spaces: list[str], warmup: int) -> Questions:
    return Questions(spaces[:warmup], spaces[warmup:])
