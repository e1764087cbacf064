"""Hypothesis strategies: events of all kinds, the ways to write them, and queries for them."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
from event_model import Column, Model, Question, Row
from hypothesis import strategies as st
from small_pieces import Pieces

import esformat

LOWEST, HIGHEST = -(1 << 63), (1 << 63) - 1


@dataclass(frozen=True)
class Layout:
    """The columns of a segment; `default`: those that a writer assumes from its indexes, without a schema."""

    columns: tuple[Column, ...]
    default: bool = False

    @property
    def indexes(self) -> tuple[str, ...]:
        """The names of the indexed columns."""
        return tuple(column.name for column in self.columns if column.indexed)

    @property
    def schema(self) -> pa.Schema:
        """The columns as an Arrow schema."""
        return pa.schema([pa.field(c.name, c.type, c.nullable) for c in self.columns])


DATA = Column("data", pa.binary(), nullable=False)
TYPE = Column("type", pa.string(), indexed=True)
LAYOUTS = {
    "data alone": Layout((DATA,), default=True),
    "one index": Layout((DATA, TYPE), default=True),
    "two indexes": Layout((DATA, TYPE, Column("country", pa.string(), indexed=True)), default=True),
    "indexes of every kind": Layout(
        (
            Column("small", pa.int8(), indexed=True),
            Column("flag", pa.bool_(), indexed=True),
            DATA,
            Column("large", pa.large_string(), indexed=True),
            Column("big", pa.uint64(), indexed=True),
        )
    ),
    "typed payload": Layout(
        (
            Column("data", pa.binary()),
            TYPE,
            Column("amount", pa.float64()),
            Column("note", pa.string()),
            Column("tags", pa.list_(pa.string())),
            Column("place", pa.struct([pa.field("x", pa.int32()), pa.field("name", pa.string())])),
        )
    ),
    "no data": Layout((Column("body", pa.string(), nullable=False), Column("id", pa.int64(), indexed=True))),
    "data is text": Layout((Column("data", pa.string()), TYPE)),
    "no columns": Layout(()),
}

VALUES = {
    pa.int8(): st.integers(-128, 127),
    pa.int32(): st.integers(-(1 << 31), (1 << 31) - 1),
    pa.int64(): st.integers(LOWEST, HIGHEST),
    pa.uint64(): st.integers(0, (1 << 64) - 1),
    pa.bool_(): st.booleans(),
    pa.float64(): st.floats(allow_nan=False),
    pa.binary(): st.one_of(st.binary(max_size=12), st.binary(min_size=40, max_size=90)),
    pa.string(): st.text(max_size=6),
    pa.large_string(): st.text(max_size=6),
    pa.list_(pa.string()): st.lists(st.none() | st.text(max_size=3), max_size=3),
    pa.struct([pa.field("x", pa.int32()), pa.field("name", pa.string())]): st.fixed_dictionaries(
        {"x": st.none() | st.integers(-5, 5), "name": st.none() | st.text(max_size=3)}
    ),
}

TEXT_KEYS = st.one_of(
    st.sampled_from(["", "a", "ab", "a\0", "b", "é", "z\U0010ffff", "k" * 300]), st.text(max_size=4)
).map(str.encode)
BINARY_KEYS = st.one_of(st.sampled_from([b"", b"\0", b"\xff", b"\xff\xff", b"a", b"ab"]), st.binary(max_size=4))

CLOCKS = st.sampled_from(
    [
        st.integers(-3, 12),  # ties, both sides of 1970
        st.integers(1_403_534_919_000_000, 1_403_534_919_000_400),
        st.integers(-(10**15), 10**15),
        st.one_of(st.integers(LOWEST, HIGHEST), st.sampled_from([LOWEST, LOWEST + 1, -1, 0, HIGHEST - 1, HIGHEST])),
    ]
)

PIECES = st.builds(
    Pieces,
    block_rows=st.sampled_from([1, 2, 3, 5, 8, 50]),
    block_bytes=st.sampled_from([None, None, 60, 300]),
    task_blocks=st.sampled_from([1, 3]),
    leaf_runs=st.sampled_from([1, 2, 3, 256]),
    leaf_blocks=st.sampled_from([1, 2, 4, 256]),
    root_leaves=st.sampled_from([1, 512]),
    chunk_entries=st.sampled_from([1, 2, 3, 4096]),
    page_values=st.sampled_from([1, 2, 256]),
    page_bytes=st.sampled_from([30, 16384]),
    opening_root_bytes=st.sampled_from([0, 8192]),
    filter_page_buckets=st.sampled_from([1, 2048]),
    frame_bytes=st.sampled_from([1, 10, 64, 8192]),
    opening_bytes=st.sampled_from([64, 1000, 65536]),
    read_gap_bytes=st.sampled_from([0, 16384]),
    batch_blocks=st.sampled_from([1, 2, 5, 48]),
    point_blocks=st.sampled_from([1, 2, 8]),
    batch_stored_bytes=st.sampled_from([200, 2 << 20]),
    min_parallel_batches=st.sampled_from([1, 2, 4]),
    sorted_rows=st.sampled_from([1, 3, 10, 8192]),
    events_at_once=st.sampled_from([1, 3, 1024]),
    flush_events=st.sampled_from([1, 4, 16384]),
    least_copied_rows=st.sampled_from([1, 1, 3, 512]),
    most_dictionaries=st.sampled_from([1, 2, 16]),
    index_bytes=st.sampled_from([0, 32 << 20]),
    index_step_rows=st.sampled_from([1, 9, 32 << 10]),
    spill_numbers=st.sampled_from([1, 5, 1 << 20]),
)


@dataclass(frozen=True)
class Recording:
    """Events in order of arrival, and the settings with which they are written and read."""

    layout: Layout
    binary_keys: bool
    rows: list[Row] = field(repr=False)
    cuts: list[tuple[str, int]]
    """The number of rows per addition, and their form."""
    codec: str
    threads: int
    cache_bytes: int
    pieces: Pieces

    @property
    def model(self) -> Model:
        """The expected results of the file."""
        return Model(self.layout.columns, self.rows, binary_keys=self.binary_keys)


FORMS = ("events", "table", "batch", "stream", "dictionaries", "chunks")


@st.composite
def recordings(draw: st.DrawFn) -> Recording:
    """Up to a few hundred events with few different spaces, groupings, times and values."""
    layout = LAYOUTS[draw(st.sampled_from(sorted(LAYOUTS)))]
    binary_keys = draw(st.booleans())
    keys = BINARY_KEYS if binary_keys else TEXT_KEYS
    spaces = draw(st.lists(keys, min_size=1, max_size=5))
    groupings = draw(st.just([b""]) | st.lists(keys, min_size=1, max_size=3))
    clock = draw(CLOCKS)
    pools = {}
    for column in layout.columns:
        pool = draw(st.lists(VALUES[column.type], min_size=1, max_size=5))
        pools[column.name] = [None, *pool] if column.nullable else pool
    row = st.builds(
        Row,
        st.sampled_from(spaces),
        st.sampled_from(groupings),
        clock,
        st.fixed_dictionaries({name: st.sampled_from(pool) for name, pool in pools.items()}),
    )
    rows = draw(st.lists(row, max_size=25))
    for _ in range(draw(st.sampled_from([0, 0, 1, 3]))):  # repeat the rows, up to eight times as many
        step = draw(st.integers(0, 2))
        later = [Row(r.space, r.grouping, min(r.timestamp + step, HIGHEST), r.values) for r in rows]
        rows = rows + later
    cuts = draw(st.lists(st.tuples(st.sampled_from(FORMS), st.integers(0, 30)), max_size=4))
    return Recording(
        layout,
        binary_keys,
        rows,
        [*cuts, (draw(st.sampled_from(FORMS)), len(rows))],
        draw(st.sampled_from(["zstd", "zstd", "lz4", "none"])),
        draw(st.sampled_from([1, 2])),
        draw(st.sampled_from([0, 1000, 64 << 20])),
        draw(PIECES),
    )


@st.composite
def questions(draw: st.DrawFn, recording: Recording) -> Question:
    """A query for a recording, usually one with results."""
    rows = recording.rows
    keys = BINARY_KEYS if recording.binary_keys else TEXT_KEYS
    moment = st.none() | st.integers(LOWEST, HIGHEST)
    if rows:
        near = st.tuples(st.sampled_from([row.timestamp for row in rows]), st.integers(-1, 1))
        moment = st.none() | near.map(lambda pair: max(LOWEST, min(HIGHEST, sum(pair)))) | moment
    names = recording.model.names()
    conditions = {}
    for column in recording.layout.columns:
        if column.indexed and draw(st.booleans()):
            value = VALUES[column.type]
            known = [row.values[column.name] for row in rows if row.values[column.name] is not None]
            conditions[column.name] = draw(st.sampled_from(known) | value if known else value)
    space = draw(st.none() | st.sampled_from([row.space for row in rows])) if rows else None
    grouping = st.none() | (st.sampled_from([row.grouping for row in rows]) | keys if rows else keys)
    return Question(
        space,
        draw(grouping),
        draw(moment),
        draw(moment),
        draw(st.booleans()),
        draw(st.none() | st.integers(0, 5) | st.integers(0, len(rows) + 1)),
        draw(st.none() | st.lists(st.sampled_from(names), min_size=1, unique=True).map(tuple)),
        conditions,
    )


def arrow_table(recording: Recording, rows: list[Row], form: str) -> pa.Table:
    """Rows as a table, built according to the form."""
    key_type = pa.binary() if recording.binary_keys else pa.string()
    shown = recording.model.shown
    fields = [pa.field("space", key_type)]
    arrays = [pa.array([shown(row.space) for row in rows], key_type)]
    if form != "batch" or any(row.grouping for row in rows):
        fields.append(pa.field("grouping", key_type))
        arrays.append(pa.array([shown(row.grouping) for row in rows], key_type))
    times = pa.array([row.timestamp for row in rows], pa.int64())
    arrays.append(times if form == "table" else times.cast(pa.timestamp("us", "UTC")))
    fields.append(pa.field("timestamp", arrays[-1].type))
    for column in recording.layout.columns:
        fields.append(pa.field(column.name, column.type, column.nullable))
        arrays.append(pa.array([row.values[column.name] for row in rows], column.type))
    if form == "dictionaries":
        textual = [pa.types.is_string(f.type) or pa.types.is_binary(f.type) for f in fields]
        arrays = [a.dictionary_encode() if text else a for a, text in zip(arrays, textual, strict=True)]
        fields = [pa.field(f.name, a.type, f.nullable) for f, a in zip(fields, arrays, strict=True)]
    return pa.table(arrays, schema=pa.schema(fields))


def add_rows(writer: esformat.Writer, recording: Recording, rows: list[Row], form: str) -> None:
    """Add rows to a writer in one of the FORMS."""
    if form == "events":
        others = [column for column in recording.layout.columns if column.name != "data"]
        for row in rows:
            writer.add(
                recording.model.shown(row.space),
                row.values.get("data"),
                timestamp=row.timestamp,
                grouping=recording.model.shown(row.grouping),
                indexes={c.name: row.values[c.name] for c in others if c.indexed and row.values[c.name] is not None},
                columns={c.name: row.values[c.name] for c in others if not c.indexed},
            )
        return
    table = arrow_table(recording, rows, form)
    if form == "batch":
        for batch in table.to_batches():
            writer.add_table(batch)
    elif form == "stream":
        writer.add_table(table.to_reader(max_chunksize=3))
    elif form == "chunks":
        writer.add_table(pa.concat_tables([table.slice(0, len(rows) // 2), table.slice(len(rows) // 2)]))
    else:
        writer.add_table(table)


def write_recording(recording: Recording, path: Path, **options: Any) -> None:
    """Write a recording's events in order, in the forms that it names."""
    layout = recording.layout
    with esformat.create(
        path,
        indexes=layout.indexes,
        schema=None if layout.default else layout.schema,
        keys="binary" if recording.binary_keys else "text",
        codec=recording.codec,
        threads=recording.threads,
        **options,
    ) as writer:
        rest = recording.rows
        for form, count in recording.cuts:
            add_rows(writer, recording, rest[:count], form)
            rest = rest[count:]
        assert writer.num_events == len(recording.rows)
