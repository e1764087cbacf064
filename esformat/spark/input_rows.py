"""Reading of files of other formats in tasks: the columns of each file, and its rows as events of one common plan."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, fields, replace
from pathlib import PurePath
from typing import Literal, Self

import pyarrow as pa
import pyarrow.compute as pc

from esformat import customerio
from esformat.convert import BadRows, InputError, InputOptions, Plan, Roles, Skip, Stop
from esformat.convert.arrow_reader import ArrowReader
from esformat.convert.column_type import convert, plain, text_type
from esformat.convert.events import make_events, read_times, times_of_events
from esformat.convert.formats import format_by_name
from esformat.convert.load import Reader, reader_of
from esformat.convert.rows import Origin, Rows
from esformat.convert.source import Source
from esformat.convert.typed_files import read_typed
from esformat.errors import UsageError
from esformat.format import json_text
from esformat.spark.directories import values_in

TEXT_KINDS = ("json", "csv")
TASK_BYTES = 128 << 20  # stored bytes per task, as in Spark's own readers
TOGETHER_BATCHES = 200  # batches that are converted in one call; a small file has one
TOGETHER_BYTES = 1 << 20  # of such batches, in memory
Fit = Callable[[pa.RecordBatch], pa.RecordBatch]
_BAD_ROW_HINT = "correct it, or leave bad rows out with on_error=skip (--on-error skip)"


@dataclass(frozen=True, slots=True)
class InputRules:
    """The rules for reading the files of a job.

    kind: parquet, orc, json, csv, arrow or customerio.
    on_error: what to do with rows that cannot become events.
    hive: whether directories called name=value become columns.
    schema: the columns of JSON and CSV, if a segment supplies them.
    """

    kind: str
    roles: Roles
    options: InputOptions = field(default_factory=InputOptions)
    on_error: Literal["stop", "skip"] = "stop"
    hive: bool = True
    schema: pa.Schema | None = None

    @property
    def guesses(self) -> bool:
        """Whether the types of columns are guessed from values."""
        return self.kind in TEXT_KINDS and self.schema is None

    def constants(self, path: str) -> dict[str, str | None]:
        """The columns that directories called name=value give to every row of a file."""
        return values_in(PurePath(path).parts[:-1]) if self.hive else {}


@dataclass(frozen=True, slots=True)
class Piece:
    """A file, or a half-open range of row groups of a Parquet file, for one task."""

    path: str
    size_bytes: int
    groups: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class Surveyed:
    """The survey of a file: columns with declared types, columns with types guessed from values, and row counts."""

    typed: Mapping[str, pa.DataType]
    guessed: Mapping[str, pa.DataType]
    rows: int  # that can become events
    bad: int
    has_nanos: bool
    assumed: frozenset[str]  # units guessed from the size of numeric timestamps
    group_bytes: tuple[int, ...] = ()  # of the row groups, if a Parquet file is too large for one task
    lost: Mapping[str, int] = field(default_factory=dict)  # NaN and infinities in columns that become JSON


@dataclass(frozen=True, slots=True, kw_only=True)
class _FileRoles(Roles):
    """The roles in one of several files: all columns but space and timestamp may be missing and are then null."""

    given: frozenset[str] = frozenset()  # columns from directory names

    @classmethod
    def of(cls, roles: Roles, given: Sequence[str]) -> Self:
        known = {each.name: getattr(roles, each.name) for each in fields(Roles)}
        return cls(**known, given=frozenset(given))

    def check(self, names: Sequence[str], path: str) -> None:
        Roles.check(Roles(space=self.space, timestamp=self.timestamp), [*names, *self.given], path)


def survey(rules: InputRules, path: str) -> Surveyed:
    """Survey a file: read a text file whole, of others only the schema and timestamps.

    Raises InputError for an unreadable file, BadRowError for a row that cannot become an event.
    """
    return _survey_text(rules, path) if rules.guesses else _survey_typed(rules, path)


def events(
    rules: InputRules, plan: Plan, pieces: Sequence[Piece], fit: Fit = lambda batch: batch
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of pieces as events with the columns of a plan; small files are combined.

    fit: converts each batch. Raises InputError, BadRowError, and the UsageError of `fit` with the file's path.
    """
    bad = _bad_rows(rules)
    for few in _gathered(rules, pieces):
        made = _at_once(few, plan, fit)
        if made is not None:
            yield made
            continue
        for rows in few:
            batch, rejects = make_events(rows, read_times(rows, plan.roles), plan)
            bad.take(rejects)
            try:
                if batch.num_rows:
                    yield fit(batch)
            except UsageError as error:
                raise UsageError(error.message, path=rows.origin.path, hint=error.hint) from None


def _gathered(rules: InputRules, pieces: Sequence[Piece]) -> Iterator[list[Rows]]:
    """Yield the batches of rows of pieces, combining small ones with equal columns; those of text separately."""
    waiting: list[Rows] = []
    size = 0
    for piece in pieces:
        with closing(Source(piece.path)) as source:
            for rows in _rows(rules, source, piece.groups):
                enough = size + rows.batch.nbytes > TOGETHER_BYTES or len(waiting) == TOGETHER_BATCHES
                if waiting and (rules.guesses or enough or not _alike(rows, waiting[0])):
                    yield waiting
                    waiting, size = [], 0
                waiting.append(rows)
                size += rows.batch.nbytes
    if waiting:
        yield waiting


def _alike(one: Rows, other: Rows) -> bool:
    return one.batch.schema.equals(other.batch.schema) and one.types == other.types and one.meant == other.meant


def _at_once(few: Sequence[Rows], plan: Plan, fit: Fit) -> pa.RecordBatch | None:
    """Convert several batches to events in one call; None if an error must name one of their rows."""
    if len(few) < 2 or any(rows.bad or rows.words or rows.rest is not None for rows in few):
        return None
    rows = replace(few[0], batch=pa.concat_batches([each.batch for each in few]))
    made, rejects = make_events(rows, read_times(rows, plan.roles), plan)
    try:
        return None if len(rejects) else fit(made)
    except UsageError:
        return None


def _survey_text(rules: InputRules, path: str) -> Surveyed:
    plan, bad, count = Plan(rules.roles), _bad_rows(rules), 0
    assumed: frozenset[str] = frozenset()
    lost: Counter[str] = Counter()
    with closing(Source(path)) as source:
        for rows in _rows(rules, source):
            times = read_times(rows, rules.roles)
            plan = plan.widened(rows.types, has_nanos=times.has_nanos)
            made, rejects = make_events(rows, times, plan, lost)
            bad.take(rejects)
            count += made.num_rows
            assumed |= times_of_events(rows, times, rejects, rules.roles).assumed
    return Surveyed({}, dict(plan.types), count, bad.count, plan.has_nanos, assumed, lost=lost)


def _survey_typed(rules: InputRules, path: str) -> Surveyed:
    constants = rules.constants(path)
    guessed = {name: _look(rules.roles, name, value) for name, value in constants.items()}
    times_only = replace(rules.roles, columns=(), data=None, data_json=False, indexes=(), grouping=None)
    count, has_nanos = 0, False
    assumed: frozenset[str] = frozenset()
    with closing(Source(path)) as source:
        reader = _typed_reader(rules, source)
        typed, row_count = (
            reader.columns_and_row_count() if isinstance(reader, ArrowReader) else (reader.columns(), None)
        )
        plain_times = not constants and _in_microseconds(typed.get(rules.roles.timestamp))
        for rows in () if row_count is not None and plain_times else _rows(replace(rules, roles=times_only), source):
            times = read_times(rows, rules.roles)
            has_nanos |= times.has_nanos
            assumed |= times.assumed
            count += rows.batch.num_rows
        count = row_count if row_count is not None and plain_times else count
        large = rules.kind == "parquet" and source.size_bytes > TASK_BYTES
        group_bytes = ArrowReader(source, rules.roles, "parquet").group_bytes() if large else ()
    guessed = {name: kind for name, kind in guessed.items() if name not in typed}
    lost = _lost(rules, path, {**guessed, **typed})
    return Surveyed(typed, guessed, count, 0, has_nanos, assumed, tuple(group_bytes), lost)


def _lost(rules: InputRules, path: str, types: Mapping[str, pa.DataType]) -> Counter[str]:
    """Count the NaN and infinities of each column that becomes JSON, which has null for them."""
    plan = Plan(rules.roles).widened(types, has_nanos=False)
    columns = {name: kind for name, kind in _written_as_json(plan).items() if _has_floats(kind)}
    lost: Counter[str] = Counter()
    if columns:
        with closing(Source(path)) as source:
            for rows in _rows(rules, source):
                for name, kind in columns.items():
                    lost[name] += json_text.not_finite(convert(rows.batch.column(name), kind)[0])
    return +lost  # drops zero counts


def _written_as_json(plan: Plan) -> dict[str, pa.DataType]:
    """The columns of a file that become JSON, as payload, key or index, with their types."""
    roles = plan.roles
    texts = (roles.space, roles.second_key, plan.payload, *roles.indexes)
    nested = {name: kind for name, kind in plan.types.items() if name in texts and pa.types.is_nested(kind)}
    objects = plan.json if roles.data_json else {}
    return {**nested, **{name: kind for name, kind in objects.items() if name in plan.types}}


def _has_floats(kind: pa.DataType) -> bool:
    return pa.types.is_floating(kind) or any(_has_floats(kind.field(place).type) for place in range(kind.num_fields))


def _in_microseconds(kind: pa.DataType | None) -> bool:
    """Whether times of a type are no finer than microseconds and of a known unit, so that no values need to be read."""
    return kind is not None and pa.types.is_timestamp(kind) and kind.unit != "ns"


def _rows(rules: InputRules, source: Source, groups: tuple[int, int] | None = None) -> Iterator[Rows]:
    constants = rules.constants(source.path)
    for rows in _reader(rules, source, groups).rows():
        yield _with_constants(rows, constants, rules.roles) if constants else rows


def _reader(rules: InputRules, source: Source, groups: tuple[int, int] | None) -> Reader:
    if not rules.guesses:
        return _typed_reader(rules, source, groups)
    by_name = format_by_name(source.path)
    form = "jsonl" if rules.kind == "json" else "tsv" if by_name == "tsv" else "csv"
    return reader_of(source, _file_roles(rules, source.path), replace(rules.options, format=form))


def _typed_reader(
    rules: InputRules, source: Source, groups: tuple[int, int] | None = None
) -> ArrowReader | _GoReader | _SchemaReader:
    if rules.kind in TEXT_KINDS:
        return _SchemaReader(source, rules)
    roles = _file_roles(rules, source.path)
    return _GoReader(source, roles) if rules.kind == "customerio" else ArrowReader(source, roles, rules.kind, groups)


def _file_roles(rules: InputRules, path: str) -> _FileRoles:
    return _FileRoles.of(rules.roles, list(rules.constants(path)))


def _bad_rows(rules: InputRules) -> BadRows:
    return Skip() if rules.on_error == "skip" else Stop(_BAD_ROW_HINT)


def _look(roles: Roles, name: str, value: str | None) -> pa.DataType:
    """Guess the type of a value in a directory name; columns that stay text in CSV stay text here too."""
    if value is None:
        return pa.null()
    return pa.string() if name in roles.text else text_type(pa.array([value]))


def _with_constants(rows: Rows, constants: Mapping[str, str | None], roles: Roles) -> Rows:
    batch, types = rows.batch, dict(rows.types)
    for name, value in constants.items():
        if name in batch.schema.names:
            _check_same(rows, name, value)
        elif roles.keeps_rest or name in roles.named:
            text = pa.nulls(len(batch), pa.string()) if value is None else pa.repeat(pa.scalar(value), len(batch))
            batch = batch.append_column(name, text.cast(pa.binary()))
            types[name] = _look(roles, name, value)
    return replace(rows, batch=batch, types=types)


def _check_same(rows: Rows, name: str, value: str | None) -> None:
    """Raise InputError if a file's column contradicts the directory that it is in."""
    column, _ = convert(rows.batch.column(name), pa.string())
    same = column.is_null() if value is None else pc.fill_null(pc.equal(column, value), False)
    if not pc.all(same).as_py():
        raise InputError(
            f"column {name!r} of the file contradicts its directory {name}={value}",
            path=rows.origin.path,
            hint="ignore directory names with hive=false (--no-hive)",
        )


@dataclass(frozen=True, slots=True)
class _GoReader:
    """Reads a Go ESDB file."""

    source: Source
    roles: Roles

    def columns(self) -> dict[str, pa.DataType]:
        with customerio.open(self.source.path) as file:
            self.roles.check(file.schema.names, self.source.path)
            return {name: plain(file.schema.field(name).type) for name in self.roles.wanted(file.schema.names)}

    def rows(self) -> Iterator[Rows]:
        first_row = 1
        with customerio.open(self.source.path) as file:
            wanted = self.roles.wanted(file.schema.names)
            for batch in file.scan().batches():
                chosen, start = batch.select(wanted), first_row
                types = {each.name: plain(each.type) for each in chosen.schema}
                yield Rows(chosen, types, Origin(self.source.path, "row", _row_after(start)))
                first_row += batch.num_rows


@dataclass(frozen=True, slots=True)
class _SchemaReader:
    """Reads CSV or JSON lines that were exported from a segment, with that segment's columns."""

    source: Source
    rules: InputRules

    def columns(self) -> dict[str, pa.DataType]:
        return {each.name: each.type for each in self._schema()}

    def rows(self) -> Iterator[Rows]:
        first_row = 1
        schema = self._schema()
        for batch in read_typed(self.source, "jsonl" if self.rules.kind == "json" else "csv", schema):
            types = {each.name: each.type for each in schema}
            yield Rows(batch, types, Origin(self.source.path, "row", _row_after(first_row)))
            first_row += batch.num_rows

    def _schema(self) -> pa.Schema:
        assert self.rules.schema is not None
        return pa.schema([self.rules.schema.field(name) for name in self.rules.roles.wanted(self.rules.schema.names)])


def _row_after(start: int) -> Callable[[int], tuple[int, str]]:
    return lambda row: (start + row, "")
