"""Run LQL statements: SELECT returns a lazy `Selection`, the others return tables."""

from __future__ import annotations

from collections import Counter as Counts
from collections import defaultdict
from collections.abc import Callable
from typing import TypeVar

import pyarrow as pa

from aggregator.base.refresh_once import one_refresh
from aggregator.engine.backend import Backend, writer_of
from aggregator.errors import InvalidRequestError
from aggregator.lql import TagSet, TimeSpan, parse_statement
from aggregator.lql.parse.tree import (
    CreatePipe,
    DescribePartition,
    DescribePipe,
    Explain,
    Select,
    ShowPartitions,
    ShowPipes,
    Truncate,
)
from aggregator.streams.pipes.tables import described_pipe, shown_pipes
from aggregator.streams.pipes.worker import Pipes
from aggregator.streams.selection import Selection
from aggregator.streams.sizes import shares
from aggregator.streams.tail import Tail
from aggregator.streams.truncate import truncate

S = TypeVar("S", ShowPartitions, Truncate)
NO_STREAM = "no stream matches; SHOW PARTITIONS and TRUNCATE apply only to streams, not to other events of a topic"


@one_refresh()
def run(
    backend: Backend, text: str, pipes: Pipes | None = None, within: TimeSpan | None = None
) -> Selection | pa.Table:
    """Run a statement. pipes: the running ones, None in a process that only reads. within: only records of that time.

    Raises InvalidRequestError if the statement is invalid (LqlError with the location), ReadOnlyError.
    """
    statement = parse_statement(text)
    if within is not None and not isinstance(statement, Select | Explain):
        raise InvalidRequestError("start and end apply only to a SELECT", hint="omit start and end")
    match statement:
        case Select():
            selection = Selection(backend, statement, within=within)
            return selection.counted() if statement.count else selection
        case Explain(select):
            return Selection(backend, select, within=within).explained()
        case ShowPartitions():
            return _warned(backend, statement, _partitions)
        case DescribePartition(tags):
            return _description(backend, tags)
        case Truncate():
            return _warned(backend, statement, truncate)
        case ShowPipes():
            return shown_pipes(backend, pipes, statement)
        case DescribePipe(name):
            return described_pipe(backend, pipes, name)
    writer_of(backend)  # the remaining statements change something
    assert pipes is not None
    if isinstance(statement, CreatePipe):
        return described_pipe(backend, pipes, pipes.create(statement).info.name)
    deleted = pipes.delete(statement.name)
    return pa.table({"name": [deleted.info.name], "copied": [deleted.progress.copied]})


def follow(backend: Backend, text: str, timeout_s: float | None) -> Tail:
    """The tail for a SELECT. Raises InvalidRequestError for any other statement."""
    statement = parse_statement(text)
    if not isinstance(statement, Select):
        raise InvalidRequestError("only a SELECT can be followed", hint="run other statements with query")
    return Tail(backend, statement, timeout_s)


def _warned(backend: Backend, statement: S, run_statement: Callable[[Backend, S], pa.Table]) -> pa.Table:
    """Run a statement, and add a warning to its result if no stream matched its source before."""
    source = statement.source
    matched = source is None or next(iter(backend.streams.select(source)), None) is not None
    table = run_statement(backend, statement)
    if matched:
        return table
    return table.replace_schema_metadata({**(table.schema.metadata or {}), "warning": NO_STREAM})


# ------------------------------------------------------------ SHOW, DESCRIBE


def _partitions(backend: Backend, statement: ShowPartitions) -> pa.Table:
    """Streams, largest first; the totals of all matching ones are in the schema's metadata."""
    records: Counts[str] = Counts()
    sizes: defaultdict[str, float] = defaultdict(float)
    for share in shares(backend, statement.source):
        records[share.name] += share.records
        sizes[share.name] += share.size_bytes
    names = sorted(records, key=lambda name: (-sizes[name], -records[name], name))
    first = statement.offset or 0
    limit = statement.limit
    shown = names[first:] if limit is None or limit < 0 else names[first : first + limit]
    totals = {"partitions": len(names), "records": records.total(), "bytes": round(sum(sizes.values()))}
    schema = pa.schema(
        [("tags", pa.string()), ("records", pa.int64()), ("bytes", pa.int64())],
        metadata={f"total {name}": str(total) for name, total in totals.items()},
    )
    return pa.table([shown, [records[name] for name in shown], [round(sizes[name]) for name in shown]], schema=schema)


def _description(backend: Backend, tags: TagSet) -> pa.Table:
    """A row for each segment with records of the stream, and one for unsealed records."""
    found = [share for share in shares(backend, tags) if share.name == str(tags)]
    if not found:
        raise InvalidRequestError(f"no partition {tags}", hint="SHOW PARTITIONS lists them; all its tags are needed")
    stamp = pa.timestamp("us", "UTC")
    return pa.table(
        {
            "tags": pa.array([share.name for share in found]),
            "topic": pa.array([share.topic for share in found]),
            "segment": pa.array([share.segment for share in found], pa.int64()),
            "records": pa.array([share.records for share in found], pa.int64()),
            "bytes": pa.array([round(share.size_bytes) for share in found], pa.int64()),
            "first": pa.array([share.min_us for share in found], pa.int64()).cast(stamp),
            "last": pa.array([share.max_us for share in found], pa.int64()).cast(stamp),
        }
    )
