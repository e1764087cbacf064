"""Events as a `pyarrow.dataset.Dataset`, which DuckDB, Polars, pandas and pyarrow itself query with push-down.

An engine asks a dataset for some columns and the rows that satisfy a filter. The filter's conditions on space,
grouping, timestamp and indexed columns determine which blocks are read. If it has other conditions, pyarrow then
applies the whole filter to the rows, so the result never depends on how much of the filter was understood.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from itertools import chain, islice
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from pyarrow import acero
from pyarrow.fs import LocalFileSystem

from esformat.errors import UsageError
from esformat.format.arrays import TextForm, slices_mislead
from esformat.format.data_block import I64
from esformat.format.schema import ROW_COUNT_COLUMNS, EventSchema
from esformat.read.ask.arrow_filter import Step, take_apart
from esformat.read.ask.bounds import UNBOUNDED, Bounded, Bounds, Domain, bounded_by, bounded_by_all, columns_of, meet
from esformat.read.blocks.reader import Reader
from esformat.read.decode.matched_rows import RequiredTexts
from esformat.read.dictionaries import coded_columns, in_dictionaries, in_forms_of
from esformat.read.newest import extreme_times
from esformat.read.selection import gives_exactly, select
from esformat.read.tally import tally

__all__ = ["EventDataset", "EventScanner", "Events", "SegmentEvents", "Watch"]

BATCH_ROWS = 131_072  # pyarrow's own default for `batch_size`
SLICED_ROWS = 32_768  # pyarrow filters larger batches in slices of this many rows
FEW_SPACES = 16


class Events(Protocol):
    """The events that a dataset reads: of one segment, or of several."""

    @property
    def schema(self) -> EventSchema:
        """Columns of the events."""
        ...

    @property
    def arrow(self) -> pa.Schema:
        """The same columns with the types of the batches: text may be in dictionaries."""
        ...

    @property
    def num_events(self) -> int:
        """The number of events."""
        ...

    @property
    def most_events(self) -> int:
        """An upper bound of the number of events, from metadata alone."""
        ...

    def batches(self, bounds: Bounds, columns: Sequence[str], *, lazily: bool) -> Iterator[pa.RecordBatch]:
        """The named columns (at least one) of at least the events within bounds. lazily: as in `select`."""
        ...

    def requiring(self, required_texts: RequiredTexts) -> Events:
        """The same events, perhaps without some whose value in a column contains no text of a list."""
        ...

    def gives_exactly(self, bounds: Bounds) -> bool:
        """Whether `batches` yields only events within bounds."""
        ...

    def blocks(self, bounds: Bounds) -> tuple[int, int]:
        """The number of data blocks read for the events within bounds, and the number of all data blocks."""
        ...

    def extreme_times(self, count: int, *, newest: bool) -> I64:
        """The `count` latest timestamps, or the earliest, µs, in any order; all of them if there are fewer events."""
        ...

    def tally(self, names: Sequence[str], count_name: str, *, timed: bool) -> pa.Table | None:
        """Combinations of values of some columns with their numbers of events; see `esformat.read.tally`."""
        ...


class Watch(Protocol):
    """An observer of the scans that an engine makes of a dataset."""

    @property
    def dry(self) -> bool:
        """Whether scans yield no rows, and instead report what they would read."""
        ...

    def began(self, read: int, blocks: int, columns: list[str]) -> None:
        """Called by a dry scan, which would read some columns of `read` blocks out of `blocks`."""
        ...

    def failed(self, error: Exception) -> None:
        """Called if a scan ends with an error."""
        ...


class SegmentEvents:
    """The events of one open segment. texts: the form of text that is stored as codes. Some batches may have plain text
    instead of views; an indexed column has dictionaries in all batches or in none.
    """

    def __init__(self, reader: Reader, texts: TextForm = TextForm.PLAIN) -> None:
        """Raises CorruptSegmentError."""
        self._reader = reader
        self._texts = texts
        self._required_texts: RequiredTexts = {}
        self.schema = reader.schema
        coded = coded_columns(reader) if texts is TextForm.DICTIONARIES else []
        self.arrow = in_dictionaries(reader.schema.arrow, coded)
        self.num_events = self.most_events = reader.statistics.events

    def batches(self, bounds: Bounds, columns: Sequence[str], *, lazily: bool) -> Iterator[pa.RecordBatch]:
        """At least the events within bounds, in the order of the file."""
        scan = select(self._reader, bounds, columns, lazily=lazily)
        batches = scan.with_texts(self._texts).candidates(self._required_texts)
        return in_forms_of(batches, self.arrow) if self._texts is TextForm.DICTIONARIES else batches

    def requiring(self, required_texts: RequiredTexts) -> SegmentEvents:
        """The same events, perhaps without some that do not contain the texts."""
        events = copy(self)
        events._required_texts = required_texts
        return events

    def gives_exactly(self, bounds: Bounds) -> bool:
        """Whether `batches` yields only events within bounds."""
        return gives_exactly(bounds)

    def blocks(self, bounds: Bounds) -> tuple[int, int]:
        """The number of data blocks read for the events within bounds, and the number of all data blocks."""
        found, blocks = select(self._reader, bounds, ["timestamp"]).blocks()
        return len(found), blocks

    def extreme_times(self, count: int, *, newest: bool) -> I64:
        """The `count` latest timestamps, or the earliest, µs; reads the blocks that can contain them."""
        return extreme_times(self._reader, count, newest=newest)

    def tally(self, names: Sequence[str], count_name: str, *, timed: bool) -> pa.Table | None:
        """Combinations of values with their numbers of events; None if codes do not suffice."""
        return tally(self._reader, names, count_name, timed=timed)


_ELSEWHERE = "(none: a dataset of esformat is read with its scanner(), to_table() and to_batches() alone)"


_NOT_SAID: Any = object()


class EventDataset(ds.UnionDataset):  # type: ignore[misc]  # pyarrow ships no types
    """Events as pyarrow, DuckDB (`FROM dataset`) and Polars (`scan_pyarrow_dataset`) read them. Created by `dataset()`.

    Reads on demand, any number of times, from any thread, while the segment or collection is open. Rows are in the
    order of the file: by space, grouping and timestamp.
    """

    def __init__(
        self,
        events: Events,
        filter: pc.Expression | None = None,
        watch: Watch | None = None,
        bounds: Bounds = UNBOUNDED,
    ) -> None:
        """bounds: from `exact_bounds`."""
        schema = events.arrow
        # For C++ code of pyarrow that bypasses Python: an empty source, so that it neither crashes nor returns rows.
        nowhere = ds.FileSystemDataset.from_paths(
            [_ELSEWHERE], schema=schema, format=ds.IpcFileFormat(), filesystem=LocalFileSystem()
        )
        super().__init__(schema, [nowhere])
        self.events = events
        """The events that the dataset reads."""
        self._filter = filter
        self._watch = watch
        self._bounds = bounds

    def __reduce__(self) -> Any:
        raise UsageError("a dataset of an open file cannot be pickled", hint="open the file in the other process")

    @property
    def children(self) -> list[ds.Dataset]:
        """The datasets that this one consists of: none."""
        return []

    def scanner(
        self, columns: Any = _NOT_SAID, filter: Any = None, batch_size: int = BATCH_ROWS, **options: Any
    ) -> EventScanner | ds.Scanner:
        """A scanner for some columns of the rows that satisfy a filter.

        columns: names, or expressions by name; None: all. batch_size: maximum rows. Other options of pyarrow's
        scanners are accepted and ignored. Raises pyarrow's errors for columns or a filter that do not fit the schema.
        """
        # For `write_dataset`, which takes only pyarrow's class. Not used otherwise: if a reader stops early, the
        # threads of pyarrow's scanner keep the process from ending.
        if columns is _NOT_SAID and filter is None and "use_threads" in options:
            whole = self._scanner(None, None, batch_size)
            return ds.Scanner.from_batches(whole.to_reader(), batch_size=batch_size, **options)
        return self._scanner(None if columns is _NOT_SAID else columns, filter, batch_size, self._watch)

    def _scanner(self, columns: Any, filter: Any, batch_size: int, watch: Watch | None = None) -> EventScanner:
        scanner = EventScanner(self.events, columns, self._with(filter), batch_size, watch)
        return scanner.within(self._bounds) if self._bounds else scanner

    def watched(self, watch: Watch) -> EventDataset:
        """The same dataset, with an observer of its scans."""
        return EventDataset(self.events, self._filter, watch, self._bounds)

    def reading(self, events: Events) -> EventDataset:
        """A dataset of other events, with the same filter and observer."""
        return EventDataset(events, self._filter, self._watch, self._bounds)

    def filter(self, expression: pc.Expression) -> EventDataset:
        """The same dataset, restricted to events that satisfy an expression."""
        return EventDataset(self.events, self._with(expression), self._watch, self._bounds)

    def of_spaces(self, spaces: Sequence[str]) -> EventDataset:
        """The same dataset, restricted to some spaces."""
        bounds = self.exact_bounds([("space", "IN", spaces)])
        if bounds is None:
            return self.filter(pc.field("space").isin(pa.array(spaces, pa.string())))
        return EventDataset(self.events, self._filter, self._watch, meet(self._bounds, bounds))

    def requiring(self, required_texts: RequiredTexts) -> EventDataset:
        """The same dataset, perhaps without some events whose value in a column contains no text of a list; the caller
        must still filter. held: for columns of text or binary, such lists.
        """
        return self.reading(self.events.requiring(required_texts))

    def _with(self, filter: pc.Expression | None) -> pc.Expression | None:
        if self._filter is None:
            return filter
        return self._filter if filter is None else self._filter & filter

    def head(self, num_rows: int, columns: Any = None, filter: pc.Expression | None = None, **options: Any) -> pa.Table:
        """The first rows. Reads no more than they need."""
        return self._scanner(columns, filter, BATCH_ROWS).head(num_rows)

    def count_rows(self, filter: pc.Expression | None = None, **options: Any) -> int:
        """The number of rows that satisfy a filter; without a filter, from the metadata alone."""
        return self._scanner(None, filter, BATCH_ROWS).count_rows()

    def exact_bounds(self, comparisons: Sequence[tuple[str, str, Any]]) -> Bounds | None:
        """The bounds of comparisons that must all hold, as in `bounded_by_all`; None if the bounds are not exact."""
        bounded = bounded_by_all(comparisons, self.events.schema)
        return bounded.bounds if bounded.exact and self.events.gives_exactly(bounded.bounds) else None

    def nth_time(self, count: int, *, newest: bool) -> int | None:
        """The timestamp of the `count`-th newest event, or the `count`-th oldest, µs; None if there are fewer."""
        times = self.events.extreme_times(count, newest=newest)
        return None if len(times) < count or not count else int(times.min() if newest else times.max())

    def tally(self, names: Sequence[str], count_name: str, *, timed: bool = False) -> pa.Table | None:
        """The combinations of values of some columns, with their numbers of events in a column `count_name`.

        timed: with a column `timestamp`. A combination then has two rows: one for its latest event, and one for all
        others, with the timestamp of the earliest. Returns None if codes do not suffice, or if rows are restricted.
        """
        restricted = self._filter is not None or self._bounds
        return None if restricted else self.events.tally(names, count_name, timed=timed)

    def get_fragments(self, filter: pc.Expression | None = None) -> Iterator[EventFragment]:
        """The whole dataset as one fragment, for engines that scan fragments from Python, such as DataFusion."""
        yield EventFragment(self)

    def replace_schema(self, schema: pa.Schema) -> Any:
        """Raises UsageError."""
        raise UsageError("the schema of a file cannot be replaced", hint="cast the batches of to_batches()")

    def sort_by(self, sorting: Any, **options: Any) -> ds.InMemoryDataset:
        """All rows in memory, sorted."""
        return self._in_memory().sort_by(sorting, **options)

    def join(self, right_dataset: ds.Dataset, *arguments: Any, **options: Any) -> ds.InMemoryDataset:
        """All rows in memory, joined like `pyarrow.dataset.Dataset.join`."""
        return self._in_memory().join(_readable(right_dataset), *arguments, **options)

    def join_asof(self, right_dataset: ds.Dataset, *arguments: Any, **options: Any) -> ds.InMemoryDataset:
        """All rows in memory, joined like `pyarrow.dataset.Dataset.join_asof`."""
        return self._in_memory().join_asof(_readable(right_dataset), *arguments, **options)

    def _in_memory(self) -> ds.InMemoryDataset:
        return ds.InMemoryDataset(self.to_table())


def _readable(dataset: ds.Dataset) -> ds.Dataset:
    """The same dataset in a form that pyarrow's C++ can read: an EventDataset is loaded into memory."""
    return dataset._in_memory() if isinstance(dataset, EventDataset) else dataset


def _projected(schema: pa.Schema, columns: Any, filter: pc.Expression | None) -> pa.Schema:
    """The schema of the result. Unless only names are selected, pyarrow determines it and checks columns and filter."""
    if filter is None and isinstance(columns, list):
        places = [schema.get_field_index(name) for name in columns if isinstance(name, str)]
        if len(places) == len(columns) and min(places, default=0) >= 0:
            return pa.schema([schema.field(place) for place in places])
    checked = ds.Scanner.from_batches((), schema=schema, columns=columns, filter=filter)
    return checked.projected_schema


class EventFragment:
    """All events of a dataset, for an engine that asks for fragments."""

    def __init__(self, dataset: EventDataset) -> None:
        self._dataset = dataset
        self.physical_schema: pa.Schema = dataset.schema

    def __reduce__(self) -> Any:
        return self._dataset.__reduce__()

    def scanner(self, schema: pa.Schema | None = None, **options: Any) -> EventScanner | ds.Scanner:
        """Like `EventDataset.scanner`. schema: ignored; it is the dataset's own."""
        return self._dataset.scanner(**options)


class EventScanner:
    """Reads some columns of the rows that satisfy a filter. Each use reads from the start."""

    def __init__(
        self, events: Events, columns: Any, filter: pc.Expression | None, batch_size: int, watch: Watch | None = None
    ) -> None:
        """Created by `EventDataset.scanner`."""
        if batch_size < 1:
            raise UsageError(f"batch_size must be at least 1, not {batch_size}")
        schema = events.arrow
        self.dataset_schema: pa.Schema = schema
        self.projected_schema: pa.Schema = _projected(schema, columns, filter)
        self._events = events
        self._requested, self._filter = filter, filter
        self._batch_size = batch_size
        self._watch = watch
        self._projection = columns if isinstance(columns, Mapping) else None
        steps = None if filter is None else take_apart(filter)
        bounded = Bounded(UNBOUNDED, exact=filter is None) if steps is None else bounded_by(steps, events.schema)
        self._bounds = bounded.bounds
        if bounded.exact and events.gives_exactly(bounded.bounds):
            self._filter = None  # the bounds express all of it
        self._names = self._needed(steps)

    def _needed(self, steps: list[Step] | None) -> list[str]:
        """Columns to read, in the order of the schema: all of them if an expression is not understood."""
        names: list[str] = self.dataset_schema.names
        needed: set[str] = set()
        looked_at = [] if self._filter is None else [steps]
        looked_at += [take_apart(expression) for expression in (self._projection or {}).values()]
        for expression_steps in looked_at:
            if expression_steps is None:
                return names
            needed |= columns_of(expression_steps)
        if self._projection is None:
            needed |= set(self.projected_schema.names)
        return [name for name in names if name in needed] or list(ROW_COUNT_COLUMNS)

    def within(self, bounds: Bounds) -> EventScanner:
        """The same scanner, restricted to bounds that `EventDataset.exact_bounds` returned."""
        made: EventScanner = EventScanner.__new__(EventScanner)
        made.__dict__ |= self.__dict__  # `copy` takes ten times as long
        made._bounds = meet(self._bounds, bounds)
        return made

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """The rows as record batches, in order, read as they are consumed."""
        return self._batches(lazily=False) if self._watch is None else self._watched(self._watch)

    def to_reader(self) -> pa.RecordBatchReader:
        """The rows as a pyarrow stream. Rows of a few spaces are read immediately if they fit one batch: a stream of
        Python batches takes the GIL for each batch, in a thread of the engine, which dominates the cost of a short
        result.
        """
        batches, schema = self.to_batches(), self.projected_schema
        listed = self._bounds.get("space", Domain()).listed
        begun = [] if listed is None or len(listed) > FEW_SPACES or not schema.names else list(islice(batches, 2))
        if len(begun) == 1:
            return pa.Table.from_batches(begun, schema).to_reader()
        return pa.RecordBatchReader.from_batches(schema, chain(begun, batches))

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """The rows as an Arrow C stream."""
        return self.to_reader().__arrow_c_stream__(requested_schema)

    def to_table(self) -> pa.Table:
        """All rows as one table."""
        return pa.Table.from_batches(self.to_batches(), schema=self.projected_schema)

    def head(self, num_rows: int) -> pa.Table:
        """The first rows. Reads no more than they need."""
        batches = []
        for batch in self._batches(lazily=True) if num_rows > 0 else ():
            batches.append(batch.slice(0, num_rows))
            num_rows -= len(batches[-1])
            if not num_rows:
                break
        return pa.Table.from_batches(batches, schema=self.projected_schema)

    def take(self, indices: Any) -> pa.Table:
        """Rows by their positions in the result."""
        return self.to_table().take(indices)

    def count_rows(self) -> int:
        """The number of rows; without a filter, from the metadata alone."""
        if self._is_whole:
            return self._events.num_events
        counted = EventScanner(self._events, [], self._requested, self._batch_size).within(self._bounds)
        return sum(len(batch) for batch in counted.to_batches())

    @property
    def _is_whole(self) -> bool:
        """Whether the result has every row."""
        return self._filter is None and not self._bounds

    def _watched(self, watch: Watch) -> Iterator[pa.RecordBatch]:
        try:
            if watch.dry:
                watch.began(*self._events.blocks(self._bounds), self._names)
                return
            yield from self._batches(lazily=False)
        except Exception as error:
            watch.failed(error)
            raise

    def _batches(self, *, lazily: bool) -> Iterator[pa.RecordBatch]:
        if self._is_whole and not self.projected_schema.names:
            yield from self._empty_rows(self._events.num_events)
            return
        batches = self._events.batches(self._bounds, self._names, lazily=lazily)
        for batch in batches if self._filter is None else chain.from_iterable(map(_as_filtered, batches)):
            for part in self._projected(batch):
                if 0 < len(part) <= self._batch_size:
                    yield part
                    continue
                for at in range(0, len(part), self._batch_size):
                    yield part.slice(at, self._batch_size)

    def _empty_rows(self, count: int) -> Iterator[pa.RecordBatch]:
        """`count` rows without columns, for which nothing is read."""
        for at in range(0, count, self._batch_size):
            rows = pa.nulls(min(self._batch_size, count - at))
            yield pa.RecordBatch.from_arrays([rows], ["nothing"]).select([])

    def _projected(self, batch: pa.RecordBatch) -> list[pa.RecordBatch]:
        """The rows of a batch that satisfy the filter, with the selected columns."""
        if self._projection is not None:
            scanner = ds.Scanner.from_batches(
                [batch], schema=batch.schema, columns=self._projection, filter=self._filter, use_threads=False
            )
            return list(scanner.to_batches())
        batches = [batch] if self._filter is None else matching(batch, self._filter)
        if batch.schema.names == self.projected_schema.names:
            return batches
        return [found.select(self.projected_schema.names) for found in batches]


def _as_filtered(batch: pa.RecordBatch) -> list[pa.RecordBatch]:
    """A batch cut into the pieces that pyarrow filters, if pyarrow's own slices would be wrong; else the batch."""
    if not slices_mislead(batch.schema):
        return [batch]
    return [pa.concat_batches([batch.slice(at, SLICED_ROWS)]) for at in range(0, len(batch), SLICED_ROWS)]


def matching(batch: pa.RecordBatch, filter: pc.Expression) -> list[pa.RecordBatch]:
    """The rows of a batch that satisfy a filter, in order. Takes a third of the time of `RecordBatch.filter`."""
    table = acero.TableSourceNodeOptions(pa.Table.from_batches([batch]))
    plan = acero.Declaration.from_sequence(
        [acero.Declaration("table_source", table), acero.Declaration("filter", acero.FilterNodeOptions(filter))]
    )
    return list(plan.to_table(use_threads=False).to_batches())
