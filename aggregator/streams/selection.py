"""`Selection`: the lazy result of a SELECT, with the methods of a `Scan`, and positions to continue from."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import chain

import pyarrow as pa

from aggregator.base.allowance import check
from aggregator.base.histogram import Histogram, check_buckets
from aggregator.base.refresh_once import one_refresh
from aggregator.base.result import Answer
from aggregator.engine.backend import Backend
from aggregator.errors import InvalidRequestError
from aggregator.lql import Counter, Filter, LqlError, Template, TimeSpan, range_span, resolve_time, time_span
from aggregator.lql.parse.tokens import did_you_mean
from aggregator.lql.parse.tree import Select
from aggregator.lql.text.times import NANOS_PER_MICRO
from aggregator.streams.reading import position as positions
from aggregator.streams.reading.event_tags import EVENT_TAGS, EventTags, topics_of
from aggregator.streams.reading.position import Position
from aggregator.streams.reading.record_ranges import first_after, gone_between, lineage_of
from aggregator.streams.reading.references import hidden_columns, index_conditions, other_references, referenced_fields
from aggregator.streams.reading.row_filter import Round
from aggregator.streams.reading.times import count_by_time
from aggregator.streams.reading.windows import (
    Material,
    Tally,
    TopicPart,
    hold,
    last_key,
    read_round,
    read_unordered,
    round_sources,
)
from esformat import Event
from esformat.parts import rows_of_batch

# Limits of one rendering step: rows times parts of the format string; bytes times parts; and the minimum of rows.
_RENDERED_PARTS, _RENDERED_BYTES, _RENDERED_ROWS = 1 << 15, 16 << 20, 16
_LAST = (2**63 - 1, 2**63 - 1)


@dataclass(frozen=True, slots=True)
class _Plan:
    """The rounds to read, and how many records to skip first."""

    rounds: tuple[Round, ...]
    skip: int


class Selection(Answer):
    """The records that a SELECT selects, read on demand: an `Answer`, whose events have the message as their `data`.
    Each use reads from a new snapshot.
    """

    def __init__(
        self,
        backend: Backend,
        select: Select,
        *,
        now_ns: int | None = None,
        start: str = "head",
        within: TimeSpan | None = None,
    ) -> None:
        """Created by `Catalog.query`. within: only records of that time.

        start: "head" or "tail", where a statement without POSITION begins. Raises InvalidRequestError for columns that
        do not exist, invalid comparisons or invalid positions.
        """
        self._backend, self._select = backend, select
        self._now_ns = time.time_ns() if now_ns is None else now_ns
        span = range_span(select.range, self._now_ns) & time_span(select.where, self._now_ns)
        self._span = span if within is None else span & within
        self._format = None if select.format is None else Template.compile(select.format)
        self._start = self._starting(start)
        self._standing: Position | None = None
        self._given: pa.RecordBatch | None = None
        if select.newest_first and (select.offset or 0) < 0:
            raise LqlError("OFFSET cannot be negative with ORDER BY ts DESC", hint="use OFFSET 0 or more")
        if select.newest_first and self._start[0] not in ("head", "time"):
            raise InvalidRequestError(
                "ORDER BY ts DESC cannot continue from a position", hint="remove POSITION or ORDER BY"
            )
        material = self._material()
        material.pins.close()
        if material.parts:  # otherwise the columns are unknown
            self._filter(material)

    def __repr__(self) -> str:
        return f"<aggregator.Selection {self._select}>"

    # ------------------------------------------------------------ columns

    @property
    def schema(self) -> pa.Schema:
        """Arrow schema of the batches at this moment: topics may gain columns."""
        material = self._material()
        material.pins.close()
        return material.schema

    def _open(self) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
        material = self._material()
        return material.schema, self._read(material, material.schema.names)

    def __iter__(self) -> Iterator[Event]:
        rows = (rows_of_batch(batch, ()) for batch in self.batches())
        return chain.from_iterable(chain.from_iterable(row.iterators() for row in rows))

    def count(self) -> int:
        """The number of records."""
        material = self._material()
        with material.pins:
            found = sum(map(len, self._unordered(material, [])))
        limit, offset = self._select.limit, self._select.offset or 0
        if offset < 0:  # the rounds already begin earlier
            offset = 0
        found = max(0, found - offset)
        return found if limit is None or limit < 0 else min(found, limit)

    def lines(self) -> Iterator[str]:
        """Each record rendered by the statement's format string; only its message if there is none."""
        template = self._format or Template.compile("{msg}")
        material = self._material()
        columns = material.columns
        for batch in self._read(material, template.reads(columns) or ["timestamp"]):
            for part in _rendered_at_once(batch, len(template.parts)):
                check()
                yield from template.render(part, columns).to_pylist()

    def counted(self) -> pa.Table:
        """The result of SELECT COUNT: a row per group. Raises LqlError for too many groups."""
        material = self._material()
        columns = material.columns
        select = self._select
        counter = Counter(select.group_by, columns, select.measures, distinct=select.distinct)
        with material.pins:
            for batch in self._unordered(material, sorted(counter.reads)):
                counter.add(batch)
        table = counter.table(select.most_first, select.order_by)
        limit = select.limit
        table = table.slice(select.offset or 0, None if limit is None or limit < 0 else limit)
        warnings = [*self.warnings, *counter.warnings]
        return table.replace_schema_metadata({"warning": "; ".join(warnings)}) if warnings else table

    def histogram(self, buckets: int = 60) -> Histogram:
        """The records selected by FROM, RANGE and WHERE, counted by time: in at most `buckets` equal spans of the
        statement's time range, or of the time of the existing records. LIMIT, OFFSET and POSITION are ignored.
        """
        check_buckets(buckets)
        material = self._material()
        with material.pins:
            if not material.parts or self._span.empty:
                return Histogram(0, 1, ())
            return count_by_time(material, self._filter(material), self._span, self._backend.pool, buckets)

    def explained(self) -> pa.Table:
        """The result of EXPLAIN: what reading would access, a row per topic. Opens segments, but reads no block."""
        material = self._material()
        rows = []
        with material.pins:
            plan = self._plan(material, material.ends, self._select)
            where = self._filter(material) if material.parts else Filter.compile(None, material.columns, 0)
            for part in material.parts:
                alone = replace(material, parts=[part], tally=Tally())
                for around in plan.rounds:
                    round_sources(alone, around, where, self._span, ["timestamp"], self._backend.pool)
                tally = alone.tally
                blocks, looked_at = tally.blocks(self._backend.pool)
                streams = part.streams if part.spaces is None else part.spaces
                rows.append({
                    "topic": part.snapshot.topic.name, "streams": len(streams),
                    "segments": len(part.snapshot.segments), "pruned": len(part.snapshot.segments) - len(tally.read),
                    "read": len(tally.read), "blocks": blocks, "blocks pruned": blocks - looked_at,
                    "blocks read": looked_at, "unsealed batches": tally.batches,
                    "indexes": [name for name, _ in part.conditions], "columns": sorted(where.columns),
                    "start": self._span.start_us, "end": self._span.end_us,
                })  # fmt: skip
        stamp = pa.timestamp("us", "UTC")
        kinds = {"topic": pa.string(), "indexes": pa.list_(pa.string()), "columns": pa.list_(pa.string())}
        kinds |= {"start": stamp, "end": stamp}
        counts = ("streams", "segments", "pruned", "read", "blocks", "blocks pruned", "blocks read", "unsealed batches")
        names = ("topic", *counts, "indexes", "columns", *kinds)
        schema = pa.schema([(name, kinds.get(name, pa.int64())) for name in dict.fromkeys(names)])
        return pa.Table.from_pylist(rows, schema)

    # ------------------------------------------------------------ positions

    @property
    def position(self) -> str:
        """The position that the last use reached: pass it as POSITION to continue after the last record returned."""
        if self._select.newest_first:
            raise InvalidRequestError("ORDER BY ts DESC has no positions", hint="remove ORDER BY")
        standing = self._standing
        if standing is None:
            standing = self._first_standing()
        return positions.encode(self._advanced(standing), lineage_of(self._backend))

    def positions(self) -> Iterator[str]:
        """The position after each record of the last returned batch."""
        standing, given = self._standing, self._given
        if standing is None or given is None:
            return
        lineage = lineage_of(self._backend)
        for row in range(1, len(given) + 1):
            yield positions.encode(replace(standing, after=last_key(given.slice(0, row))), lineage)

    @property
    def gone(self) -> int:
        """The number of records after the start position that are gone, because of retention, TRUNCATE or an erasure.
        May include records that the statement does not select. Also includes late records that were already returned,
        if they are removed before everything that existed at the beginning was read.
        """
        kind, given, _ = self._start
        if kind != "token" or given is None:
            return 0
        material = self._material()
        try:
            ends = {number: end for number, end in material.ends.items() if number in given.begin}
            pool, parts = self._backend.pool, self._all_parts(material)
            return sum(gone_between(part.snapshot, given.begin, ends, pool) for part in parts)
        finally:
            material.pins.close()

    def _starting(self, start: str) -> tuple[str, Position | None, int]:
        asked = self._select.position
        if asked is None:
            return start, None, 0
        if asked.kind == "token":
            visible = self._ends()
            return "token", positions.decode(asked.text, lineage_of(self._backend), visible), 0
        if asked.kind == "time":
            return "time", None, -(-resolve_time(asked.text, self._now_ns, asked.mark) // NANOS_PER_MICRO)
        return asked.kind, None, 0

    def _first_standing(self) -> Position:
        kind, given, at = self._start
        if kind == "token" and given is not None:
            return given
        ends = self._ends()
        if kind == "tail":
            return Position(ends)
        return Position() if kind == "head" else Position({}, ends, (at - 1, *_LAST))

    def _ends(self) -> dict[int, int]:
        self._backend.refresh()
        state = self._backend.state
        with state.view_lock:
            return {number: p.visible_end for number, (_, p) in state.partitions.items() if p.visible_end}

    def _plan(self, material: Material, ends: dict[int, int], select: Select) -> _Plan:
        kind, given, at = self._start
        if kind == "head":
            rounds = [Round({}, ends)]
        elif kind == "time":
            rounds = [Round({}, ends, (at - 1, *_LAST))]
        elif kind == "tail" or given is None:
            rounds = [Round(ends, ends)]
        else:
            rounds = []
            begin = dict(given.begin)
            if given.after is not None:
                rounds, begin = [Round(begin, dict(given.end), given.after)], dict(given.end)
            rounds.append(Round(begin, {number: max(end, begin.get(number, 0)) for number, end in ends.items()}))
        offset = select.offset or 0
        if offset < 0 and kind != "head":
            rounds = self._walked_back(material, rounds, -offset)
        return _Plan(tuple(rounds), max(0, offset))

    def _walked_back(self, material: Material, rounds: list[Round], count: int) -> list[Round]:
        """Rounds that begin `count` records earlier."""
        first = rounds[0]
        passed = [Round({}, first.begin)] if first.begin else []
        if first.after is not None:
            read = replace(first, after=None, up_to=first.after)
            beyond = self._merged(material, Round({}, first.begin, first.after), ["timestamp"], reverse=False, limit=1)
            # a position's `begin` is as late as possible: records below it mostly belong to the same round
            passed = [*passed, read] if any(map(len, beyond)) else [replace(read, begin={})]
        for place in range(len(passed) - 1, -1, -1):
            for batch in self._merged(material, passed[place], ["timestamp"], reverse=True, limit=count):
                if len(batch) >= count:
                    time_us, partition, index = last_key(batch.slice(0, count))
                    opened = replace(passed[place], after=(time_us, partition, index - 1))
                    return self._joined([opened, *passed[place + 1 :]], rounds)
                count -= len(batch)
        return self._joined(passed, rounds)

    @staticmethod
    def _joined(earlier: list[Round], rounds: list[Round]) -> list[Round]:
        """Append the rounds to read to the earlier ones; two halves of a round are joined."""
        if earlier and earlier[-1].up_to is not None:
            return [*earlier[:-1], replace(earlier[-1], up_to=None), *rounds[1:]]
        return [*earlier, *rounds]

    def _advanced(self, standing: Position) -> Position:
        """The same position with `begin` as late as possible, so that removed records are counted exactly."""
        key = standing.after
        if key is None:
            return standing
        material = self._material()
        begin = dict(standing.begin)
        try:
            for part in self._all_parts(material):
                for number, _ in part.snapshot.partitions:
                    found = first_after(part.snapshot, number, standing, key, self._backend)
                    begin[number] = max(begin.get(number, 0), min(found, standing.end.get(number, 0)))
        finally:
            material.pins.close()
        return replace(standing, begin=begin)

    # ------------------------------------------------------------ reading

    @one_refresh()
    def _material(self) -> Material:
        """Snapshots of the topics with selected streams or events."""
        backend, source = self._backend, self._select.source
        ends = self._ends()  # first, so that everything below is in the index and in the snapshots
        streams = backend.streams.names(None)
        chosen = streams if source is None else backend.streams.names(source)
        held = []
        parts = []
        texts = [each for each in list(backend.state.topics.items()) if not each[1].binary_keys and each[1].schemas]
        asked = set() if source is None else topics_of(source, {name: list(topic.partitions) for name, topic in texts})
        for name, topic in texts:
            others = EventTags(name, source, streams.get(name, ())) if source is not None and name in asked else None
            if source is not None and others is None and name not in chosen:
                continue
            snapshot, pin = backend.snapshot(topic, None)
            held.append((snapshot, pin))
            conditions = index_conditions(snapshot, self._select.where)
            mine = None if source is None else chosen.get(name, ())
            parts.append(TopicPart(snapshot, mine, conditions, streams.get(name, ()), others))
        pins, schema = hold(held)
        return Material(parts, pins, schema, ends)

    @property
    def warnings(self) -> list[str]:
        """The parts of the statement that match nothing anywhere: FROM, and fields that no topic has."""
        material = self._material()
        material.pins.close()
        if self._select.source is not None and not material.parts:
            return ["FROM matches no stream and no topic"]
        if not material.parts:
            return []
        columns = material.columns
        warnings = hidden_columns(self._select, columns)
        only = material.parts[0] if len(material.parts) == 1 else None
        if only is not None and only.others is not None and only.streams and not only.spaces:
            topic = only.snapshot.topic.name
            text = f"FROM matches no stream of the topic {topic!r}: streams do not have a tag named topic"
            warnings.append(text)
        unknown = sorted(other_references(self._select, columns) - set(self._backend.streams.tag_names()) - EVENT_TAGS)
        if columns.extra is not None:
            near = ((name, did_you_mean(name, columns.names)) for name in unknown)
            return warnings + [f"no topic that is read has a column {name!r}: {hint}" for name, hint in near if hint]
        fields = sorted(referenced_fields(self._select) - set(columns.names))
        warnings += [f"no topic that is read has a field {name!r}" for name in fields]
        return warnings + [f"no topic that is read has a column, field or tag {name!r}" for name in unknown]

    def _all_parts(self, material: Material) -> list[TopicPart]:
        """Every topic with text keys, because positions count all of them."""
        parts = []
        for topic in list(self._backend.state.topics.values()):
            if not topic.binary_keys:
                snapshot, pin = self._backend.snapshot(topic, None)
                material.pins.callback(pin.release)
                parts.append(TopicPart(snapshot, None))
        return parts

    def _filter(self, material: Material) -> Filter:
        columns, where = material.columns, self._select.where
        if other_references(self._select, columns):
            columns = replace(columns, tag_names=frozenset(self._backend.streams.tag_names()) | EVENT_TAGS)
        going_on = self._start[0] == "token"  # the position may be older than some columns
        return Filter.compile(where, columns, self._now_ns, standing=going_on)

    def _merged(
        self, material: Material, around: Round, names: list[str], *, reverse: bool, limit: int | None
    ) -> Iterator[pa.RecordBatch]:
        if not material.parts:
            return iter(())
        pool = self._backend.pool
        where = self._filter(material)
        return read_round(material, around, where, self._span, names, pool, reverse=reverse, limit=limit)

    def _unordered(self, material: Material, names: list[str]) -> Iterator[pa.RecordBatch]:
        """The columns `names`, and perhaps others, of the records in any order."""
        if material.parts:
            where, pool = self._filter(material), self._backend.pool
            for around in self._plan(material, material.ends, self._select).rounds:
                yield from read_unordered(material, around, where, self._span, names, pool)

    def _read(self, material: Material, names: list[str]) -> Iterator[pa.RecordBatch]:
        select = self._select
        limit = None if select.limit is None or select.limit < 0 else select.limit
        with material.pins:
            plan = self._plan(material, material.ends, select)
            self._standing = self._first_standing() if limit == 0 else None
            skip = plan.skip
            for around in plan.rounds if limit != 0 else ():
                self._standing = around.standing
                hint = None if limit is None else limit + skip
                for whole in self._merged(material, around, names, reverse=select.newest_first, limit=hint):
                    batch = whole.slice(skip)
                    skip = max(0, skip - len(whole))
                    batch = batch if limit is None else batch.slice(0, limit)
                    if not len(batch):
                        continue
                    self._standing, self._given = Position(around.begin, around.end, last_key(batch)), batch
                    yield batch.select(names)
                    if limit is not None:
                        limit -= len(batch)
                        if not limit:
                            return
                self._standing = Position(around.end)

    def begin(self) -> None:
        """Fix the position of TAIL to now, before anything is read."""
        if self._start[0] == "tail":
            self._standing = self._first_standing()
            if (self._select.offset or 0) >= 0:
                self._start = ("token", self._standing, 0)

    def go_on(self, given: int) -> None:
        """Make the next use continue where the last one stopped, which returned `given` records."""
        self._start = ("token", self._standing or self._first_standing(), 0)
        limit = self._select.limit
        self._select = replace(self._select, offset=None, limit=limit if limit is None or limit < 0 else limit - given)


def _rendered_at_once(batch: pa.RecordBatch, parts: int) -> Iterator[pa.RecordBatch]:
    """Slices of a batch that are quick to render and need little memory."""
    row_bytes = max(1, batch.nbytes // len(batch))
    rows = max(_RENDERED_ROWS, min(_RENDERED_PARTS, _RENDERED_BYTES // row_bytes) // parts)
    return (batch.slice(first, rows) for first in range(0, len(batch), rows))
