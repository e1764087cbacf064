"""Planning of a read: rows of segments are pruned and divided evenly among tasks before any task starts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import TypeVar

import pyarrow as pa

from esformat.errors import UsageError
from esformat.format.schema import EventSchema
from esformat.io.location import Place
from esformat.read.ask.bounds import Bounds, Domain
from esformat.read.row_range import RowPiece, candidate_rows, identity, most_events, schema_of
from esformat.read.segment import Segment
from esformat.spark.files import name_of, opened

OPENING_BYTES = 256 << 10  # cost of opening a segment, in stored bytes that could be read in that time
LEAST_BYTES = 8 << 20  # stored: half a second on one core; a task costs a few hundredths
OPENING_THREADS = 16
IN_TURN = 32  # up to so many local files are opened faster sequentially than threads start
KNOWN_SCHEMAS = 10_000  # files with cached schemas; few differ

P = TypeVar("P")
T = TypeVar("T")
BoundsOf = Callable[[EventSchema], Bounds]
"""Returns the bounds on a segment's columns, which depend on its indexes."""


@dataclass(frozen=True, slots=True)
class RowRange:
    """Rows [first, last) of the segment at `place`. identity: its size and directory when the read was planned."""

    place: Place
    identity: tuple[int, int]
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Candidate:
    """A segment during planning: its columns, and the ranges of rows that may be within bounds, possibly none.

    events: the maximum number of such rows.
    """

    place: Place
    identity: tuple[int, int]
    pieces: tuple[RowPiece, ...]
    schema: EventSchema
    events: int


def read_schemas(places: Sequence[Place]) -> list[tuple[str, pa.Schema]]:
    """Read the name and columns of each segment. Raises UsageError if text and binary keys are mixed."""
    return _named(zip(map(name_of, places), in_threads(_schema_at, places), strict=True))


def _schema_at(place: Place) -> EventSchema:
    if not isinstance(place, str):
        return _schema_in(place)
    facts = Path(place).stat()
    return _known_schema(place, facts.st_ino, facts.st_size, facts.st_mtime_ns)


@lru_cache(KNOWN_SCHEMAS)
def _known_schema(path: str, *_identity: int) -> EventSchema:
    """The columns of a local segment, cached as long as the file is unchanged."""
    return _schema_in(path)


def _schema_in(place: Place) -> EventSchema:
    with opened(place) as segment:
        return schema_of(segment)


def schemas_of(candidates: Sequence[Candidate]) -> list[tuple[str, pa.Schema]]:
    """The name and columns of each candidate. Raises UsageError as `read_schemas` does."""
    return _named((name_of(candidate.place), candidate.schema) for candidate in candidates)


def _named(found: Iterable[tuple[str, EventSchema]]) -> list[tuple[str, pa.Schema]]:
    schemas = list(found)
    for name, schema in schemas:
        if schema.binary_keys != schemas[0][1].binary_keys:
            raise UsageError(
                f"{name} and {schemas[0][0]} have different key types, text and binary", hint="read them separately"
            )
    return [(name, schema.arrow) for name, schema in schemas]


def find_candidates(places: Sequence[Place], bounds_of: BoundsOf) -> list[Candidate]:
    """Find in each segment the rows that may be within bounds."""

    def find(place: Place) -> Candidate:
        with opened(place) as segment:
            schema = schema_of(segment)
            bounds = bounds_of(schema)
            pieces = tuple(candidate_rows(segment, bounds))
            return Candidate(place, identity(segment), pieces, schema, most_events(segment, bounds, pieces))

    return in_threads(find, places)


@dataclass(frozen=True, slots=True)
class Extent:
    """The number of events, and their first and last time in µs, None without events."""

    events: int
    first: int | None
    last: int | None


def extent(places: Sequence[Place]) -> Extent:
    """The extent of all events of segments, from metadata."""

    def of_one(place: Place) -> Extent:
        with opened(place) as segment:
            return Extent(segment.num_events, segment.min_timestamp, segment.max_timestamp)

    found = in_threads(of_one, places)
    return Extent(
        sum(each.events for each in found),
        min((each.first for each in found if each.first is not None), default=None),
        max((each.last for each in found if each.last is not None), default=None),
    )


def count_events(places: Sequence[Place], space: str) -> int:
    """Count the events of one space without reading any."""

    def count(place: Place) -> int:
        with opened(place) as segment:
            bounds = {"space": Domain(frozenset([space.encode()]))}
            return sum(piece.last - piece.first for piece in candidate_rows(segment, bounds))

    return sum(in_threads(count, places))


def at_most(candidates: Sequence[Candidate], limit: int) -> list[Candidate]:
    """Restrict the candidates to their first `limit` rows."""
    taken = []
    for candidate in candidates:
        pieces = []
        for piece in candidate.pieces:
            if limit > 0:
                pieces.append(replace(piece, last=min(piece.last, piece.first + limit)))
            limit -= piece.last - piece.first
        rows = sum(piece.last - piece.first for piece in pieces)
        taken.append(replace(candidate, pieces=tuple(pieces), events=min(candidate.events, rows)))
    return taken


def share_out(
    candidates: Sequence[Candidate], *, partition_bytes: int, partitions: int | None = None, cores: int = 1
) -> list[tuple[RowRange, ...]]:
    """Divide the rows, in the order of the segments, into tasks of about equal bytes.

    partitions: the number of tasks, if the pieces allow it. None: tasks of about `partition_bytes`, but at least as
    many as `cores` if each gets at least LEAST_BYTES.
    """
    total = sum(_weight(candidate) for candidate in candidates)
    count = partitions or max(1, round(total / partition_bytes), min(cores, total // LEAST_BYTES))
    tasks: list[list[RowRange]] = [[]]
    done = 0  # bytes assigned
    for candidate in candidates:
        opening = OPENING_BYTES
        for piece in candidate.pieces:
            cost = piece.stored_bytes + opening
            if tasks[-1] and len(tasks) < count and done + cost / 2 >= total * len(tasks) / count:
                tasks.append([])
                opening = 0
            _give(tasks[-1], candidate, piece)
            done += cost
            opening = 0
    return [tuple(task) for task in tasks if task]


def _weight(candidate: Candidate) -> int:
    pieces = candidate.pieces
    return sum(piece.stored_bytes for piece in pieces) + OPENING_BYTES if pieces else 0


def _give(task: list[RowRange], candidate: Candidate, piece: RowPiece) -> None:
    """Add a piece to a task. Pieces of a segment become one range: the rows between them are not within bounds."""
    last = task[-1] if task else None
    if last is not None and last.place == candidate.place and last.first < piece.first:
        task[-1] = RowRange(last.place, last.identity, last.first, piece.last)
    else:
        task.append(RowRange(candidate.place, candidate.identity, piece.first, piece.last))


class SegmentGoneError(UsageError):
    """A segment is gone since the read was planned: plan again."""


@contextmanager
def opened_as_planned(rows: RowRange) -> Iterator[Segment]:
    """Open the segment of a range until the block ends.

    Raises SegmentGoneError if it is gone, UsageError if it was replaced.
    """
    hint = "a DataFrame or view keeps the plan of its first query: create it again with spark.read"
    with ExitStack() as stack:
        try:
            segment = stack.enter_context(opened(rows.place))
        except FileNotFoundError:
            raise SegmentGoneError(
                "the segment was removed after the read was planned", path=name_of(rows.place), hint=hint
            ) from None
        if identity(segment) != rows.identity:
            raise UsageError("the segment changed since the read was planned", path=segment.path, hint=hint)
        yield segment


def in_threads(work: Callable[[P], T], items: Sequence[P]) -> list[T]:
    """Apply `work` to each item, in order; in parallel if there are many items or remote ones."""
    if len(items) < 2 or (len(items) <= IN_TURN and all(isinstance(item, str) for item in items)):
        return [work(item) for item in items]
    with ThreadPoolExecutor(min(len(items), OPENING_THREADS), thread_name_prefix="esformat-plan") as pool:
        return list(pool.map(work, items))
