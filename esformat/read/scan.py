"""`Scan`: a lazy answer. Nothing is read until it is iterated or converted to columns, and then only what is needed."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from itertools import chain, islice
from types import MappingProxyType
from typing import TypeVar

import numpy as np
import pyarrow as pa

from esformat.core.cached_segment import MOST_RUN_ROWS, RowSpan, ScanRows, first_of, oldest_first, part_of
from esformat.core.leaves import BlockSlice
from esformat.errors import UsageError
from esformat.event import Event
from esformat.format.arrays import TextForm, is_bytes
from esformat.format.data_block import I64
from esformat.format.json_fields import FieldCounts
from esformat.format.json_values import FOUND
from esformat.format.schema import DATA_COLUMN, KEY_COLUMNS, EventSchema
from esformat.read.answer import Answer
from esformat.read.blocks.index import Index
from esformat.read.blocks.plan import IndexMatches, block_slices, leaves_with, match_indexes, slices
from esformat.read.blocks.prefetch import announce_groups, slices_ahead
from esformat.read.blocks.runs import by_run, gathered, joined
from esformat.read.decode.block_events import EventMaker, find_rows
from esformat.read.decode.block_group import BlockGroup
from esformat.read.decode.cached_group import CachedGroup
from esformat.read.decode.event_rows import rows_of_batch
from esformat.read.decode.few_rows import MOST_FEW, few_rows
from esformat.read.decode.matched_rows import (
    GATHERED_ROWS,
    MatchedRows,
    Matches,
    RequiredTexts,
    Test,
    completed,
    filtered,
)
from esformat.read.decode.run_batches import BatchMaker
from esformat.read.decode.run_events import run_parts
from esformat.read.payload_columns import Paths, check_payload, with_found
from esformat.read.union import Stream, union

BATCH_BLOCKS = 24  # data blocks that are read and decoded together
FIRST_BLOCKS = 8  # the same for the first group, before the decoded size of a block is known
FEW_ROWS = 16  # a block of no more rows may have large ones: it counts twice in the first group; others have <= 1 MiB
BATCH_STORED_BYTES = 2 << 20
BATCH_BYTES = 8 << 20  # decoded size of a group, estimated from the previous group
CACHED_BATCHES = 4  # a group is this many times larger if its decoded blocks are cached
NUMBER_BATCHES = 2  # or if rows are a few numbers; larger groups would take memory from the system each time
SPARSE_BATCHES = 4  # or if texts are searched for or rows listed: little of each block is decoded
MIN_PARALLEL_BATCHES = 4
PARALLEL_BYTES = 1 << 20  # decompressed bytes of a group from which threads are used
THREADS = min(os.cpu_count() or 1, 8)  # that decode a long answer in parallel
KEYS = frozenset({"space", "grouping"})
OBJECT_BYTES = 1000  # about the memory that Arrow uses for a column, or a batch, besides its values

T = TypeVar("T", bound=Sized)
_NOTHING = pa.RecordBatch.from_arrays([], names=[])  # stands for a group without matching rows, and is skipped


class Scan(ScanRows, Answer):
    """The events of one segment that match a query, read on demand."""

    _batch_bytes = BATCH_BYTES
    _decompressed_bytes = 0  # of text and binary columns, for the last group
    _texts = TextForm.PLAIN
    _paths: Paths = MappingProxyType({})
    _passed_rows = 0  # rows, from the segment's first on, that `batches` or `matching` has read or skipped
    _block_bytes = 0  # decoded bytes per block of the last group; 0: none was decoded
    _row_bytes = 0  # decoded bytes per wanted row of that group

    def __repr__(self) -> str:
        return f"<esformat.Scan of {', '.join([repr(self._reader.name), *self._query.described()])}>"

    def __copy__(self) -> Scan:
        copy = Scan(
            self._reader, self._query, self._given, self._span, self._keys, self._whole, self._merged, self._small,
            self._listed, self._threads, self._page,
        )  # fmt: skip
        copy.__dict__.update(self.__dict__)
        return copy

    def in_batches_of(self, size_bytes: int) -> Scan:
        """The same scan with smaller batches, for callers that read many scans at the same time."""
        scan = self.__copy__()
        scan._batch_bytes = size_bytes
        return scan

    def with_texts(self, form: TextForm) -> Scan:
        """The same scan with text in another form if that is less work; some batches may still have plain arrays."""
        if form is self._texts:
            return self
        scan = self.__copy__()
        scan._texts = form
        return scan

    # ------------------------------------------------------------ columns

    @property
    def column_names(self) -> tuple[str, ...]:
        """Names of the columns of the batches."""
        return self._query.columns if self._query.columns is not None else self._reader.schema.names

    @property
    def schema(self) -> pa.Schema:
        """Arrow schema of the batches."""
        return self._reader.schema.select(self._query.columns)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The events as record batches of a few thousand rows, in order; memory does not grow with their number."""
        return self._limited(self._read_batches(self.column_names))

    def matching(
        self,
        columns: Sequence[str],
        matches: Matches,
        required_texts: RequiredTexts | None = None,
        *,
        required_texts_suffice: bool = False,
    ) -> Iterator[pa.RecordBatch]:
        """The events that `matches` wants, as batches; a limit counts only those.

        columns: the columns that `matches` needs. They are decoded first, the others only for the wanted events.
        required_texts: for some columns, lists of texts. An event is wanted only if its value contains a text of each
        list, so `matches` is not called if templates show that it does not. required_texts_suffice: every such event
        is wanted, so `matches` is not called either if templates show that the value contains the texts.
        """
        return self._limited(
            self._read_matching(Test(tuple(columns), matches, required_texts or {}, required_texts_suffice))
        )

    def candidates(self, required_texts: RequiredTexts) -> Iterator[pa.RecordBatch]:
        """Like `batches`, but without some of the events that do not satisfy `required_texts`, which is as in
        `matching`; columns that the segment lacks are ignored. A limit counts the events returned.
        """
        required_texts = {
            name: texts for name, texts in required_texts.items() if name in self._reader.schema.positions
        }
        return self._limited(self._read_matching(Test((), None, required_texts))) if required_texts else self.batches()

    def with_paths(
        self, columns: Sequence[str], paths: Paths, required_texts: RequiredTexts | None = None
    ) -> Iterator[pa.RecordBatch]:
        """See `Answer.with_paths`. Of payloads stored by templates, only the values at the paths are decoded."""
        check_payload(self._reader.schema.arrow)
        index_matches = self._match_indexes_to_read()
        if index_matches.nothing:
            return iter(())
        if self._is_short(index_matches) or self._merged:
            read = list(dict.fromkeys([*columns, DATA_COLUMN]))
            return (with_found(batch, columns, paths) for batch in self._limited(self._read_batches(read)))
        scan = self.__copy__()
        scan._paths = paths
        groups = scan._groups(scan._wanted(index_matches), index_matches, SPARSE_BATCHES if required_texts else 1)
        fields = [self._reader.schema.arrow.field(name) for name in columns]
        schema = pa.schema([*fields, *(pa.field(path, FOUND) for path in paths)])
        return scan._gathered(groups, schema, index_matches, Test((), None, required_texts) if required_texts else None)

    def _count_fields(self, counts: FieldCounts) -> None:
        """Add the fields of all payloads to `counts`; for payloads stored by templates, from the templates."""
        check_payload(self.schema)
        index_matches = self._match_indexes_to_read()
        if self._is_short(index_matches):
            super()._count_fields(counts)
            return
        for group in () if index_matches.nothing else self._groups(self._directed(index_matches), index_matches):
            rows = self._find(group, index_matches, (DATA_COLUMN,))
            if rows is not None:
                rows.blocks.count_fields(counts, rows.places)

    def _is_short(self, index_matches: IndexMatches) -> bool:
        """Whether the rows are not read group by group, or not all of them are read."""
        is_run = self._keys is not None and self._span[1] - self._span[0] <= MOST_RUN_ROWS
        return is_run or self._small is not None or self._query.limit is not None or self._are_few(index_matches)

    def times(self) -> Iterator[I64]:
        """The timestamps of the events, µs, as arrays in any order, for counting events by time.

        Raises UsageError if the query has a limit.
        """
        if self._query.limit is not None:
            raise UsageError("times() covers all events and takes no limit", hint="leave the limit out")
        if self._keys is not None or self._small is not None:
            for batch in self._read_batches(("timestamp",)):
                yield batch.column(0).cast(pa.int64()).to_numpy()
            return
        index_matches = self._match_indexes_to_read()
        for group in () if index_matches.nothing else self._groups(self._directed(index_matches), index_matches):
            rows = self._find(group, index_matches, ("timestamp",))
            if rows is not None:
                yield rows.blocks.times_at(rows.places)

    def count(self) -> int:
        """The number of events; read from the metadata alone if that suffices."""
        count = self._count()
        return count if self._query.limit is None else min(count, self._query.limit)

    def blocks(self) -> tuple[set[int], int]:
        """The numbers of the data blocks that the scan would read, and how many the segment has. Reads none of them."""
        index_matches, query = self._match_indexes(), oldest_first(self._query)
        found: set[int] = set()
        for row_span in () if index_matches.nothing else self._row_spans():
            found.update(part.number for part in slices(self._reader, query, row_span, index_matches))
        return found, self._reader.root.data_blocks

    # ------------------------------------------------------------ events

    def __iter__(self) -> Iterator[Event]:
        fast: Iterator[Event] | None = self.fast_events(EventMaker, match_indexes, find_rows)
        return self._events() if fast is None else fast

    def _events(self) -> Iterator[Event]:
        query = self._query
        parts: Iterable[list[Event]]
        if self._keys is not None and self._direct():
            maker = EventMaker(self._reader, *self._keys, query.reverse, query.columns)
            parts = run_parts(self._reader, query, self._row_spans, self._span, maker)
        elif self._small is not None and self._direct():
            return iter(self._small().events(query))
        else:
            parts = self._decoded_events()
        events = chain.from_iterable(parts)
        return events if query.limit is None else islice(events, query.limit)

    def _event_columns(self) -> tuple[str, ...]:
        """Columns to read for events: keys and timestamp always, of the others those selected."""
        wanted = self.column_names
        names = self._reader.schema.arrow.names
        return tuple(name for name in names if name in KEY_COLUMNS or name in wanted)

    def _decoded_events(self) -> Iterator[list[Event]]:
        """Events of decoded rows, about a thousand at a time."""
        columns = self._event_columns()
        schema = self._reader.schema
        if self._merged:
            for batch in self._read_batches(columns):
                yield from rows_of_batch(batch, schema.indexes).iterators()
            return
        index_matches = self._match_indexes_to_read()
        if index_matches.nothing:
            return
        if self._are_few(index_matches) and self._direct():
            maker = partial(EventMaker, self._reader, reverse=self._query.reverse, columns=self._query.columns)
            yield from few_rows(self._reader, self._query, index_matches, self._slices(index_matches), maker)
            return

        for group in self._groups(self._wanted(index_matches), index_matches):
            blocks = self._blocks(group, index_matches, columns)
            rows = blocks.to_events(columns, blocks.select(self._query, index_matches))
            self._block_bytes = (0 if rows.data is None else rows.data.nbytes) // len(group)
            yield from rows.iterators(reverse=self._query.reverse)

    # ------------------------------------------------------------ reading

    def _directed(self, index_matches: IndexMatches) -> Iterable[RowSpan]:
        """The row spans to read, in the query's direction; of a whole file, only leaves with rows that indexes list."""
        row_spans: Iterable[RowSpan]
        if self._whole and index_matches.rows is not None:
            row_spans = leaves_with(self._reader, index_matches.rows)
        else:
            row_spans = self._row_spans()
        return reversed(list(row_spans)) if self._query.reverse else row_spans

    def _wanted(self, index_matches: IndexMatches) -> Iterable[RowSpan]:
        """The row spans to read, cut at the limit if it is already known which rows that takes."""
        directed, query = self._directed(index_matches), self._query
        if query.limit is None or query.filtered:
            return directed
        return _first_of(directed, query.limit, reverse=query.reverse)

    @property
    def _of_keys(self) -> bool:
        """Whether the directory alone has the answer, so that no data block is read."""
        query = self._query
        return not query.timed and not query.conditions and KEYS.issuperset(self.column_names)

    def _are_few(self, index_matches: IndexMatches) -> bool:
        """Whether an index lists so few rows that they are read one by one."""
        return self._whole and index_matches.rows is not None and len(index_matches.rows) <= MOST_FEW

    def _slices(self, index_matches: IndexMatches) -> Iterator[BlockSlice]:
        return slices_ahead(self._reader, self._query, self._directed(index_matches), index_matches)

    def _match_indexes(self) -> IndexMatches:
        return match_indexes(self._reader, self._query, *self._span, self._listed)

    def _match_indexes_to_read(self) -> IndexMatches:
        """The index matches of the query, and whether it was asked before for the same rows."""
        index_matches = self._match_indexes()
        if index_matches.unconditional or self._listed is not None:
            return index_matches
        return index_matches._replace(repeated=self._reader.repeated((self._query.conditions, self._span)))

    def _limited(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        if self._query.limit is None:
            return batches
        return first_rows(batches, self._query.limit)

    def _read_batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        if self._keys is not None and self._span[1] - self._span[0] <= MOST_RUN_ROWS:
            made = BatchMaker if self._texts is TextForm.PLAIN else partial(BatchMaker, texts=self._texts)
            fast: Iterable[pa.RecordBatch] | None = self.fast_parts(made, columns, match_indexes, find_rows)
            if fast is None:
                maker = made(self._reader, *self._keys, self._query.reverse, columns)
                fast = run_parts(self._reader, self._query, self._row_spans, self._span, maker)
            return iter(fast)
        if self._small is not None:
            batch = self._small().batch(self._query, columns)
            return iter((batch,) if len(batch) else ())
        index_matches = self._match_indexes_to_read()
        if index_matches.nothing:
            return iter(())
        if self._merged:
            streams = self._merge_sources(columns, index_matches)
            return union(streams, ["timestamp"], columns, reverse=self._query.reverse, lean=True)
        if self._are_few(index_matches):
            maker_of = partial(BatchMaker, self._reader, reverse=self._query.reverse, columns=columns)
            few = list(few_rows(self._reader, self._query, index_matches, self._slices(index_matches), maker_of))
            return iter(few if len(few) < 2 else (pa.concat_batches(few),))
        times = NUMBER_BATCHES if self._are_numbers(columns) else 1
        if self._listed is not None:
            times = SPARSE_BATCHES
        groups = self._groups(self._wanted(index_matches), index_matches, times)
        if self._query.limit is not None or self._page:
            batches = (self._read_group(group, columns, index_matches) for group in groups)
            return (batch for batch in batches if len(batch))
        return self._gathered(groups, self._reader.schema.select(columns), index_matches)

    def _are_numbers(self, columns: Sequence[str]) -> bool:
        """Whether all columns are numbers, or keys or codes that are returned as dictionaries."""
        reader = self._reader
        in_dictionaries = self._texts is TextForm.DICTIONARIES
        numbers = KEY_COLUMNS if in_dictionaries else ("timestamp",)
        places = [reader.positions.get(name) for name in columns if name not in numbers]
        coded = reader.coded_places() if in_dictionaries else ()
        return all(p is not None and (p in coded or not is_bytes(reader.fields[p].type)) for p in places)

    def _read_lazily(
        self, groups: Iterator[list[BlockSlice]], columns: Sequence[str], index_matches: IndexMatches
    ) -> Iterator[pa.RecordBatch]:
        """The rows of groups, decoded block by block, so that a merge keeps only one block of each run in memory."""
        for group in groups:
            for part in group:
                batch = self._read_group([part], columns, index_matches)
                if len(batch):
                    yield batch

    def _groups(
        self, row_spans: Iterable[RowSpan], index_matches: IndexMatches, times: int = 1
    ) -> Iterator[list[BlockSlice]]:
        """Groups of block slices, in the query's direction, to read and decode together.

        With a limit, which may end the scan soon, groups have one block, then two, then four, …: never many more than
        were needed before. Groups of cached blocks are larger: little is left to decode, so that no other group is
        decoded in parallel. If decoded blocks are large, groups get smaller after the first. times: multiplies the
        size of a group, for scans that do not decode most of it.
        """
        group: list[BlockSlice] = []
        stored = unsure = 0
        most = min(FIRST_BLOCKS, BATCH_BLOCKS) if self._query.limit is None else 1
        found = block_slices if self._of_keys else slices_ahead
        for part in found(self._reader, self._query, row_spans, index_matches):
            if not group and index_matches.repeated and self._query.limit is None:
                times = CACHED_BATCHES if self._reader.is_block_cached(part.number) else 1
            group.append(part)
            stored += part.end - part.offset
            if not self._block_bytes:
                unsure += part.block_rows <= FEW_ROWS
            large = (len(group) + 1) * self._block_bytes > self._batch_bytes
            if large or len(group) + unsure >= most * times or stored >= BATCH_STORED_BYTES * times:
                yield group
                group, stored, unsure = [], 0, 0
                most = BATCH_BLOCKS if self._query.limit is None else min(2 * most, BATCH_BLOCKS)
        if group:
            yield group

    def _blocks(
        self, group: list[BlockSlice], index_matches: IndexMatches, columns: Sequence[str], test: Test | None = None
    ) -> BlockGroup:
        """The blocks of slices, for these columns and those of conditions; if the query was asked before, the decoded
        data is cached.
        """
        kind = CachedGroup if index_matches.repeated else BlockGroup
        blocks = kind(self._reader, group[::-1] if self._query.reverse else group)
        blocks.texts, blocks.paths = self._texts, self._paths
        blocks.chunks = self._chunks(columns, test)
        return blocks

    def _chunks(self, columns: Sequence[str], test: Test | None) -> tuple[int, ...]:
        """Numbers of the chunks of data blocks that columns and conditions need."""
        names = {*columns, *(name for name, _ in self._query.conditions)}
        if test is not None:
            names.update(test.columns, test.required_texts)
        if self._query.timed:
            names.add("timestamp")
        schema: EventSchema = self._reader.schema
        return schema.chunks(DATA_COLUMN if name in self._paths else name for name in names)

    def _read_group(
        self, group: list[BlockSlice], columns: Sequence[str], index_matches: IndexMatches
    ) -> pa.RecordBatch:
        rows = group[0].first, group[-1].last, tuple(columns), self._texts
        batch: pa.RecordBatch | None = self._reader.pages.find(rows) if self._page else None
        if batch is None:
            batch = self._decoded(group, columns, index_matches)
            if self._page:
                self._reader.pages.keep(rows, batch, batch.get_total_buffer_size() + OBJECT_BYTES * (1 + len(columns)))
        self._block_bytes = batch.get_total_buffer_size() // len(group)
        return batch

    def _decoded(self, group: list[BlockSlice], columns: Sequence[str], index_matches: IndexMatches) -> pa.RecordBatch:
        schema = self._reader.schema.select(columns)
        rows = self._find(group, index_matches, columns)
        if rows is None:
            return pa.RecordBatch.from_pylist([], schema)
        return rows.complete(schema, reverse=self._query.reverse)

    def _find(
        self, group: list[BlockSlice], index_matches: IndexMatches, columns: Sequence[str], test: Test | None = None
    ) -> MatchedRows | None:
        """The rows of a group that match the query; None if there are none. Decodes no block without such rows.

        columns: those that will be decoded.
        """
        blocks = self._blocks(group, index_matches, columns, test)
        places = blocks.select(self._query, index_matches)
        all_match = False
        if test is not None and test.required_texts and (places is None or len(places)):
            places, all_match = blocks.rows_that_may_contain(test.required_texts, places)
            if places is not None and len(places):
                blocks, places = blocks.part(places)
        if places is not None and not len(places):
            return None
        if test is None or test.matches is None or (all_match and test.suffices):
            return MatchedRows(blocks, None) if places is None else MatchedRows(*blocks.part(places))
        looked_at = blocks.to_batch(test.columns, places)
        mask = test.matches(looked_at)
        found = np.flatnonzero(np.asarray(mask))
        if not len(found):
            return None
        every = len(found) == len(looked_at)
        shown = [name for name in test.columns if name in self.column_names]
        seen = looked_at.select(shown) if shown else None  # the other columns were decoded for the test only
        if not every:
            seen = None if seen is None else seen.filter(mask)
            blocks, places = blocks.part(found if places is None else places[found])
        return MatchedRows(blocks, places, seen)

    def _gathered(
        self,
        groups: Iterator[list[BlockSlice]],
        schema: pa.Schema,
        index_matches: IndexMatches,
        test: Test | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """The matching rows in the columns of a schema; if few rows match, those of several groups together."""
        reverse = self._query.reverse
        enough = test is not None and set(schema.names) <= set(test.columns)

        def read(group: list[BlockSlice]) -> MatchedRows | pa.RecordBatch:
            self._passed_rows = group[-1].last
            rows = self._find(group, index_matches, schema.names, test)
            if rows is None:
                return _NOTHING
            alone = enough or rows.places is None or index_matches.repeated
            if not alone and self._row_bytes and not rows.fills(self._most_gathered()):
                return rows
            batch = rows.complete(schema, reverse=reverse)
            size = batch.get_total_buffer_size()  # a tenth of the work of `nbytes`
            self._block_bytes, self._row_bytes = size // len(group), 1 + size // len(batch)
            self._decompressed_bytes = rows.blocks.decompressed_bytes
            return batch

        return completed(self._in_parallel(groups, read), schema, self._most_gathered, reverse=reverse)

    def _most_gathered(self) -> int:
        """Maximum rows of several groups to decode together."""
        return min(GATHERED_ROWS, self._batch_bytes // max(1, self._row_bytes))

    def _read_matching(self, test: Test) -> Iterator[pa.RecordBatch]:
        wanted, index_matches = self.column_names, self._match_indexes_to_read()
        if index_matches.nothing:
            return iter(())
        if self._merged:
            every = self.__copy__()  # without the limit, which counts only the rows found
            every._query = first_of(self._query, None, self._query.columns)
            if test.matches is None:
                return every._read_batches(wanted)
            return filtered(every._read_batches(tuple(dict.fromkeys([*wanted, *test.columns]))), wanted, test)
        groups = self._groups(
            self._directed(index_matches), index_matches, SPARSE_BATCHES if test.required_texts else 1
        )
        if self._query.limit is None:
            return self._gathered(groups, self.schema, index_matches, test)
        found = (self._find(group, index_matches, self.column_names, test) for group in groups)
        return (rows.complete(self.schema, reverse=self._query.reverse) for rows in found if rows)

    def _in_parallel(self, groups: Iterator[list[BlockSlice]], read: Callable[[list[BlockSlice]], T]) -> Iterator[T]:
        """Read each group, in order; with threads, a few groups ahead, if much data is decompressed for the rows.

        Other work is not worth threads: most steps of it are short, and a thread would wait for the GIL.
        """
        threads = self._threads or THREADS
        yield from (rows for rows in map(read, islice(groups, 1)) if len(rows))  # measures the decoded size of blocks
        few = list(islice(groups, MIN_PARALLEL_BATCHES))
        if len(few) < MIN_PARALLEL_BATCHES or threads == 1 or self._decompressed_bytes < PARALLEL_BYTES:
            yield from (rows for rows in map(read, chain(few, groups)) if len(rows))
            return
        pool = ThreadPoolExecutor(threads, thread_name_prefix="esformat-scan")
        pending: deque[Future[T]] = deque()
        try:
            for group in chain(few, groups):
                pending.append(pool.submit(read, group))
                if len(pending) > threads + 1 and len(rows := pending.popleft().result()):
                    yield rows
            while pending:
                if len(rows := pending.popleft().result()):
                    yield rows
        finally:
            pool.shutdown(wait=False, cancel_futures=True)

    def _merge_sources(self, columns: Sequence[str], index_matches: IndexMatches) -> Iterator[Stream]:
        """Streams in time order: one for each long run, and one for each group of short runs, which are sorted."""
        query = self._query
        read = list(dict.fromkeys([*columns, "timestamp"]))
        groups = list(gathered(by_run(self._row_spans(), self._reader), self._reader))
        announce_groups(self._reader, query, groups)
        for number, runs in enumerate(groups):
            low, high = self._time_bounds(runs)
            row_spans = [row_span for run in runs for row_span in run]

            def batches(row_spans: list[RowSpan] = row_spans, sort: bool = len(runs) > 1) -> Iterator[pa.RecordBatch]:
                if sort:
                    return self._read_sorted(row_spans, read, index_matches)
                ordered = row_spans[::-1] if query.reverse else row_spans
                return self._read_lazily(self._groups(ordered, index_matches), read, index_matches)

            yield Stream((high if query.reverse else low,), number, batches)

    def _time_bounds(self, runs: list[list[RowSpan]]) -> tuple[int, int]:
        """The earliest and the latest timestamp of some runs, or bounds of them, from the directory."""
        low, high = [], []
        for row_span in chain.from_iterable(runs):
            leaf = self._reader.leaf(row_span.leaf, keys=False)
            blocks = slice(leaf.block_of(row_span.first), leaf.block_of(row_span.last - 1) + 1)
            low.append(min(leaf.block_min[blocks]))
            high.append(max(leaf.block_max[blocks]))
        return min(low), max(high)

    def _read_sorted(
        self, row_spans: list[RowSpan], columns: Sequence[str], index_matches: IndexMatches
    ) -> Iterator[pa.RecordBatch]:
        """The rows of several short runs as one batch in time order."""
        forward = Scan(self._reader, oldest_first(self._query), lambda: joined(row_spans), span=self._span)
        groups = forward._groups(forward._row_spans(), index_matches)
        batches = [forward._read_group(group, columns, index_matches) for group in groups]
        table = pa.Table.from_batches(batches, schema=pa.schema([self._reader.schema.arrow.field(c) for c in columns]))
        order = np.argsort(np.asarray(table["timestamp"].cast(pa.int64()).to_numpy()), kind="stable")
        ordered = table.take(pa.array(order[::-1] if self._query.reverse else order)).combine_chunks()
        yield from (batch for batch in ordered.to_batches() if len(batch))

    def _count(self) -> int:
        if self._whole and len(self._query.conditions) == 1 and not self._query.timed:
            ((name, value),) = self._query.conditions
            posting = Index(self._reader, name).find(value)
            return 0 if posting is None else posting.count
        index_matches = self._match_indexes_to_read()
        if index_matches.nothing:
            return 0
        if not self._query.filtered:
            return sum(row_span.last - row_span.first for row_span in self._row_spans())
        found = slices_ahead(
            self._reader,
            oldest_first(self._query),
            self._row_spans(),
            index_matches,
            lambda p: not self._is_known(p, index_matches),
        )
        return sum(self._count_slice(part, index_matches) for part in found)

    def _is_known(self, part: BlockSlice, index_matches: IndexMatches) -> bool:
        """Whether the directory and the indexes determine which rows of a slice match."""
        return not index_matches.unmet and self._query.covers(part.min_timestamp, part.max_timestamp)

    def _count_slice(self, part: BlockSlice, index_matches: IndexMatches) -> int:
        if self._is_known(part, index_matches):
            return part.last - part.first if part.rows is None else len(part.rows)
        if part.run_start >= 0 and self._span[1] - self._span[0] <= MOST_RUN_ROWS:
            block = self._reader.data_block(part.leaf, part.block)
            with self._reader.named:
                few = find_rows(self._reader, self._query, part, block, index_matches)
            return part.last - part.first if few is None else len(few)
        group = self._blocks([part], index_matches, ())
        rows = group.select(self._query, index_matches)
        return group.row_count if rows is None else len(rows)


def passed_rows(scan: Scan) -> int:
    """The number of rows, from the segment's first, that a scan of all rows has read or skipped; 0 if unknown."""
    return scan._passed_rows


def _first_of(row_spans: Iterable[RowSpan], count: int, *, reverse: bool) -> Iterator[RowSpan]:
    """The first `count` rows of directed row spans; with `reverse`, a row span that is cut keeps its last rows."""
    for row_span in row_spans:
        if not count:
            return
        size = min(count, row_span.last - row_span.first)
        first = row_span.last - size if reverse else row_span.first
        yield part_of(row_span, first, first + size)
        count -= size


def first_rows(batches: Iterable[pa.RecordBatch], limit: int) -> Iterator[pa.RecordBatch]:
    """The first `limit` rows of batches. Takes no batch after them."""
    for batch in batches:
        yield batch.slice(0, limit)
        limit -= min(limit, len(batch))
        if not limit:
            return
