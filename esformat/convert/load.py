"""Loading of files into one segment: read, plan, write; and start again if later rows change the types."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from typing import Protocol, Self

import pyarrow as pa

import esformat
from esformat.convert.arrow_reader import ArrowReader
from esformat.convert.bad_rows import BadRows, Stop
from esformat.convert.clock import Times
from esformat.convert.csv_reader import CsvReader
from esformat.convert.errors import InputError
from esformat.convert.events import make_events, no_events, read_times, times_of_events
from esformat.convert.formats import format_of
from esformat.convert.json_reader import JsonReader
from esformat.convert.plan import Plan
from esformat.convert.roles import Roles
from esformat.convert.rows import Rows
from esformat.convert.source import Input, Source
from esformat.convert.spool import Pipe
from esformat.format import json_text
from esformat.format.layout import MAX_COLUMNS

Progress = Callable[[int, int], None]  # stored bytes read so far, and the known total, which excludes pipes


@dataclass(frozen=True, slots=True, kw_only=True)
class InputOptions:
    """The format of inputs, as far as it is not detected."""

    format: str | None = None  # one of formats.FORMATS
    delimiter: str | None = None  # of CSV
    header: tuple[str, ...] | None = None  # of CSV without a header line
    nulls: tuple[str, ...] = ()  # texts in CSV that mean a missing value


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """Counts and notes of a finished load."""

    num_events: int
    bad_row_count: int
    input_bytes: int  # as stored
    notes: Sequence[str]  # things that a user may not expect


class Reader(Protocol):
    """Reads one input as rows, repeatedly if needed."""

    def rows(self) -> Iterator[Rows]:
        """Yield the rows from the start."""


class _PlanBrokenError(Exception):
    """A batch does not fit the plan of the segment being written."""


_SHOWN_NAMES = 5
_DEFAULTS = InputOptions()
Create = Callable[[Plan], esformat.Writer]


class Load:
    """Reads inputs as events. Use it once: `with Load(…) as load: load.write(…)`."""

    def __init__(
        self,
        inputs: Sequence[Input],
        roles: Roles,
        options: InputOptions = _DEFAULTS,
        *,
        bad_rows: BadRows | None = None,
        progress: Progress | None = None,
        stdin: Pipe | pa.Buffer | None = None,
        live: bool = False,
    ) -> None:
        """Open `inputs` (paths, URIs or "-") in order. Raises InputError if one is missing or its format unknown.

        live: `batches` yields rows of pipes within 200 ms of their arrival; pipes can be read only once.
        """
        self._roles = roles
        self._bad_rows = Stop() if bad_rows is None else bad_rows
        self._progress = progress
        self.assumed: set[str] = set()
        """The units that were guessed from the size of numeric timestamps, in the events so far."""
        self._plan = Plan(roles)  # of the rows read so far
        self._lost: Counter[str] = Counter()  # NaN and infinities that became JSON, by column
        self._repeated_count = 0  # times of events that occur twice, where clocks were put back
        self._meant: dict[str, str] = {}  # columns of types that segments lack
        with ExitStack() as opened:
            self._sources = [opened.enter_context(closing(Source(path, stdin=stdin, live=live))) for path in inputs]
            self._readers = [reader_of(source, roles, options) for source in self._sources]
            self._opened = opened.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the inputs and the file of bad rows."""
        self._bad_rows.close()
        self._opened.close()

    def write(self, create: Create) -> Summary:
        """Write the events to the writer that `create` returns for a plan; called again if later rows change the plan.

        Raises InputError, BadRowError and the errors of the writer, which is then aborted.
        """
        try:
            return self._write(Plan(self._roles), create)
        except _PlanBrokenError:
            plan = self.survey()
        try:
            return self._write(plan, create)
        except _PlanBrokenError as error:
            raise InputError("an input changed while it was read") from error

    def batches(self, plan: Plan | None = None) -> Iterator[pa.RecordBatch]:
        """Yield the events in the order of the inputs, for callers that do not write one segment.

        plan: the result of `survey`; without it, columns and types follow from the rows so far and may grow.
        Raises InputError, BadRowError.
        """
        self._begin()
        growing = plan is None
        plan = Plan(self._roles) if plan is None else plan
        for rows, times in self._rows():
            self._plan = plan = plan.widened(rows.types, has_nanos=times.has_nanos)
            events, rejects = make_events(rows, times, plan, self._lost)
            self._note(times_of_events(rows, times, rejects, self._roles))
            self._bad_rows.take(rejects)
            if events.num_rows:
                yield events.drop_columns([plan.stored[name] for name in plan.untyped]) if growing else events

    def assumptions(self) -> Iterator[str]:
        """Yield notes on the rows read so far: columns renamed or empty, units guessed, values lost, times repeated."""
        yield from notes_of(self._plan)
        if self.assumed:
            units = " and ".join(sorted(self.assumed))
            yield f"numeric timestamps were read as {units} since 1970: --timestamp-format changes that"
        for name, kind in self._meant.items():
            if name in self._plan.typed:
                yield f"column {name!r} is of type {kind}, which segments do not have: its plain values are kept"
        for name in self._roles.types:
            if name not in self._plan.types:
                yield f"--type {name}: no column of that name was read"
        for name, count in self._lost.items():
            yield f"column {name!r}: {json_text.NO_NAN.format(count)}"
        untyped = [name for name in self._plan.untyped if name not in self._roles.required]
        if untyped:
            more = ", …" if len(untyped) > _SHOWN_NAMES else ""
            shown = ", ".join(map(repr, untyped[:_SHOWN_NAMES])) + more
            yield f"no row has a value for {shown}: such a column keeps no type"
        if self._repeated_count:
            times = "1 time occurs" if self._repeated_count == 1 else f"{self._repeated_count:,} times occur"
            yield f"{times} twice in {self._roles.clock.zone}, where clocks were put back: the first is used"

    def survey(self) -> Plan:
        """Read all inputs to find their types; return the plan."""
        plan = Plan(self._roles)
        for rows, times in self._rows():
            plan = plan.widened(rows.types, has_nanos=times.has_nanos)
        return plan

    def _write(self, plan: Plan, create: Create) -> Summary:
        """Write the events by `plan`, which may grow until the first event is written."""
        self._begin()
        num_events = 0
        writer: esformat.Writer | None = None
        with ExitStack() as writing:
            for rows, times in self._rows():
                wider = plan.widened(rows.types, has_nanos=times.has_nanos)
                if writer is not None and wider is not plan:
                    raise _PlanBrokenError
                _check_columns(wider, rows.origin.path)
                plan = wider
                events, rejects = make_events(rows, times, plan, self._lost)
                self._note(times_of_events(rows, times, rejects, self._roles))
                self._bad_rows.take(rejects)
                if writer is None and events.num_rows:
                    writer = writing.enter_context(create(plan))
                if writer is not None and events.num_rows:
                    writer.add_table(events)
                num_events += events.num_rows
            if writer is None:
                writing.enter_context(create(plan)).add_table(no_events(plan))
        read_bytes = sum(source.stored_bytes() for source in self._sources)
        self._plan = plan
        notes = tuple(self.assumptions())
        return Summary(num_events=num_events, bad_row_count=self._bad_rows.count, input_bytes=read_bytes, notes=notes)

    def _begin(self) -> None:
        """Begin a pass over the inputs."""
        self._bad_rows.begin()
        self._lost.clear()
        self._repeated_count = 0

    def _note(self, times: Times) -> None:
        """Record what a user may not expect of the times of some events."""
        self.assumed |= times.assumed
        self._repeated_count += times.repeated_count

    def _rows(self) -> Iterator[tuple[Rows, Times]]:
        """Yield the rows of all inputs with their times."""
        total = sum(source.size_bytes for source in self._sources)
        done = 0
        for source, reader in zip(self._sources, self._readers, strict=True):
            for rows in reader.rows():
                times = read_times(rows, self._roles)
                self._meant |= rows.meant
                yield rows, times
                if self._progress is not None:
                    self._progress(done + source.position_bytes(), total)
            done += source.stored_bytes()


def _check_columns(plan: Plan, path: str) -> None:
    """Raise InputError if a segment cannot have as many columns. path: the input that was read last."""
    count = len(plan.indexes) + len(plan.typed)
    if count > MAX_COLUMNS:
        raise InputError(
            f"has {count:,} columns besides the keys, but a segment can have {MAX_COLUMNS:,}",
            path=path,
            hint="choose some with --columns, or store them in one with --data-json",
        )


def reader_of(source: Source, roles: Roles, options: InputOptions) -> Reader:
    """Return the reader of an input. Raises InputError if its format is unknown."""
    found = format_of(source, options.format)
    if found == "jsonl":
        return JsonReader(source, roles)
    if found == "parquet" or found == "arrow":
        return ArrowReader(source, roles, found)
    delimiter = options.delimiter or ("\t" if found == "tsv" else ",")
    return CsvReader(source, roles, delimiter, options.header, options.nulls)


def notes_of(plan: Plan) -> Iterator[str]:
    """Yield notes on what a user may not expect of a segment written by `plan`."""
    if plan.nanos is not None:
        yield f"times have digits below the microsecond: column {plan.nanos!r} keeps them in full, as nanoseconds"
    for name, stored in plan.stored.items():
        if name != stored:
            yield f"column {name!r} is stored as {stored!r}: the name {name!r} is reserved"
    for name in plan.roles.required:
        if plan.types and pa.types.is_null(plan.types.get(name, pa.null())):
            yield f"column {name!r} has no value in any row"
