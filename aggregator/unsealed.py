"""Events that are in the log but in no segment yet, in memory, as the batches in which they came.

Appending costs nothing per event. Whoever asks for a space first makes signatures of the events that have none yet.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, pairwise
from threading import Lock

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from aggregator.model import RECORD_INDEX, SchemaInfo
from aggregator.signatures import U32, signature_of, signatures_of

I64 = npt.NDArray[np.int64]

SMALL_BYTES = 32 << 10
"""Batches up to this size are put together, MERGED at a time, so that tiny appends do not cost later."""
MERGED = 64
FEW_ROWS = 4096
"""Up to so many rows that are taken are one batch."""
FEW_RUNS = 256
"""Up to so many stretches of rows are taken as slices: one costs less than a call of Arrow's that works in parallel."""
MAX_BLOCK_ROWS = 1 << 17
"""Blocks of signatures grow together up to so many rows."""


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
    times = times_of(batch)
    return Piece(first_index, schema, batch, int(times.min()), int(times.max()), size_bytes, now_us)


def times_of(batch: pa.RecordBatch) -> I64:
    """The timestamps of a batch's events."""
    return np.asarray(batch.column("timestamp").view(pa.int64()).to_numpy())


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


class _Block:
    """Signatures and timestamps of some pieces of one schema, made when they are first needed."""

    def __init__(self, pieces: tuple[Piece, ...], parts: tuple[_Block, ...] = ()) -> None:
        """parts: blocks of the same pieces, whose columns are put together."""
        self.pieces = pieces
        self.rows = sum(piece.rows for piece in pieces)
        self._parts = parts
        self._lock = Lock()
        self._signatures: U32 | None = None
        self._times: I64 | None = None

    def signatures(self) -> U32:
        """The signature of each event's space."""
        with self._lock:
            if self._signatures is None:
                if self._parts:
                    self._signatures = np.concatenate([part.signatures() for part in self._parts])
                else:
                    spaces = [piece.batch.column("space") for piece in self.pieces]
                    self._signatures = signatures_of(pa.concat_arrays(spaces) if len(spaces) > 1 else spaces[0])
                self._let_go()
            return self._signatures

    def times(self) -> I64:
        """The timestamp of each event."""
        with self._lock:
            if self._times is None:
                if self._parts:
                    self._times = np.concatenate([part.times() for part in self._parts])
                else:
                    self._times = np.concatenate([times_of(piece.batch) for piece in self.pieces])
                self._let_go()
            return self._times

    def _let_go(self) -> None:
        if self._signatures is not None and self._times is not None:
            self._parts = ()

    def follows(self, other: _Block) -> bool:
        """Whether the two are put together: of one schema, and the other not much larger."""
        same = self.pieces[0].schema is other.pieces[0].schema
        return same and other.rows <= 2 * self.rows and other.rows + self.rows <= MAX_BLOCK_ROWS


class Lookup:
    """Rows of some pieces of one schema, numbered from 0 over all of them, by space and by time."""

    def __init__(self, blocks: Sequence[_Block]) -> None:
        self.blocks = tuple(blocks)
        self.pieces = tuple(piece for block in blocks for piece in block.pieces)
        self.min_timestamp = min(piece.min_timestamp for piece in self.pieces)
        self.max_timestamp = max(piece.max_timestamp for piece in self.pieces)
        self._edges = np.cumsum([0, *(piece.rows for piece in self.pieces)])
        self.rows = int(self._edges[-1])

    def find(self, space: bytes) -> I64:
        """Rows, ascending, that have the signature of a space: all that have the space, hardly ever others."""
        wanted = signature_of(space)
        found = []
        first = 0
        for block in self.blocks:
            found.append((block.signatures() == wanted).nonzero()[0] + first)
            first += block.rows
        return np.concatenate(found)

    def within(self, first_index: int | None, end_index: int | None) -> I64:
        """Rows, ascending, of the pieces that have record indexes between those: all such rows, and others."""
        low, high = 0, self.rows
        if first_index is not None:
            ends = np.array([piece.end_index for piece in self.pieces])
            low = int(self._edges[np.searchsorted(ends, first_index, side="right")])
        if end_index is not None:
            firsts = np.array([piece.first_index for piece in self.pieces])
            high = int(self._edges[np.searchsorted(firsts, end_index)])
        return np.arange(low, high)

    def by_time(self, rows: I64 | None, start: int | None, end: int | None) -> I64:
        """Those rows, all where `rows` is None, with timestamps in [start, end), oldest first; ties as they came."""
        times = np.concatenate([block.times() for block in self.blocks])
        if rows is None:
            rows = np.arange(self.rows)
        else:
            times = times[rows]
        if start is not None or end is not None:
            mask = np.ones(len(times), np.bool_)
            if start is not None:
                mask &= times >= start
            if end is not None:
                mask &= times < end
            rows, times = rows[mask], times[mask]
        if bool((times[1:] >= times[:-1]).all()):
            return rows
        return rows[np.argsort(times, kind="stable")]

    def take(self, rows: I64 | None, columns: Sequence[str]) -> pa.Table:
        """Those rows, ascending, all where `rows` is None: the columns that the pieces have, and the record index."""
        names = [name for name in columns if name in self.pieces[0].batch.schema.names]
        if rows is None:
            rows = np.arange(self.rows)
        places = np.searchsorted(self._edges, rows, side="right") - 1
        mine = rows - self._edges[places]
        if len(rows):
            batches, indexes = self._taken(places, mine, names)
        else:
            batches, indexes = [self.pieces[0].batch.slice(0, 0).select(names)], [rows]
        if len(batches) > 1 and len(rows) <= FEW_ROWS:  # what works on a table works on each of its chunks
            batches = [pa.concat_batches(batches)]
        return pa.Table.from_batches(batches).append_column(
            pa.field(RECORD_INDEX, pa.int64(), nullable=False), pa.array(np.concatenate(indexes))
        )

    def _taken(self, places: I64, rows: I64, names: list[str]) -> tuple[list[pa.RecordBatch], list[I64]]:
        """Rows of the pieces that stand at `places`, as batches, and their record indexes."""
        fresh = np.append(True, places[1:] != places[:-1])  # a piece begins
        apart = fresh | np.append(False, rows[1:] != rows[:-1] + 1)  # rows that do not adjoin begin
        runs = apart.nonzero()[0] if int(apart.sum()) <= FEW_RUNS else fresh.nonzero()[0]
        batches, indexes = [], []
        for first, last in pairwise([*runs.tolist(), len(rows)]):
            piece, some = self.pieces[places[first]], rows[first:last]
            batch = piece.batch.select(names)
            whole = int(some[-1]) - int(some[0]) + 1 == len(some)
            batches.append(batch.slice(int(some[0]), len(some)) if whole else batch.take(pa.array(some)))
            indexes.append(piece.first_index + some if piece.indexes is None else piece.indexes[some])
        return batches, indexes


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
    """Lookups that cover all pieces in order, one for each stretch of one schema: what is known of them is kept."""
    kept: list[_Block] = []
    at = 0
    for block in (block for lookup in known for block in lookup.blocks):
        if at + len(block.pieces) > len(pieces) or block.pieces[0] is not pieces[at]:
            break
        if block.pieces[-1] is not pieces[at + len(block.pieces) - 1]:
            break
        kept.append(block)
        at += len(block.pieces)
    if known and at == len(pieces) == sum(len(lookup.pieces) for lookup in known):
        return tuple(known)
    for group in _groups(pieces[at:]):
        kept.append(_Block(tuple(group)))
        while len(kept) > 1 and kept[-1].follows(kept[-2]):
            last = kept.pop()
            kept[-1] = _Block((*kept[-1].pieces, *last.pieces), (kept[-1], last))
    return tuple(Lookup(list(blocks)) for _, blocks in groupby(kept, key=lambda block: id(block.pieces[0].schema)))


def _groups(pieces: Iterable[Piece]) -> Iterable[list[Piece]]:
    """Pieces in groups of up to MAX_BLOCK_ROWS rows, each of one schema."""
    group: list[Piece] = []
    rows = 0
    for piece in pieces:
        if group and (piece.schema is not group[0].schema or rows + piece.rows > MAX_BLOCK_ROWS):
            yield group
            group, rows = [], 0
        group.append(piece)
        rows += piece.rows
    if group:
        yield group
