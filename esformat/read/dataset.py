"""Events as a `pyarrow.dataset.Dataset`: what DuckDB, Polars, pandas and pyarrow itself query with push-down.

An engine asks a dataset for some columns and the rows of a filter. What the filter says about space, grouping,
timestamp and indexed columns decides which blocks are read; unless that is all it says, pyarrow then applies the whole
filter to what they hold, so an answer never depends on how much of a filter was understood.
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
from esformat.format.schema import ROWS_ALONE, EventSchema
from esformat.read.ask.arrow_filter import Step, take_apart
from esformat.read.ask.bounds import UNBOUNDED, Bounded, Bounds, Domain, bounded_by, bounded_by_all, columns_of, meet
from esformat.read.blocks.reader import Reader
from esformat.read.decode.matched_rows import Held
from esformat.read.dictionaries import coded_columns, in_dictionaries, in_forms_of
from esformat.read.newest import extreme_times
from esformat.read.selection import gives_exactly, select
from esformat.read.tally import tally

__all__ = ["EventDataset", "EventScanner", "Events", "SegmentEvents", "Watch"]

BATCH_ROWS = 131_072  # pyarrow's own default for `batch_size`
SLICED_ROWS = 32_768  # of larger batches, pyarrow filters slices
FEW_SPACES = 16


class Events(Protocol):
    """What a dataset reads: one segment, or several."""

    @property
    def schema(self) -> EventSchema:
        """Columns of the events."""
        ...

    @property
    def arrow(self) -> pa.Schema:
        """The same columns as they are given: text may be in dictionaries."""
        ...

    @property
    def num_events(self) -> int:
        """How many there are."""
        ...

    @property
    def most_events(self) -> int:
        """How many there are at most, as metadata alone tells."""
        ...

    def batches(self, bounds: Bounds, columns: Sequence[str], *, lazily: bool) -> Iterator[pa.RecordBatch]:
        """The named columns (at least one) of at least the events within bounds. lazily: as in `select`."""
        ...

    def holding(self, held: Held) -> Events:
        """The same events, perhaps without some whose value in a column holds none of a list of texts."""
        ...

    def gives_exactly(self, bounds: Bounds) -> bool:
        """Whether `batches` gives no other events than those within bounds."""
        ...

    def blocks(self, bounds: Bounds) -> tuple[int, int]:
        """How many data blocks are read for the events within bounds, and how many there are."""
        ...

    def extreme_times(self, count: int, *, newest: bool) -> I64:
        """The `count` latest timestamps, or the earliest, µs, in any order; all where there are fewer events."""
        ...

    def tally(self, names: Sequence[str], count_name: str, *, timed: bool) -> pa.Table | None:
        """Combinations of values of some columns and how many events have each, as `esformat.read.tally` gives them."""
        ...


class Watch(Protocol):
    """Who is told of the scans that an engine makes of a dataset."""

    @property
    def dry(self) -> bool:
        """Whether scans give no rows, and tell what they would read instead."""
        ...

    def began(self, read: int, blocks: int, columns: list[str]) -> None:
        """A dry scan would read some columns of so many of so many blocks."""
        ...

    def failed(self, error: Exception) -> None:
        """A scan ends with an error."""
        ...


class SegmentEvents:
    """The events of one open segment. texts: how text is given that has codes; views are given where that is less work,
    the column of an index as dictionaries everywhere or nowhere.
    """

    def __init__(self, reader: Reader, texts: TextForm = TextForm.PLAIN) -> None:
        """Raises CorruptSegmentError."""
        self._reader = reader
        self._texts = texts
        self._held: Held = {}
        self.schema = reader.schema
        coded = coded_columns(reader) if texts is TextForm.DICTIONARIES else []
        self.arrow = in_dictionaries(reader.schema.arrow, coded)
        self.num_events = self.most_events = reader.statistics.events

    def batches(self, bounds: Bounds, columns: Sequence[str], *, lazily: bool) -> Iterator[pa.RecordBatch]:
        """At least the events within bounds, in the order of the file."""
        scan = select(self._reader, bounds, columns, lazily=lazily)
        batches = scan.with_texts(self._texts).candidates(self._held)
        return in_forms_of(batches, self.arrow) if self._texts is TextForm.DICTIONARIES else batches

    def holding(self, held: Held) -> SegmentEvents:
        """The same events, perhaps without some that lack texts."""
        events = copy(self)
        events._held = held
        return events

    def gives_exactly(self, bounds: Bounds) -> bool:
        """Whether those are the only ones."""
        return gives_exactly(bounds)

    def blocks(self, bounds: Bounds) -> tuple[int, int]:
        """How many data blocks are read for the events within bounds, and how many there are."""
        found, blocks = select(self._reader, bounds, ["timestamp"]).blocks()
        return len(found), blocks

    def extreme_times(self, count: int, *, newest: bool) -> I64:
        """The `count` latest timestamps, or the earliest, µs; reads the blocks that can hold them."""
        return extreme_times(self._reader, count, newest=newest)

    def tally(self, names: Sequence[str], count_name: str, *, timed: bool) -> pa.Table | None:
        """Combinations of values and how many events have each; None where codes do not tell."""
        return tally(self._reader, names, count_name, timed=timed)


_ELSEWHERE = "(none: a dataset of esformat is read with its scanner(), to_table() and to_batches() alone)"


_NOT_SAID: Any = object()


class EventDataset(ds.UnionDataset):  # type: ignore[misc]  # pyarrow ships no types
    """Events as pyarrow, DuckDB (`FROM dataset`) and Polars (`scan_pyarrow_dataset`) read them. Made by `dataset()`.

    Reads on demand, any number of times, from several threads, for as long as what it was made of is open. Rows come in
    the order of the file: by space, grouping, timestamp.
    """

    def __init__(self, events: Events, filter: pc.Expression | None = None, watch: Watch | None = None) -> None:
        schema = events.arrow
        # What pyarrow's C++ finds where it does not ask Python: nothing to crash on, and nothing to answer from.
        nowhere = ds.FileSystemDataset.from_paths(
            [_ELSEWHERE], schema=schema, format=ds.IpcFileFormat(), filesystem=LocalFileSystem()
        )
        super().__init__(schema, [nowhere])
        self.events = events
        """What is read."""
        self._filter = filter
        self._watch = watch

    def __reduce__(self) -> Any:
        raise UsageError("a dataset of an open file cannot be pickled", hint="open the file where it is needed")

    @property
    def children(self) -> list[ds.Dataset]:
        """Datasets within this one: none."""
        return []

    def scanner(
        self, columns: Any = _NOT_SAID, filter: Any = None, batch_size: int = BATCH_ROWS, **options: Any
    ) -> EventScanner | ds.Scanner:
        """What reads some columns of the rows that a filter is true of.

        columns: names, or expressions by name; None: all. batch_size: most rows of a batch. Other options of pyarrow's
        scanners are accepted and mean nothing here. Raises pyarrow's errors for columns or a filter that do not fit.
        """
        # `write_dataset` takes pyarrow's own class only, whose threads keep a process from ending that reads no further
        if columns is _NOT_SAID and filter is None and "use_threads" in options:
            whole = EventScanner(self.events, None, self._filter, batch_size)
            return ds.Scanner.from_batches(whole.to_reader(), batch_size=batch_size, **options)
        columns = None if columns is _NOT_SAID else columns
        return EventScanner(self.events, columns, self._with(filter), batch_size, self._watch)

    def watched(self, watch: Watch) -> EventDataset:
        """The same events; somebody is told of each scan of them."""
        return EventDataset(self.events, self._filter, watch)

    def reading(self, events: Events) -> EventDataset:
        """The same of other events, with the filter and the one who is told."""
        return EventDataset(events, self._filter, self._watch)

    def filter(self, expression: pc.Expression) -> EventDataset:
        """The same events as far as an expression is true of them."""
        return EventDataset(self.events, self._with(expression), self._watch)

    def holding(self, held: Held) -> EventDataset:
        """The same events, perhaps without some whose value in a column holds none of a list of texts: for those who
        look for these themselves. held: by column of text or binary, such lists.
        """
        return self.reading(self.events.holding(held))

    def _with(self, filter: pc.Expression | None) -> pc.Expression | None:
        if self._filter is None:
            return filter
        return self._filter if filter is None else self._filter & filter

    def head(self, num_rows: int, columns: Any = None, filter: pc.Expression | None = None, **options: Any) -> pa.Table:
        """The first rows; reads no further than they lie."""
        return EventScanner(self.events, columns, self._with(filter), BATCH_ROWS).head(num_rows)

    def count_rows(self, filter: pc.Expression | None = None, **options: Any) -> int:
        """How many rows a filter is true of; without one, the metadata tells."""
        return EventScanner(self.events, None, self._with(filter), BATCH_ROWS).count_rows()

    def exact_bounds(self, comparisons: Sequence[tuple[str, str, Any]]) -> Bounds | None:
        """The bounds of the events that comparisons are all true of, as `bounded_by_all` has them; None where bounds do
        not tell just those.
        """
        said = bounded_by_all(comparisons, self.events.schema)
        return said.bounds if said.exact and self.events.gives_exactly(said.bounds) else None

    def nth_time(self, count: int, *, newest: bool) -> int | None:
        """The time of the `count`-th event from the newest on, or from the oldest, µs; None where there are fewer."""
        times = self.events.extreme_times(count, newest=newest)
        return None if len(times) < count or not count else int(times.min() if newest else times.max())

    def tally(self, names: Sequence[str], count_name: str, *, timed: bool = False) -> pa.Table | None:
        """The combinations of values of some columns, and how many events have each, as a column `count_name`.

        timed: with a column `timestamp`; a combination has two rows then, one for its latest event and one for the
        others, as if all of those were at the time of the earliest. None: that is not known without the values.
        """
        return None if self._filter is not None else self.events.tally(names, count_name, timed=timed)

    def get_fragments(self, filter: pc.Expression | None = None) -> Iterator[EventFragment]:
        """The whole as one fragment, for engines that scan fragments from Python, as DataFusion does."""
        yield EventFragment(self)

    def replace_schema(self, schema: pa.Schema) -> Any:
        """Raises UsageError."""
        raise UsageError("the schema of a file cannot be replaced", hint="cast what to_batches() gives")

    def sort_by(self, sorting: Any, **options: Any) -> ds.InMemoryDataset:
        """All rows in memory, sorted."""
        return self._in_memory().sort_by(sorting, **options)

    def join(self, right_dataset: ds.Dataset, *arguments: Any, **options: Any) -> ds.InMemoryDataset:
        """All rows in memory, joined as by `pyarrow.dataset.Dataset.join`."""
        return self._in_memory().join(_readable(right_dataset), *arguments, **options)

    def join_asof(self, right_dataset: ds.Dataset, *arguments: Any, **options: Any) -> ds.InMemoryDataset:
        """All rows in memory, joined as by `pyarrow.dataset.Dataset.join_asof`."""
        return self._in_memory().join_asof(_readable(right_dataset), *arguments, **options)

    def _in_memory(self) -> ds.InMemoryDataset:
        return ds.InMemoryDataset(self.to_table())


def _readable(dataset: ds.Dataset) -> ds.Dataset:
    """A dataset that pyarrow can read by itself."""
    return dataset._in_memory() if isinstance(dataset, EventDataset) else dataset


def _projected(schema: pa.Schema, columns: Any, filter: pc.Expression | None) -> pa.Schema:
    """What comes out. pyarrow says it, and checks columns and filter, unless there are names alone."""
    if filter is None and isinstance(columns, list):
        places = [schema.get_field_index(name) for name in columns if isinstance(name, str)]
        if len(places) == len(columns) and min(places, default=0) >= 0:
            return pa.schema([schema.field(place) for place in places])
    checked = ds.Scanner.from_batches((), schema=schema, columns=columns, filter=filter)
    return checked.projected_schema


class EventFragment:
    """All events of a dataset, where an engine asks for fragments."""

    def __init__(self, dataset: EventDataset) -> None:
        self._dataset = dataset
        self.physical_schema: pa.Schema = dataset.schema

    def __reduce__(self) -> Any:
        return self._dataset.__reduce__()

    def scanner(self, schema: pa.Schema | None = None, **options: Any) -> EventScanner | ds.Scanner:
        """As `EventDataset.scanner`. schema: the dataset's own."""
        return self._dataset.scanner(**options)


class EventScanner:
    """Some columns of the rows that a filter is true of. Each use reads anew."""

    def __init__(
        self, events: Events, columns: Any, filter: pc.Expression | None, batch_size: int, watch: Watch | None = None
    ) -> None:
        """Made by `EventDataset.scanner`."""
        if batch_size < 1:
            raise UsageError(f"batch_size must be at least 1, not {batch_size}")
        schema = events.arrow
        self.dataset_schema: pa.Schema = schema
        self.projected_schema: pa.Schema = _projected(schema, columns, filter)
        self._events = events
        self._asked, self._filter = filter, filter
        self._batch_size = batch_size
        self._watch = watch
        self._projection = columns if isinstance(columns, Mapping) else None
        steps = None if filter is None else take_apart(filter)
        said = Bounded(UNBOUNDED, exact=filter is None) if steps is None else bounded_by(steps, events.schema)
        self._bounds = said.bounds
        if said.exact and events.gives_exactly(said.bounds):
            self._filter = None  # nothing is left of it
        self._names = self._needed(steps)

    def _needed(self, steps: list[Step] | None) -> list[str]:
        """Columns to read, in the order of the schema: all where an expression does not tell."""
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
        return [name for name in names if name in needed] or list(ROWS_ALONE)

    def within(self, bounds: Bounds) -> EventScanner:
        """The same for rows within bounds that `EventDataset.exact_bounds` gave."""
        made: EventScanner = EventScanner.__new__(EventScanner)
        made.__dict__ |= self.__dict__  # `copy` takes ten times as long
        made._bounds = meet(self._bounds, bounds)
        return made

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """The rows as record batches, in order, read as they are consumed."""
        return self._batches(lazily=False) if self._watch is None else self._watched(self._watch)

    def to_reader(self) -> pa.RecordBatchReader:
        """The same as a pyarrow stream. Rows of a few spaces are read at once: a stream of Python's batches takes its
        lock for each of them, in a thread of the engine's, which is most of the work of a short answer.
        """
        batches, schema = self.to_batches(), self.projected_schema
        listed = self._bounds.get("space", Domain()).listed
        begun = [] if listed is None or len(listed) > FEW_SPACES or not schema.names else list(islice(batches, 2))
        if len(begun) == 1:
            return pa.Table.from_batches(begun, schema).to_reader()
        return pa.RecordBatchReader.from_batches(schema, chain(begun, batches))

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """The same as an Arrow C stream."""
        return self.to_reader().__arrow_c_stream__(requested_schema)

    def to_table(self) -> pa.Table:
        """All rows as one table."""
        return pa.Table.from_batches(self.to_batches(), schema=self.projected_schema)

    def head(self, num_rows: int) -> pa.Table:
        """The first rows; reads no further than they lie."""
        batches = []
        for batch in self._batches(lazily=True) if num_rows > 0 else ():
            batches.append(batch.slice(0, num_rows))
            num_rows -= len(batches[-1])
            if not num_rows:
                break
        return pa.Table.from_batches(batches, schema=self.projected_schema)

    def take(self, indices: Any) -> pa.Table:
        """Rows by their place in the answer."""
        return self.to_table().take(indices)

    def count_rows(self) -> int:
        """How many rows there are; without a filter the metadata tells."""
        if self._is_whole:
            return self._events.num_events
        counted = EventScanner(self._events, [], self._asked, self._batch_size)
        return sum(len(batch) for batch in counted.to_batches())

    @property
    def _is_whole(self) -> bool:
        """Whether every row is in the answer."""
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
        """So many rows without columns: nothing is read for them."""
        for at in range(0, count, self._batch_size):
            rows = pa.nulls(min(self._batch_size, count - at))
            yield pa.RecordBatch.from_arrays([rows], ["nothing"]).select([])

    def _projected(self, batch: pa.RecordBatch) -> list[pa.RecordBatch]:
        """The rows of a batch that the filter is true of, with the columns that were asked for."""
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
    """A batch in the pieces that pyarrow filters, where it must not make them itself."""
    if not slices_mislead(batch.schema):
        return [batch]
    return [pa.concat_batches([batch.slice(at, SLICED_ROWS)]) for at in range(0, len(batch), SLICED_ROWS)]


def matching(batch: pa.RecordBatch, filter: pc.Expression) -> list[pa.RecordBatch]:
    """The rows of a batch that a filter is true of, in order. A third of what `RecordBatch.filter` takes."""
    table = acero.TableSourceNodeOptions(pa.Table.from_batches([batch]))
    plan = acero.Declaration.from_sequence(
        [acero.Declaration("table_source", table), acero.Declaration("filter", acero.FilterNodeOptions(filter))]
    )
    return list(plan.to_table(use_threads=False).to_batches())
