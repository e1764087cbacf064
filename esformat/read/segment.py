"""`open` and `Segment`: open a segment and query it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from esformat.base.notebook import html_facts, html_time
from esformat.core.cached_segment import RowSpan, find_history, find_space
from esformat.core.caches import Budgets
from esformat.errors import CorruptSegmentError, EsdbError, SegmentChangedError, UsageError
from esformat.event import Event, to_key
from esformat.format.arrays import TextForm
from esformat.format.bloom_filter import bucket_count, page_may_contain, page_of
from esformat.format.checksum import checksum64
from esformat.format.layout import BlockKind
from esformat.io.location import Options, Target, apply_options, portable_source
from esformat.io.source import ClosedSource, explained
from esformat.read.ask.question import Checks, Query
from esformat.read.blocks.index import Index
from esformat.read.blocks.plan import match_indexes
from esformat.read.blocks.prefetch import announce_row_spans, leaves_ahead
from esformat.read.blocks.reader import SHARED_CACHE, Reader
from esformat.read.counts import Counts
from esformat.read.decode.block_events import EventMaker, find_rows
from esformat.read.scan import Scan
from esformat.read.segment_like import SegmentLike
from esformat.read.space import ANNOUNCED_BYTES, Space

if TYPE_CHECKING:
    from esformat.read.dataset import EventDataset
    from esformat.sql import Parameters, Rows, Session


def open_segment(path: Target, *, cache_bytes: int | None = None, storage_options: Options = None) -> Segment:
    """Open a finished segment for reading.

    path: of a file; or a URI (`s3://bucket/key`, `gs://…`, `abfs://…`; others through fsspec), a pair of a filesystem
    (of `pyarrow.fs` or fsspec) and a path in it, a `UPath`, or any `Source` of bytes.
    cache_bytes: size of a cache of decoded data for this segment alone; None shares one cache with all other segments
    of the process (see `set_cache_bytes`).
    storage_options: how to connect to the store of a URI, as options of its fsspec filesystem (`key`, `account_name`
        …); the URI is then opened with fsspec, whatever its scheme.
    Raises OSError (no such file …), UsageError, CorruptSegmentError, UnsupportedVersionError.
    """
    (target,) = apply_options(storage_options, path)
    source, name = portable_source(target)
    try:
        reader = Reader(source, SHARED_CACHE if cache_bytes is None else Budgets.of(cache_bytes))
    except EsdbError as error:
        raise explained(error, source) from None
    return Segment(reader, (name, cache_bytes))


def _open_copy(path: Any, cache_bytes: int | None, facts: tuple[Any, ...]) -> Segment:
    """Open a pickled segment. Raises SegmentChangedError if another file has its name now."""
    opened = open_segment(path, cache_bytes=cache_bytes)
    if opened._facts() != facts:
        opened.close()
        raise SegmentChangedError("the file was replaced after pickling", path=opened.path, hint="open it again")
    return opened


def opening_bytes(segment: Segment) -> int:
    """The bytes of the file that opening a segment read; the memory it uses grows with them."""
    return segment._reader.opening_bytes


def fast_history(
    segment: Segment,
    space: str | bytes,
    grouping: bytes | None,
    reverse: bool,
    limit: int | None,
    columns: tuple[str, ...] | None,
) -> list[Event] | None:
    """The events of a scan of a space, in one step, if they are a few adjacent rows of a local file; None if there may
    be more, or if those columns were not queried before.
    """
    reader = segment._reader
    query = reader.checks.query(None, None, reverse, limit, columns)
    if query is None:
        return None
    events: list[Event] | None = find_history(reader, space, query, grouping, EventMaker, match_indexes, find_rows)
    return events


def announce_space(segment: Segment, space: str | bytes, *, wait: bool) -> bool:
    """Start to prefetch the events of a space, if they are few and the source can prefetch.

    wait: read the directory first if it is not cached; without `wait`, return False in that case and read nothing.
    Raises what `Segment.find` raises.
    """
    reader, key = segment._reader, to_key(space)
    if not wait and not reader.root.has_pages_for(key):
        return False
    if not wait and any(reader.cached_leaf(number) is None for number in reader.root.leaves_of(key)):
        return False
    found = segment.find(space)
    if found is not None:
        announce_row_spans(reader, found._row_spans, ANNOUNCED_BYTES)
    return True


def set_cache_bytes(cache_bytes: int) -> None:
    """Set how much decoded data all open segments of this process together may cache in memory.

    The default is 256 MiB. A smaller size takes effect immediately. Raises UsageError.
    """
    if not isinstance(cache_bytes, int) or isinstance(cache_bytes, bool) or cache_bytes < 0:
        raise UsageError(f"cache_bytes must be a whole number from 0, not {cache_bytes!r}")
    SHARED_CACHE.resize(cache_bytes)


class Segment(SegmentLike[Scan, Space]):
    """An open `.esdb` file, with its events ordered by space, grouping and timestamp.

    Thread-safe. Close it, or use it as a context manager.

    A scan in progress when the segment is closed raises ClosedError at its next read.
    """

    def __init__(self, reader: Reader, named: tuple[Any, int | None] | None = None) -> None:
        """named: the arguments it was opened with, for pickling."""
        self._reader = reader
        self._named = named

    def __reduce__(self) -> tuple[Any, ...]:
        """An unpickled copy, as Dask, Ray and multiprocessing create in other processes, opens the file by its name."""
        if self._named is None or isinstance(self._reader.source, ClosedSource):
            raise UsageError(
                "only an open segment with a path or URI can be pickled",
                path=self.path,
                hint="open it in the other process",
            )
        path, cache_bytes = self._named
        return _open_copy, (path, cache_bytes, self._facts())

    def _facts(self) -> tuple[Any, ...]:
        """Facts that distinguish the file from another file of the same name."""
        return self.size_bytes, self.num_events, self.num_spaces, self.min_timestamp, self.max_timestamp

    def __repr__(self) -> str:
        return f"<esformat.Segment {self.path!r}, {self.num_events} events in {self.num_spaces} spaces>"

    def _repr_html_(self) -> str:
        """A summary of the file, for notebooks."""
        return html_facts(
            self.path,
            {
                "events": self.num_events,
                "spaces": self.num_spaces,
                "bytes": self.size_bytes,
                "first": html_time(self.min_timestamp),
                "last": html_time(self.max_timestamp),
                "indexes": ", ".join(self.indexes),
                "columns": ", ".join(self.schema.names),
            },
        )

    # ------------------------------------------------------------ facts

    @property
    def path(self) -> str:
        """The path or URI that was opened, or the name of its source."""
        return self._reader.name

    @property
    def size_bytes(self) -> int:
        """Size of the file, in bytes."""
        return self._reader.size

    @property
    def num_events(self) -> int:
        """Number of events in the segment."""
        return self._reader.statistics.events

    @property
    def num_spaces(self) -> int:
        """Number of distinct spaces."""
        return self._reader.statistics.spaces

    @property
    def schema(self) -> pa.Schema:
        """Columns of the events: space, grouping, timestamp, then payload and index columns."""
        return self._reader.schema.arrow

    @property
    def indexes(self) -> tuple[str, ...]:
        """Names of the indexed columns."""
        return self._reader.schema.indexes

    @property
    def properties(self) -> dict[str, str]:
        """Key-value pairs that the writer stored with the file."""
        return dict(self._reader.metadata.properties)

    @property
    def min_timestamp(self) -> int | None:
        """The earliest timestamp, µs; None without events."""
        return self._reader.statistics.min_timestamp

    @property
    def max_timestamp(self) -> int | None:
        """The latest timestamp, µs; None without events."""
        return self._reader.statistics.max_timestamp

    def info(self) -> dict[str, Any]:
        """Facts about the file: counts, time span, codec, and bytes and number of blocks of each kind."""
        statistics = self._reader.statistics
        return {
            "path": self.path,
            "size_bytes": self.size_bytes,
            "events": statistics.events,
            "spaces": statistics.spaces,
            "groupings": statistics.runs,
            "min_timestamp": statistics.min_timestamp,
            "max_timestamp": statistics.max_timestamp,
            "keys": "binary" if self._reader.schema.binary_keys else "text",
            "codec": self._reader.metadata.codec,
            "level": self._reader.metadata.level,
            "frame_bytes": self._reader.metadata.frame_bytes,
            "templates": self._reader.metadata.templates,
            "indexes": {name: dict(facts) for name, facts in statistics.indexes.items()},
            "properties": self.properties,
            "blocks": self._block_facts(),
        }

    def _block_facts(self) -> dict[str, dict[str, int]]:
        reader = self._reader
        facts = {kind: [0, 0] for kind in BlockKind}

        def add(kind: int, length: int, count: int = 1) -> None:
            facts[BlockKind(kind)][0] += count
            facts[BlockKind(kind)][1] += length

        for (kind, ordinal, _copy), handle in reader.table.items():
            if kind in facts:
                add(kind, handle.length)
            if kind == BlockKind.INDEX_ROOT:
                for page in reader.index_root(ordinal).handles:
                    add(BlockKind.INDEX, page.length)
        for number in range(reader.root.page_count):
            add(BlockKind.DIRECTORY_PAGE, reader.root.page_place(number)[0].length)
        reader.expect_all_leaves()
        for number in range(len(reader.root)):
            handle, data_offset = reader.root.place(number)
            add(BlockKind.DIRECTORY, handle.length)
            first, last = reader.root.blocks_of(number)
            add(BlockKind.DATA, handle.offset - data_offset, last - first)
        return {kind.name.lower(): {"count": count, "bytes": size} for kind, (count, size) in facts.items() if count}

    def dataset(self, *, dictionaries: bool = False) -> EventDataset:
        """The events as a `pyarrow.dataset.Dataset`, for DuckDB, Polars and others that push filters down.

        dictionaries: return indexed text that is stored as codes as Arrow dictionaries, which DuckDB groups by faster.
        """
        from esformat.read.dataset import EventDataset, SegmentEvents  # pyarrow.dataset is slow to import

        return EventDataset(SegmentEvents(self._reader, TextForm.DICTIONARIES if dictionaries else TextForm.PLAIN))

    @cached_property
    def _session(self) -> Session:
        from esformat.sql import Session, named  # needs the extra `sql`

        hint = "the events of the file are the table events"
        return Session(named({"events": self}), hint=hint, immutable=True, names=lambda: ["events"])

    def sql(self, statement: str, parameters: Parameters = None) -> Rows:
        """Run a query in DuckDB's dialect of SQL; the table `events` has the file's events.

        parameters: values for `?`, `$1` or `$name` in the statement. It may also name Parquet, CSV and JSON files, in
        quotes. Times without a zone are UTC. Needs the extra `sql`.
        Raises UsageError for a statement that is wrong or does more than query, immediately.
        """
        return self._session.ask(statement, parameters)

    # ------------------------------------------------------------ closing

    def close(self) -> None:
        """Close the file. Closing twice is allowed; later scans raise ClosedError."""
        session = self.__dict__.pop("_session", None)
        if session is not None:
            session.close()
        self._reader.close()

    # ------------------------------------------------------------ spaces

    def find(self, space: str | bytes) -> Space | None:
        """The space with a key; None if the segment has no event in it. Raises UsageError for other types."""
        reader = self._reader
        leaves: Iterable[int] | None = None
        if reader.announce is not None:
            leaves = reader.root.leaves_of(to_key(space))
            if any(reader.cached_leaf(number) is None for number in leaves):
                leaves = leaves_ahead(reader, leaves, together=True)
        found: Space | None = find_space(reader, space, Space, leaves)
        return found

    def may_contain(self, space: str | bytes) -> bool:
        """False if the segment has no event in a space; True if it may. Takes one read of the filter, none of the
        directory.
        """
        hashed = checksum64(to_key(space))
        buckets = bucket_count(self.num_spaces)
        page = page_of(hashed, buckets)
        handle = self._reader.table.get((BlockKind.FILTER, page, 0))
        if handle is None:
            return True
        try:
            return page_may_contain(self._reader.read(handle, BlockKind.FILTER), hashed, buckets)
        except CorruptSegmentError:  # a damaged filter costs time, not answers
            return self.find(space) is not None

    def _space_counts(self, prefix: bytes) -> Iterator[tuple[Any, int]]:
        reader = self._reader
        current: bytes | None = None
        count = 0
        if not prefix:
            reader.expect_all_leaves()
        first = reader.root.leaves_of(prefix).start if prefix else 0
        first_space_of = reader.root.first_space_of
        for number in leaves_ahead(reader, range(first, len(reader.root))):
            if prefix and (space := first_space_of(number)) > prefix and not space.startswith(prefix):
                break
            leaf = reader.leaf(number)
            for run, key in enumerate(leaf.spaces):
                if not key.startswith(prefix):
                    continue
                if key != current:
                    if current is not None:
                        yield reader.shown(current), count
                    current, count = key, 0
                count += leaf.run_rows[run + 1] - leaf.run_rows[run]
        if current is not None:
            yield reader.shown(current), count

    # ------------------------------------------------------------ indexes

    def index_values(self, name: str) -> Counts:
        """The values of an index in ascending order, each with its number of events. Raises UnknownIndexError."""
        index = Index(self._reader, name)

        def count(value: Any) -> int:
            posting = index.find(value) if index.holds(value) else None
            if posting is None:
                raise KeyError(value)
            return posting.count

        return Counts(index.values, count)

    # ------------------------------------------------------------ scans

    @property
    def _checks(self) -> Checks:
        checks: Checks = self._reader.checks
        return checks

    def _scan(self, query: Query, grouping: bytes | None) -> Scan:
        reader = self._reader
        root = reader.root

        def row_spans() -> Iterator[RowSpan]:
            if query.timed or query.reverse or query.limit is None:
                reader.expect_all_leaves()
            numbers: Sequence[int] = range(len(root))
            if query.timed:
                numbers = [number for number in numbers if not query.misses(*root.times_of(number))]
            if grouping is None:
                for number in numbers:
                    first, last = root.rows_of(number)
                    yield RowSpan(number, first, last, -1)
                return
            for number in leaves_ahead(reader, numbers):
                leaf = reader.leaf(number)
                for run, key in enumerate(leaf.groupings):
                    if key == grouping:
                        yield RowSpan(number, leaf.run_rows[run], leaf.run_rows[run + 1], -1)

        return Scan(reader, query, row_spans, span=(0, root.events), whole=grouping is None)
