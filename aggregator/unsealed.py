"""Events that are in the log but in no segment yet, in memory, as the batches in which they came.

Appending costs nothing per event. Whoever asks for a space first builds a lookup over the batches that have none.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from threading import Lock

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from aggregator.model import RECORD_INDEX, SchemaInfo

I64 = npt.NDArray[np.int64]

SMALL_BYTES = 16 << 10
"""Batches up to this size are put together, MERGED at a time, so that tiny appends do not cost later."""
MERGED = 64
FEW_ROWS = 1024
"""So few rows are searched directly, without a lookup."""
LOOKUP_PIECES = 16
"""So many batches share a lookup at first."""
MAX_LOOKUP_ROWS = 1 << 17
"""Lookups grow together up to so many rows."""


@dataclass(frozen=True, slots=True, eq=False)
class Piece:
    """A batch in a partition: its events have the record indexes [first_index, first_index + rows), or `indexes`."""

    first_index: int
    schema: SchemaInfo
    batch: pa.RecordBatch
    min_timestamp: int
    max_timestamp: int
    size_bytes: int
    arrived_us: int
    joined: int = 0  # how often it was put together
    indexes: I64 | None = None

    @property
    def rows(self) -> int:
        """How many events."""
        return int(self.batch.num_rows)

    @property
    def end_index(self) -> int:
        """The record index after the last event."""
        return self.first_index + self.rows if self.indexes is None else int(self.indexes[-1]) + 1

    def at(self, first_index: int) -> Piece:
        """The same events with other record indexes."""
        return replace(self, first_index=first_index)

    def from_index(self, index: int) -> Piece:
        """The events from a record index on; there is at least one."""
        indexes = self.record_indexes()
        first = int(np.searchsorted(indexes, index))
        rest = None if self.indexes is None else indexes[first:]
        size = self.size_bytes * (self.rows - first) // self.rows
        return replace(
            self, first_index=int(indexes[first]), batch=self.batch.slice(first), size_bytes=size, indexes=rest
        )

    def record_indexes(self) -> I64:
        """The record index of each event."""
        if self.indexes is not None:
            return self.indexes
        return np.arange(self.first_index, self.first_index + self.rows, dtype=np.int64)


def make_piece(first_index: int, schema: SchemaInfo, batch: pa.RecordBatch, size_bytes: int, now_us: int) -> Piece:
    """A piece of a batch that is not empty."""
    times = np.asarray(batch.column("timestamp").cast(pa.int64()).to_numpy())
    return Piece(first_index, schema, batch, int(times.min()), int(times.max()), size_bytes, now_us)


def _join(pieces: Sequence[Piece]) -> Piece:
    """Adjacent pieces of one schema as one."""
    follow = all(a.end_index == b.first_index for a, b in pairwise(pieces))
    whole = follow and all(piece.indexes is None for piece in pieces)
    return Piece(
        pieces[0].first_index, pieces[0].schema, pa.concat_batches([piece.batch for piece in pieces]),
        min(piece.min_timestamp for piece in pieces), max(piece.max_timestamp for piece in pieces),
        sum(piece.size_bytes for piece in pieces), pieces[0].arrived_us, pieces[0].joined + 1,
        None if whole else np.concatenate([piece.record_indexes() for piece in pieces]),
    )  # fmt: skip


class Lookup:
    """Rows of some pieces of one schema by space."""

    def __init__(self, pieces: Sequence[Piece]) -> None:
        self.pieces = tuple(pieces)
        self.rows = sum(piece.rows for piece in pieces)
        self.min_timestamp = min(piece.min_timestamp for piece in pieces)
        self.max_timestamp = max(piece.max_timestamp for piece in pieces)
        self._lock = Lock()
        self._built: tuple[pa.Array, I64, I64] | None = None

    def _build(self) -> tuple[pa.Array, I64, I64]:
        with self._lock:
            if self._built is None:
                spaces = pa.concat_arrays([piece.batch.column("space") for piece in self.pieces]).dictionary_encode()
                codes = np.asarray(spaces.indices.to_numpy())
                order = np.argsort(codes, kind="stable").astype(np.int64, copy=False)
                starts = np.concatenate([[0], np.cumsum(np.bincount(codes, minlength=len(spaces.dictionary)))])
                self._built = (spaces.dictionary, order, starts)
            return self._built

    def find(self, space: pa.Scalar) -> I64:
        """Rows of a space, ascending, counted over all pieces."""
        if len(self.pieces) == 1 and self._built is None and self.rows <= FEW_ROWS:
            found = np.asarray(pc.equal(self.pieces[0].batch.column("space"), space).to_numpy(zero_copy_only=False))
            return found.nonzero()[0]
        dictionary, order, starts = self._build()
        code = pc.index(dictionary, space).as_py()
        return order[starts[code] : starts[code + 1]] if code >= 0 else order[:0]

    def take(self, rows: I64 | None, columns: Sequence[str]) -> pa.Table:
        """Those rows, all where `rows` is None: the columns that the pieces have, and the record index."""
        batches, indexes = [], []
        first = 0
        for piece in self.pieces:
            batch, numbers = piece.batch, piece.record_indexes()
            present = [name for name in columns if name in batch.schema.names]
            batch = batch.select(present)
            if rows is not None:
                a, b = np.searchsorted(rows, (first, first + piece.rows)).tolist()
                first += piece.rows
                if a == b:
                    continue
                mine = rows[a:b] - (first - piece.rows)
                batch, numbers = batch.take(pa.array(mine)), numbers[mine]
            batches.append(batch)
            indexes.append(numbers)
        if not batches:
            batch = self.pieces[0].batch
            batches.append(batch.select([name for name in columns if name in batch.schema.names]).slice(0, 0))
            indexes.append(np.zeros(0, np.int64))
        table = pa.Table.from_batches(batches)
        return table.append_column(
            pa.field(RECORD_INDEX, pa.int64(), nullable=False), pa.array(np.concatenate(indexes))
        )


@dataclass(slots=True)
class Unsealed:
    """The unsealed events of a partition, in order. Changed under the catalog's view lock only."""

    pieces: list[Piece]
    rows: int = 0
    size_bytes: int = 0
    lookups: tuple[Lookup, ...] = ()

    @classmethod
    def empty(cls) -> Unsealed:
        """None yet."""
        return cls([])

    def add(self, piece: Piece) -> None:
        """Take in the next batch."""
        self.pieces.append(piece)
        self.rows += piece.rows
        self.size_bytes += piece.size_bytes
        while self._put_together():
            pass

    def _put_together(self) -> bool:
        last = self.pieces[-1]
        if last.size_bytes > SMALL_BYTES or len(self.pieces) < MERGED:
            return False
        few = self.pieces[-MERGED:]
        if any(p.joined != last.joined or p.schema is not last.schema or p.size_bytes > SMALL_BYTES for p in few):
            return False
        self.pieces[-MERGED:] = [_join(few)]
        return True

    def after(self, index: int) -> Unsealed:
        """The events from a record index on. Batches are sealed whole, and so are those that were put together."""
        left = Unsealed.empty()
        for piece in self.pieces:
            if piece.first_index >= index:
                left.add(piece)
            elif piece.end_index > index:
                left.add(piece.from_index(index))
        return left

    @property
    def end_index(self) -> int:
        """The record index after the last event; there must be one."""
        return self.pieces[-1].end_index

    @property
    def oldest_us(self) -> int | None:
        """When the oldest event arrived; None without events."""
        return self.pieces[0].arrived_us if self.pieces else None


def look_up(pieces: Sequence[Piece], known: Sequence[Lookup]) -> tuple[Lookup, ...]:
    """Lookups that cover all pieces in order: those that are known and still fit, and new ones for the rest.

    Known ones of equal size are put together as they grow in number, so that there are few however many batches came.
    """
    kept: list[Lookup] = []
    at = 0
    for lookup in known:
        if at + len(lookup.pieces) > len(pieces) or lookup.pieces[0] is not pieces[at]:
            break
        if lookup.pieces[-1] is not pieces[at + len(lookup.pieces) - 1]:
            break
        kept.append(lookup)
        at += len(lookup.pieces)
    for group in _groups(pieces[at:]):
        kept.append(Lookup(group))
        while len(kept) > 1 and _even(kept[-2], kept[-1]):
            last = kept.pop()
            kept[-1] = Lookup((*kept[-1].pieces, *last.pieces))
    return tuple(kept)


def _even(left: Lookup, right: Lookup) -> bool:
    same = left.pieces[0].schema is right.pieces[0].schema
    return same and left.rows + right.rows <= MAX_LOOKUP_ROWS and left.rows <= 2 * right.rows


def _groups(pieces: Iterable[Piece]) -> Iterable[list[Piece]]:
    """Pieces in groups of LOOKUP_PIECES, each of one schema."""
    group: list[Piece] = []
    for piece in pieces:
        if group and (piece.schema is not group[0].schema or len(group) == LOOKUP_PIECES):
            yield group
            group = []
        group.append(piece)
    if group:
        yield group
