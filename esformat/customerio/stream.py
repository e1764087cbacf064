"""`Stream` and `StreamSpace`: an open stream of the Go ESDB, finished or not, and its only space."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from threading import Lock
from typing import Any

import numpy as np
import pyarrow as pa

from esformat.customerio.archive_file import read_table
from esformat.customerio.layout import Layout, Names, check_pair, make_layout, shown
from esformat.customerio.open_file import OpenFile
from esformat.customerio.question import check_index
from esformat.customerio.scan import Scan
from esformat.customerio.stream_file import CLOSED_MAGIC, LENGTH, MAGIC, StreamEvents, is_torn_event, walk
from esformat.customerio.varint import I64, decode
from esformat.errors import CorruptSegmentError, SpaceNotFoundError
from esformat.event import to_key
from esformat.io.source import Source
from esformat.read.answer import Scannable
from esformat.read.ask.question import Checks, Query
from esformat.read.counts import Counts

STRETCH_BYTES = 4 << 20
"""The bytes of a stream that are decoded together; more only for a larger event."""
BATCH_ROWS = 16384


@dataclass(slots=True)
class _Survey:
    """The result of one pass over the file. Stretches are byte ranges [start, end) of whole events."""

    stretches: list[tuple[int, int]] = field(default_factory=list)
    events: int = 0
    end: int = 0
    tails: dict[bytes, int] = field(default_factory=dict)
    """The offset of the newest event of each `name:value`."""
    values: Counter[bytes] = field(default_factory=Counter)
    """The number of events of each `name:value`."""
    names: Names = field(default_factory=Names)


class Stream(OpenFile["StreamSpace"]):
    """An open stream with the interface of a `Segment`. It has one space, whose key is "".

    Scans are in file order, oldest first; `reverse` is the exact reverse. A stream has no times: every timestamp is 0.
    Incomplete events, and events appended after the stream was opened, are ignored. Thread-safe.
    """

    kind = "stream"

    def __init__(self, source: Source) -> None:
        """Use `open` instead."""
        super().__init__(source)
        self._lock = Lock()
        self._known: _Survey | None = None
        self._known_layout: Layout | None = None
        size = source.size
        with self._named():
            if source.read_at(0, min(size, len(MAGIC))) != MAGIC:
                raise CorruptSegmentError("a stream does not begin with its magic bytes", offset=0)
            tail = source.read_at(max(0, size - len(CLOSED_MAGIC)), min(size, len(CLOSED_MAGIC)))
            self.is_closed = tail == CLOSED_MAGIC and size >= len(MAGIC) + len(CLOSED_MAGIC)
            """Whether the writer finished the stream."""
            self._stop = size
            if self.is_closed:
                self._tails, start = read_table(source, size - len(CLOSED_MAGIC), len(MAGIC) + LENGTH.size)
                self._stop = start - LENGTH.size
                if any(source.read_at(self._stop, LENGTH.size)):
                    raise CorruptSegmentError("the events of a closed stream do not end in a zero", offset=self._stop)

    # ------------------------------------------------------------ facts

    @property
    def _survey(self) -> _Survey:
        with self._lock, self._named():
            if self._known is None:
                self._known = self._pass()
            return self._known

    def _pass(self) -> _Survey:
        """Read the file once to find its events and indexes, and check the chains of index entries."""
        found = _Survey(end=len(MAGIC))
        while True:
            data, end = self._read_stretch(found.end)
            if end == found.end:
                break
            stretch = walk(data, 0)
            events = StreamEvents(data, stretch.starts, stretch.end)
            _follow(found, events, found.end)
            found.stretches.append((found.end, end))
            found.events += len(events)
            found.end = end
        self._check_end(found)
        return found

    def _read_stretch(self, start: int) -> tuple[bytes, int]:
        """Return the bytes of whole events from `start` on, and their end; no bytes if no whole event begins there."""
        self._check_open()
        size = STRETCH_BYTES
        while True:
            data = self._source.read_at(start, min(size, self._stop - start))
            found = walk(data, 0)
            if len(found.starts) or found.stop != "more" or start + len(data) == self._stop:
                return data[: found.end], start + found.end
            size = max(2 * size, LENGTH.size + LENGTH.unpack_from(data)[0])  # read_at is bounded by the file

    def _check_end(self, found: _Survey) -> None:
        rest = self._stop - found.end
        if self.is_closed:
            if rest:
                raise CorruptSegmentError("the events of a closed stream do not fill it", offset=found.end)
            stored = {key: decode(value, 0)[0] for key, value in self._tails.items()}
            if stored != found.tails:
                raise CorruptSegmentError("the footer of a stream names other newest events than there are")
            return
        start = self._source.read_at(found.end, min(rest, LENGTH.size))
        if len(start) == LENGTH.size and any(start):
            # a stretch is enough: an event that ends before its length says ends in it, unless it is a large one
            head = self._source.read_at(found.end, min(rest, STRETCH_BYTES))
            if not is_torn_event(head):
                raise CorruptSegmentError("an event of the stream does not fit its length", offset=found.end)

    @property
    def torn_bytes(self) -> int:
        """The number of bytes after the last whole event of an unfinished stream."""
        return self._stop - self._survey.end

    @property
    def layout(self) -> Layout:
        """The file's columns."""
        found = self._survey
        with self._lock, self._named():
            if self._known_layout is None:
                self._known_layout = make_layout([], found.values, found.names)
            return self._known_layout

    @property
    def num_events(self) -> int:
        """The number of events in the file."""
        return self._survey.events

    @property
    def num_spaces(self) -> int:
        """One, if there are events."""
        return min(1, self.num_events)

    @property
    def min_timestamp(self) -> int | None:
        """0, which is the timestamp of every event; None without events."""
        return 0 if self.num_events else None

    @property
    def max_timestamp(self) -> int | None:
        """0, which is the timestamp of every event; None without events."""
        return self.min_timestamp

    # ------------------------------------------------------------ spaces

    def find(self, space: str | bytes) -> StreamSpace | None:
        """Return the stream's space for the key "", None for others. Raises UsageError for other types."""
        return StreamSpace(self) if not to_key(space) and self.num_events else None

    def _absent(self, space: object) -> SpaceNotFoundError:
        return SpaceNotFoundError(f"no space {space!r}", path=self.path, hint='a stream is one space, ""')

    def _space_counts(self, prefix: bytes) -> Iterator[tuple[Any, int]]:
        return iter([] if prefix or not self.num_events else [("", self.num_events)])

    def index_values(self, name: str) -> Counts:
        """The values of an index in ascending order, each with its number of events. Raises UnknownIndexError."""
        layout = self.layout
        check_index(layout, self.path, name)
        index = layout.by_name[name]
        found = {}
        for pair, count in sorted(self._survey.values.items()):
            stored, value = layout.names.split(pair)
            if stored == index.stored:
                found[shown(value)] = count
        return Counts(lambda: iter(found.items()), found.__getitem__)

    # ------------------------------------------------------------ scans

    def _scan(self, query: Query, grouping: bytes | None) -> Scan:
        return Scan(self._checks, query, grouping, self._batches)

    def _batches(self, layout: Layout, columns: tuple[str, ...], reverse: bool) -> Iterator[pa.RecordBatch]:
        schema = pa.schema([layout.schema.arrow.field(name) for name in columns])
        stretches = self._survey.stretches
        for start, end in reversed(stretches) if reverse else stretches:
            self._check_open()
            data = self._source.read_at(start, end - start)
            events = StreamEvents(data, walk(data, 0).starts, len(data))
            indexed = _index_columns(events, layout, columns)
            rows = np.arange(len(events))
            if reverse:
                rows = rows[::-1]
            for first in range(0, len(rows), BATCH_ROWS):
                some = rows[first : first + BATCH_ROWS]
                arrays = [
                    indexed[n].take(pa.array(some)) if n in indexed else _column(events, n, some) for n in columns
                ]
                yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def _column(events: StreamEvents, name: str, rows: I64) -> pa.Array:
    if name == "data":
        return events.data(rows)
    if name == "timestamp":
        return pa.array(np.zeros(len(rows), dtype=np.int64)).cast(pa.timestamp("us", "UTC"))
    return pa.repeat(pa.scalar(""), len(rows))


def _index_columns(events: StreamEvents, layout: Layout, columns: tuple[str, ...]) -> dict[str, pa.Array]:
    """Decode the columns that are indexes."""
    wanted = [layout.by_name[name] for name in columns if name in layout.by_name]
    if not wanted:
        return {}
    pairs = [layout.names.split(pair) for pair in events.pairs.dictionary.to_pylist()]
    codes = events.pairs.indices.to_numpy()
    arrays = {}
    for index in wanted:
        mine = np.array([name == index.stored for name, _ in pairs], dtype=np.bool_)
        values = pa.array([value if name == index.stored else b"" for name, value in pairs], pa.binary()).cast(
            index.type
        )
        entries = mine[codes] if len(pairs) else np.zeros(0, dtype=np.bool_)
        found = np.full(len(events), -1, dtype=np.int64)
        found[events.rows[entries]] = codes[entries]
        arrays[index.name] = values.take(pa.array(found, mask=found < 0))
    return arrays


def _doubled_names(rows: I64, codes: I64, pairs: list[bytes], names: Names) -> set[bytes]:
    """Return the names for which an event has two values."""
    known: dict[bytes, int] = {}
    name_of = np.array([known.setdefault(names.split(pair)[0], len(known)) for pair in pairs], dtype=np.int64)
    slots, counts = np.unique(rows * max(1, len(known)) + (name_of[codes] if len(pairs) else codes), return_counts=True)
    twice = set((slots[counts > 1] % max(1, len(known))).tolist())
    return {name for name, number in known.items() if number in twice}


def _follow(found: _Survey, events: StreamEvents, origin: int) -> None:
    """Check that each index entry names the previous event with the same value, and record the newest ones."""
    pairs: list[bytes] = [check_pair(pair) for pair in events.pairs.dictionary.to_pylist()]
    codes = events.pairs.indices.to_numpy().astype(np.int64)
    while doubled := _doubled_names(events.rows, codes, pairs, found.names):
        if not any(pair.count(b":") > 1 for pair in pairs if found.names.split(pair)[0] in doubled):
            raise CorruptSegmentError("an event of the stream has two values of one index", offset=origin)
        for name in doubled:
            found.names.refine(name)
    places = events.starts[events.rows] + origin
    order = np.argsort(codes, kind="stable")
    sorted_codes, sorted_places = codes[order], places[order]
    first = np.append(True, sorted_codes[1:] != sorted_codes[:-1])[: len(order)]
    expected = np.append(0, sorted_places[:-1])[: len(order)]
    before = np.array([found.tails.get(pair, 0) for pair in pairs], dtype=np.int64)
    if len(pairs):
        expected = np.where(first, before[sorted_codes], expected)
    if (events.previous[order] != expected).any():
        raise CorruptSegmentError("an index entry of the stream names another event than the one before it")
    last = np.append(first[1:], True)[: len(order)]
    for code, place in zip(sorted_codes[last].tolist(), sorted_places[last].tolist(), strict=True):
        found.tails[pairs[code]] = place
    for code, count in enumerate(np.bincount(codes, minlength=len(pairs)).tolist()):
        found.values[pairs[code]] += count


class StreamSpace(Scannable[Scan]):
    """The only space of a stream: its events in file order, oldest first."""

    key = ""
    key_bytes = b""

    def __init__(self, stream: Stream) -> None:
        """Use `Stream.find` instead."""
        self._stream = stream

    @property
    def num_events(self) -> int:
        """The number of events of the stream."""
        return self._stream.num_events

    def __len__(self) -> int:
        return self.num_events

    def __repr__(self) -> str:
        return f"<esformat.customerio.StreamSpace of {self._stream.path!r}>"

    def groupings(self) -> Counts:
        """The only grouping, "", with its number of events."""
        return self._stream.spaces()

    @property
    def _checks(self) -> Checks:
        return self._stream._checks

    def _scan(self, query: Query, grouping: bytes | None) -> Scan:
        return self._stream._scan(query, grouping)
