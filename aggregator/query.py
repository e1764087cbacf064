"""LQL statements run: SELECT as a lazy `Selection`, the others as tables. What is not there yet is refused."""

from __future__ import annotations

from collections import Counter as Counts
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from aggregator.errors import InvalidRequestError
from aggregator.lql import TagSet, parse_statement
from aggregator.lql.tree import (
    CreatePipe,
    DescribePartition,
    DescribePipe,
    Explain,
    Select,
    ShowPartitions,
    ShowPipes,
    Source,
    Truncate,
)
from aggregator.pipe_table import described_pipe, shown_pipes
from aggregator.pipes import Pipes
from aggregator.selection import Selection
from aggregator.state import Snapshot
from aggregator.stream_index import Stream
from aggregator.tail import Tail
from aggregator.topic import Backend, writer_of


@dataclass(frozen=True, slots=True)
class _Share:
    """What one segment, or the unsealed events (`segment` None), hold of a stream. Bytes are its part by records."""

    topic: str
    name: str
    segment: int | None
    records: int
    size_bytes: int
    min_us: int
    max_us: int


def run(backend: Backend, text: str, pipes: Pipes | None = None) -> Selection | pa.Table:
    """The answer to a statement. pipes: those at work, None in a process that only reads.

    Raises InvalidRequestError (LqlError with the place) where it is wrong, ReadOnlyError.
    """
    statement = parse_statement(text)
    match statement:
        case Select():
            selection = Selection(backend, statement)
            return selection.counted() if statement.count else selection
        case Explain(select):
            return Selection(backend, select).explained()
        case ShowPartitions():
            return _partitions(backend, statement)
        case DescribePartition(tags):
            return _description(backend, tags)
        case Truncate():
            raise _missing("TRUNCATE", "erase a stream with Topic.erase, or set a topic's retention")
        case ShowPipes():
            return shown_pipes(backend, pipes, statement)
        case DescribePipe(name):
            return described_pipe(backend, pipes, name)
    writer_of(backend)
    assert pipes is not None
    if isinstance(statement, CreatePipe):
        return described_pipe(backend, pipes, pipes.create(statement).info.name)
    deleted = pipes.delete(statement.name)
    return pa.table({"name": [deleted.info.name], "copied": [deleted.progress.copied]})


def follow(backend: Backend, text: str, timeout_s: float | None) -> Tail:
    """The tail that a SELECT asks for. Raises InvalidRequestError for anything else."""
    statement = parse_statement(text)
    if not isinstance(statement, Select):
        raise InvalidRequestError("only a SELECT can be followed", hint="run other statements with query")
    return Tail(backend, statement, timeout_s)


def _missing(what: str, hint: str) -> InvalidRequestError:
    return InvalidRequestError(f"{what}: not supported yet; nothing was changed", hint=hint)


# ------------------------------------------------------------ SHOW, DESCRIBE


def _partitions(backend: Backend, statement: ShowPartitions) -> pa.Table:
    """Streams, the largest first; totals of all that match stand in the schema's metadata."""
    records: Counts[str] = Counts()
    sizes: Counts[str] = Counts()
    for share in _shares(backend, statement.source):
        records[share.name] += share.records
        sizes[share.name] += share.size_bytes
    names = sorted(records, key=lambda name: (-sizes[name], -records[name], name))
    first = statement.offset or 0
    limit = statement.limit
    shown = names[first:] if limit is None or limit < 0 else names[first : first + limit]
    totals = {"partitions": len(names), "records": records.total(), "bytes": sizes.total()}
    schema = pa.schema(
        [("tags", pa.string()), ("records", pa.int64()), ("bytes", pa.int64())],
        metadata={f"total {name}": str(total) for name, total in totals.items()},
    )
    return pa.table([shown, [records[name] for name in shown], [sizes[name] for name in shown]], schema=schema)


def _description(backend: Backend, tags: TagSet) -> pa.Table:
    """A row for each segment that holds records of the stream, and one for those that are not sealed."""
    shares = [share for share in _shares(backend, tags) if share.name == str(tags)]
    if not shares:
        raise InvalidRequestError(f"no partition {tags}", hint="SHOW PARTITIONS lists them; all its tags are needed")
    stamp = pa.timestamp("us", "UTC")
    return pa.table(
        {
            "tags": pa.array([share.name for share in shares]),
            "topic": pa.array([share.topic for share in shares]),
            "segment": pa.array([share.segment for share in shares], pa.int64()),
            "records": pa.array([share.records for share in shares], pa.int64()),
            "bytes": pa.array([share.size_bytes for share in shares], pa.int64()),
            "first": pa.array([share.min_us for share in shares], pa.int64()).cast(stamp),
            "last": pa.array([share.max_us for share in shares], pa.int64()).cast(stamp),
        }
    )


def _shares(backend: Backend, source: Source | None) -> Iterator[_Share]:
    backend.refresh()
    topics: dict[str, list[Stream]] = {}
    for stream in backend.streams.select(source):
        topics.setdefault(stream.topic, []).append(stream)
    for name, streams in topics.items():
        snapshot, pin = backend.snapshot(backend.state.topics[name], None)
        try:
            wanted = {str(stream.tags) for stream in streams}
            yield from _sealed(backend, snapshot, wanted)
            yield from _unsealed(snapshot, wanted)
        finally:
            pin.release()


def _sealed(backend: Backend, snapshot: Snapshot, wanted: set[str]) -> Iterator[_Share]:
    """Times are the segment's where many streams are asked for."""
    few = len(wanted) == 1
    for info in snapshot.segments:
        segment = backend.pool.get(info)
        found = {name: segment.spaces(name).get(name) for name in wanted} if few else dict(segment.spaces("{"))
        for key, count in found.items():
            name = str(key)
            if not count or name not in wanted:
                continue
            if snapshot.tombstones.get((info.partition, name.encode()), 0) > info.last_index:
                continue
            low, high = info.min_timestamp, info.max_timestamp
            if few:
                times = segment[name].scan(columns=["timestamp"]).to_table()["timestamp"].cast(pa.int64())
                low, high = (value.as_py() for value in pc.min_max(times).values())
            yield _Share(snapshot.topic.name, name, info.number, count, info.size_bytes * count // info.rows, low, high)


def _unsealed(snapshot: Snapshot, wanted: set[str]) -> Iterator[_Share]:
    pieces = [(part.partition, piece) for part in snapshot.unsealed for piece in part.pieces]
    if not pieces:
        return
    tables = []
    for partition, piece in pieces:
        table = pa.table(
            {
                "space": piece.batch.column("space"),
                "time": piece.batch.column("timestamp").cast(pa.int64()),
                "bytes": np.full(piece.rows, piece.size_bytes / piece.rows),
            }
        )
        for (number, space), end in snapshot.tombstones.items():
            if number == partition:
                erased = np.asarray(pc.equal(table["space"], space.decode()).to_numpy())
                table = table.filter(pa.array(~(erased & (piece.record_indexes() < end)))) if erased.any() else table
        tables.append(table)
    grouped = pa.concat_tables(tables).group_by("space").aggregate(
        [("time", "count"), ("bytes", "sum"), ("time", "min"), ("time", "max")]
    )  # fmt: skip
    for row in grouped.to_pylist():
        if row["space"] in wanted:
            yield _Share(
                snapshot.topic.name, row["space"], None, row["time_count"], int(row["bytes_sum"]), row["time_min"],
                row["time_max"],
            )  # fmt: skip
