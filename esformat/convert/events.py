"""Conversion of rows to events: each column gets its role and type; rows that cannot be events get a reason."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from operator import itemgetter

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from esformat.convert import typed_text
from esformat.convert.arrays import Mask, mask
from esformat.convert.clock import Times
from esformat.convert.column_type import convert, keeps_kind, keeps_values
from esformat.convert.plan import TIMESTAMP, Plan
from esformat.convert.roles import RESERVED, Roles
from esformat.convert.rows import LINE, BadRow, Origin, Rows
from esformat.format import json_text

MAX_KEY_BYTES = 1 << 16  # the format's limit for one space or grouping

_LONGEST_SHOWN = 40
_TO_UTF8 = "convert it (iconv -f latin1 -t utf-8)"


def read_times(rows: Rows, roles: Roles) -> Times:
    """Read the timestamps of `rows`."""
    column, _ = _timestamp_text(rows, roles)
    return roles.clock.read(column)


class Rejects:
    """The rejected rows of one batch, in input order. Counting them is cheap; computing the reasons is not."""

    def __init__(self, rows: Rows, reasons: Mapping[int, Callable[[int], str]]) -> None:
        self._rows = rows
        self._reasons = reasons  # by row number in the batch

    def __len__(self) -> int:
        return len(self._rows.bad) + len(self._reasons)

    def kept(self) -> pa.BooleanArray:
        """Whether each row of the batch became an event."""
        kept = np.ones(self._rows.batch.num_rows, dtype=np.bool_)
        kept[list(self._reasons)] = False
        return pa.array(kept)

    def __iter__(self) -> Iterator[BadRow]:
        """Yield each rejected row with its reason."""
        origin = self._rows.origin
        found: list[tuple[int, BadRow | int]] = [(bad.number, bad) for bad in self._rows.bad]
        found += [(origin.locate(row)[0], row) for row in self._reasons]
        for _, bad in sorted(found, key=itemgetter(0)):
            yield bad if isinstance(bad, BadRow) else origin.bad_row(bad, self._reasons[bad](bad))


def times_of_events(rows: Rows, times: Times, rejects: Rejects, roles: Roles) -> Times:
    """The times of those `rows` that became events. `times` are those of `read_times(rows)`."""
    if not len(rejects) or not (times.assumed or times.repeated_count):
        return times
    return read_times(replace(rows, batch=rows.batch.filter(rejects.kept())), roles)


def make_events(
    rows: Rows, times: Times, plan: Plan, lost: Counter[str] | None = None
) -> tuple[pa.RecordBatch, Rejects]:
    """Convert `rows` to a batch of events in the same order, and collect the rows that cannot be events.

    `times` are those of `read_times(rows)`; `plan` must fit the rows.
    lost: counts NaN and infinities, which become null in JSON, by column.
    """
    roles, making = plan.roles, _Making(rows, Counter() if lost is None else lost)
    making.add("space", making.key(roles, roles.space, "space"))
    key = roles.second_key
    if key is not None and (key == roles.grouping or key in rows.types):
        making.add("grouping", making.key(roles, key, "grouping"))
    making.add("timestamp", making.timestamps(roles, times))
    if roles.data_json:
        making.add("data", making.json(plan))
    elif plan.payload is not None:
        making.add("data", making.data(plan.payload, roles))
    for name, type_ in plan.indexes.items():
        making.add(name, making.typed(name, type_, roles))
    for name, type_ in plan.typed.items():
        making.add(plan.stored[name], making.typed(name, type_, roles))
    if plan.nanos is not None:
        making.add(plan.nanos, times.nanos())
    return making.finish()


def no_events(plan: Plan) -> pa.RecordBatch:
    """Return a batch without events, with the columns of `plan`."""
    nothing = pa.RecordBatch.from_struct_array(pa.array([], pa.struct([])))
    rows = Rows(nothing, {}, Origin("", "row", lambda row: (row, "")))
    return make_events(rows, read_times(rows, plan.roles), plan)[0]


class _Making:
    """Builds the columns of a batch of events, and collects the reasons of rejected rows."""

    def __init__(self, rows: Rows, lost: Counter[str]) -> None:
        self._rows = rows
        self._sources = dict(zip(rows.batch.schema.names, rows.batch.columns, strict=True))
        self._lost = lost
        self._columns: dict[str, pa.Array] = {}
        self._optional: set[str] = set()  # reserved columns that may have nulls
        self._reasons: dict[int, Callable[[int], str]] = {}  # by row; the first reason found counts

    def add(self, name: str, column: pa.Array) -> None:
        self._columns[name] = column

    def key(self, roles: Roles, name: str, role: str) -> pa.Array:
        """Build a column of keys. A null space is rejected; a null grouping becomes an empty one."""
        source = self._source(name)
        if roles.keys == "binary":
            keys, unfit = self._bytes(name, roles)
        else:
            keys, unfit = self._converted(name, pa.string())
        self._reject(
            unfit, lambda _: f"{role} {name!r} is not UTF-8 text: {self._to_utf8}take bytes with --keys binary"
        )
        if role == "space":
            self._reject(source.is_null(), lambda _: f"no space: {name!r} has no value{self._instead(roles)}")
        too_long = pc.greater(pc.binary_length(keys), MAX_KEY_BYTES)
        self._reject(too_long, lambda _: f"{role} {name!r} is longer than {MAX_KEY_BYTES} bytes")
        return pc.fill_null(keys, pa.scalar(b"").cast(keys.type))

    def timestamps(self, roles: Roles, times: Times) -> pa.Array:
        column, not_text = _timestamp_text(self._rows, roles)
        hint = f": {_TO_UTF8}" if self._rows.origin.unit == LINE else ""
        self._reject(not_text, lambda _: f"timestamp {roles.timestamp!r} is not UTF-8 text{hint}")
        self._reject(
            column.is_null(), lambda _: f"no timestamp: {roles.timestamp!r} has no value{self._instead(roles)}"
        )
        self._reject(~times.ok, lambda row: roles.clock.complaint(column[row]))
        return times.timestamps()

    def data(self, name: str, roles: Roles) -> pa.Array:
        column, _ = self._bytes(name, roles)
        if not roles.null_data:
            return pc.fill_null(column, b"")
        self._optional.add("data")
        return column

    def json(self, plan: Plan) -> pa.Array:
        written = self._rows.rest
        if written is None:
            columns = {name: self.typed(name, type_, plan.roles) for name, type_ in plan.json.items()}
            for name, column in columns.items():
                self._count_lost(name, column)
            written = json_text.objects(columns, self._rows.batch.num_rows)
        return written.cast(pa.binary())

    def typed(self, name: str, type_: pa.DataType, roles: Roles) -> pa.Array:
        source = self._source(name)
        if name in roles.known and name not in roles.types:
            fitted = self._fitted(name, roles.known[name], roles)
            if fitted is not None:
                return fitted
        if type_ == TIMESTAMP and not pa.types.is_timestamp(source.type):
            return self._times(name, roles)
        column, unfit = self._bytes(name, roles) if pa.types.is_binary(type_) else self._converted(name, type_)
        if pa.types.is_string(type_):
            self._reject(
                unfit, lambda _: f"column {name!r} is not UTF-8 text: {self._to_utf8}give --type {name}=binary"
            )
        else:
            hint = f"give --type {name}=string to keep it as text"
            self._reject(unfit, lambda row: f"column {name!r}: cannot read {_shown(source[row])} as {type_}; {hint}")
        return column

    def _fitted(self, name: str, kind: pa.DataType, roles: Roles) -> pa.Array | None:
        """The column in its preferred type `kind`; None if that type would change a value."""
        source = self._source(name)
        if kind == TIMESTAMP and not pa.types.is_timestamp(source.type):
            text, _ = convert(source, pa.string())
            times = roles.clock.read(text)
            if pc.any(pc.and_(text.is_valid(), pa.array(~times.ok))).as_py():
                return None
            return pc.if_else(pa.array(times.ok), times.timestamps(), pa.scalar(None, TIMESTAMP))
        if not keeps_kind(source, kind):
            return None
        column, unfit = self._bytes(name, roles) if pa.types.is_binary(kind) else self._converted(name, kind)
        fits = unfit is None or not unfit.any()
        return column if fits and keeps_values(source, column) else None

    def finish(self) -> tuple[pa.RecordBatch, Rejects]:
        fields = [
            pa.field(name, column.type, name not in RESERVED or name in self._optional)
            for name, column in self._columns.items()
        ]
        batch = pa.RecordBatch.from_arrays(list(self._columns.values()), schema=pa.schema(fields))
        rejects = Rejects(self._rows, self._reasons)
        return batch.filter(rejects.kept()) if self._reasons else batch, rejects

    def _times(self, name: str, roles: Roles) -> pa.Array:
        """Read a column of times other than the timestamp; nulls are allowed."""
        text, _ = convert(self._source(name), pa.string())
        times = roles.clock.read(text)
        self._reject(pc.and_(text.is_valid(), pa.array(~times.ok)), lambda row: roles.clock.complaint(text[row]))
        return pc.if_else(pa.array(times.ok), times.timestamps(), pa.scalar(None, TIMESTAMP))

    def _bytes(self, name: str, roles: Roles) -> tuple[pa.Array, Mask | None]:
        if name in self._rows.words:
            return self._rows.words[name], None
        column, unfit = self._converted(name, pa.binary())
        of_csv = self._rows.origin.unit == LINE and pa.types.is_binary(self._source(name).type)
        return (typed_text.without_base64(column) if of_csv else column), unfit

    def _converted(self, name: str, type_: pa.DataType) -> tuple[pa.Array, Mask | None]:
        source = self._source(name)
        if pa.types.is_nested(source.type) and not pa.types.is_nested(type_):  # the conversion writes it as JSON
            self._count_lost(name, source)
        return convert(source, type_)

    def _count_lost(self, name: str, column: pa.Array) -> None:
        if count := json_text.not_finite(column):
            self._lost[name] += count

    @property
    def _to_utf8(self) -> str:
        """The start of a hint: only a file of text can be converted as a whole."""
        return f"{_TO_UTF8}, or " if self._rows.origin.unit == LINE else ""

    def _instead(self, roles: Roles) -> str:
        """A hint for key columns that are null in all rows: the columns that may be meant; "" if none."""
        batch = self._rows.batch
        keys = (roles.space, roles.timestamp)
        missing = [name for name in keys if pa.types.is_null(self._source(name).type)]
        proposal = roles.proposal(missing, [name for name in batch.schema.names if name not in missing])
        return f"; {proposal}" if proposal and "perhaps" in proposal else ""

    def _source(self, name: str) -> pa.Array:
        found = self._sources.get(name)
        return pa.nulls(self._rows.batch.num_rows) if found is None else found

    def _reject(self, rejected: pa.Array | Mask | None, reason: Callable[[int], str]) -> None:
        """Record `reason` for the rows that are true in `rejected`; None rejects nothing."""
        if rejected is None:
            return
        found = rejected if isinstance(rejected, np.ndarray) else mask(rejected)
        for row in np.flatnonzero(found).tolist():
            self._reasons.setdefault(row, reason)


def _timestamp_text(rows: Rows, roles: Roles) -> tuple[pa.Array, Mask | None]:
    """Return the timestamp column, with bytes as text; the mask marks bytes that are not text."""
    if roles.timestamp not in rows.batch.schema.names:
        return pa.nulls(rows.batch.num_rows), None
    column, found = rows.batch.column(roles.timestamp), rows.types[roles.timestamp]
    return convert(column, pa.string() if pa.types.is_binary(column.type) else found)


def _shown(value: pa.Scalar) -> str:
    try:
        text = repr(value.as_py())
    except (OverflowError, ValueError):  # a time outside Python's range
        text = str(value.cast(pa.string()))
    return text if len(text) <= _LONGEST_SHOWN else text[: _LONGEST_SHOWN - 1] + "…"
