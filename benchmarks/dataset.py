"""The events of a run, the questions about them, and the correct answers.

The answers come from a plain sort of the generated table, independent of every contender.
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
"""The index value to look up within a space: 9 % of the events have it."""

FILE_INDEX = ("type", "refund")
"""The index value to look up in the whole file: 1 % of the events have it."""

LATEST = 10


def fingerprint() -> str:
    """A digest of the seed and the generator, which determine the events apart from their number."""
    return fingerprint_of(str(SEED), Path(inspect.getfile(generate)))


def load(events: int, cache: Path) -> pa.Table:
    """Load the unsorted events into memory, generating them unless they are cached."""
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
    """Spaces to ask about: first the warm-up, then those that are measured."""

    warmup: Sequence[str]
    counted: Sequence[str]


class Dataset:
    """The events in order of arrival, and the correct answers to questions about them."""

    def __init__(self, table: pa.Table) -> None:
        self.table = table

    def __len__(self) -> int:
        return len(self.table)

    @cached_property
    def ordered(self) -> pa.Table:
        """All events, sorted by space, time and arrival."""
        return in_order(self.table).combine_chunks()

    @cached_property
    def _bounds(self) -> tuple[list[str], npt.NDArray[np.int64]]:
        """The spaces in order, and the first row of each, followed by the number of rows."""
        spaces = self.ordered["space"].combine_chunks().dictionary_encode()
        counts = np.bincount(spaces.indices.to_numpy())
        return spaces.dictionary.to_pylist(), np.concatenate([[0], np.cumsum(counts)])

    @cached_property
    def _positions(self) -> dict[str, int]:
        return {space: position for position, space in enumerate(self._bounds[0])}

    @cached_property
    def last(self) -> Row:
        """The last event of the file."""
        return self.history(self.ordered["space"][-1].as_py())[-1]

    @cached_property
    def digest(self) -> Digest:
        """The digest that a scan of every event must produce."""
        timestamps = self.table["timestamp"].cast(pa.int64()).to_numpy()
        data_bytes = pc.sum(pc.binary_length(self.table["data"])).as_py()
        return Digest(int(np.bitwise_xor.reduce(timestamps)), data_bytes)

    def history(self, space: str) -> list[Row]:
        """The correct answer to R2."""
        starts, position = self._bounds[1], self._positions[space]
        table = self.ordered.slice(starts[position], starts[position + 1] - starts[position]).select(ROW_COLUMNS)
        table = table.set_column(0, "timestamp", table["timestamp"].cast(pa.int64()))
        return list(zip(*(column.to_pylist() for column in table.columns), strict=True))

    def latest(self, space: str) -> list[Row]:
        """The correct answer to R4."""
        return self.history(space)[: -LATEST - 1 : -1]

    def indexed(self, space: str) -> list[Row]:
        """The correct answer to R3."""
        index, value = POINT_INDEX
        place = ROW_COLUMNS.index(index)
        return [row for row in reversed(self.history(space)) if row[place] == value]

    @cached_property
    def matching(self) -> pa.Table:
        """The correct answer to R5, in file order."""
        index, value = FILE_INDEX
        return self.ordered.filter(pc.equal(self.ordered[index], value)).cast(SCHEMA)

    def uniform(self, warmup: int, counted: int) -> Questions:
        """Draw spaces uniformly: mostly small ones."""
        spaces = self._bounds[0]
        drawn = np.random.default_rng(QUERY_SEED).integers(0, len(spaces), warmup + counted)
        return _questions([spaces[position] for position in drawn], warmup)

    def weighted(self, warmup: int, counted: int) -> Questions:
        """Draw events uniformly, and return their spaces: mostly large ones."""
        drawn = np.random.default_rng(QUERY_SEED + 1).integers(0, len(self), warmup + counted)
        return _questions(self.ordered["space"].take(pa.array(drawn)).to_pylist(), warmup)


def _questions(spaces: list[str], warmup: int) -> Questions:
    return Questions(spaces[:warmup], spaces[warmup:])
