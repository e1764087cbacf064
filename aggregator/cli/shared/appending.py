"""Append batches of events to a topic in order, and retry while the catalog is busy."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from itertools import chain
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any, TypeAlias

import aggregator
from aggregator.cli.shared.open_catalog import warn_of_hidden_streams
from esformat import convert
from esformat.cli.parts import bad_rows_of, count, input_options_of, progress, roles_of, say, warn

if TYPE_CHECKING:
    import pyarrow as pa

    from aggregator.client import RemoteTopic

AnyTopic: TypeAlias = "aggregator.Topic | RemoteTopic"
"""A topic of a local catalog or of a server."""

DISK_PATIENCE_S = 60.0
"""How long a batch waits for retention to make room on a full disk; after that, a person has to."""
_KEYS_AND_PAYLOAD = ("space", "grouping", "timestamp", "data")


@dataclass(slots=True)
class AppendSummary:
    """Summary of what was appended. first, last: record indexes, None if nothing was appended."""

    topic: str
    partition: str
    events: int = 0
    batches: int = 0
    duplicates: int = 0
    overloads: int = 0
    first: int | None = None
    last: int | None = None
    bad_rows: int = 0
    assumptions: tuple[str, ...] = ()

    def take_forgotten(self, rows: int) -> None:
        """Count a batch that must have been stored, because later ones of its producer were."""
        self.batches += 1
        self.events += rows
        self.duplicates += 1

    def take(self, receipt: aggregator.Receipt) -> None:
        """Count the batch of a receipt."""
        self.batches += 1
        self.events += len(receipt)
        self.duplicates += receipt.duplicate
        self.first = receipt.first if self.first is None else min(self.first, receipt.first)
        self.last = receipt.last if self.last is None else max(self.last, receipt.last)


def append_batches(
    topic: AnyTopic,
    batches: Iterable[pa.RecordBatch],
    partition: str,
    *,
    batch_rows: int,
    producer: str | None = None,
    summary: AppendSummary | None = None,
    receipts: bool = False,
) -> AppendSummary:
    """Append `batches`, cut to `batch_rows`, in order; each is acknowledged before the next is sent.

    producer: the batches are its sequences 0, 1, 2 …, so that batches stored before are not stored again. Batches too
    old for the catalog to remember are skipped, provided that the next one it remembers is the same.
    receipts: print each as soon as it arrives.
    """
    summary = summary or AppendSummary(topic.name, partition)
    forgotten: aggregator.SequenceForgottenError | None = None
    try:
        for batch in _cut(batches, batch_rows):
            key = {} if producer is None else {"producer": producer, "sequence": summary.batches}
            try:
                receipt = _append_patiently(lambda batch=batch, key=key: topic.append(batch, partition, **key), summary)  # type: ignore[misc]
            except aggregator.SequenceForgottenError as error:
                forgotten = error
                summary.take_forgotten(batch.num_rows)
                continue
            forgotten = None
            summary.take(receipt)
            if receipts:
                say(json.dumps(asdict(receipt), ensure_ascii=False))
        if forgotten is not None:  # nothing shows that the stored events are these
            raise forgotten
    except BaseException as error:
        if isinstance(error, aggregator.SequenceConflictError):  # its hint is for callers that choose sequences
            error.hint = "choose another --producer for another file; repeat one only with the same file and options"
        if summary.first is not None:
            warn(
                f"{summary.topic} keeps {count(summary.events, 'event')} appended before the error: "
                f"record indexes {summary.first:,} to {summary.last:,} of partition {summary.partition}"
            )
        raise
    return summary


def _append_patiently(append: Callable[[], aggregator.Receipt], summary: AppendSummary) -> aggregator.Receipt:
    began = monotonic()
    while True:
        try:
            return append()
        except aggregator.OverloadedError as error:
            if isinstance(error, aggregator.DiskFullError) and monotonic() - began >= DISK_PATIENCE_S:
                raise
            summary.overloads += 1
            sleep(error.retry_after_s)


def _cut(batches: Iterable[pa.RecordBatch], rows: int) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for start in range(0, batch.num_rows, rows):
            yield batch.slice(start, rows)


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic that is created with its first events, so that an unreadable file leaves no topic behind."""

    catalog: aggregator.Catalog
    name: str
    indexes: tuple[str, ...]
    keys: str

    @contextmanager
    def created(self) -> Iterator[aggregator.Topic]:
        """Create the topic for the body of a `with`; delete it again if that fails before any event is stored."""
        topic = self.catalog.create_topic(self.name, indexes=self.indexes, keys=self.keys)
        warn_of_hidden_streams(self.name)
        try:
            yield topic
        except BaseException:
            if not any(topic.ends().values()):
                try:
                    self.catalog.delete_topic(self.name)
                except (aggregator.AggregatorError, OSError) as error:
                    warn(f"{self.name} remains, without events: {error}")
            raise


def append_files(topic: AnyTopic | NewTopic, inputs: Sequence[convert.Input], options: dict[str, Any]) -> AppendSummary:
    """Append the events of files, or of "-", according to a command's options."""
    roles = _roles(topic, options)
    summary = AppendSummary(topic.name, options["partition"])
    with ExitStack() as opened:
        plan = None
        if not any(map(convert.is_pipe, inputs)):  # a pipe is appended as it arrives
            plan = _surveyed(inputs, roles, options)
        show = opened.enter_context(progress("appending"))
        bad_rows = bad_rows_of(options, inputs)
        live = options["producer"] is None  # a producer's batches must be the same in the next run
        load = opened.enter_context(
            convert.Load(inputs, roles, input_options_of(options), bad_rows=bad_rows, progress=show, live=live)
        )
        batches = iter(load.batches(plan))
        if isinstance(topic, NewTopic):
            first = next(batches, None)
            topic = opened.enter_context(topic.created())
            batches = chain([] if first is None else [first], batches)
        append_batches(
            topic,
            batches,
            options["partition"],
            batch_rows=options["batch_rows"],
            producer=options["producer"],
            summary=summary,
            receipts=options["receipts"],
        )
        summary.bad_rows, summary.assumptions = bad_rows.count, tuple(load.assumptions())
    return summary


def _surveyed(inputs: Sequence[convert.Input], roles: convert.Roles, options: dict[str, Any]) -> convert.Plan:
    """Read all rows to find the types of their columns."""
    with (
        progress("looking") as show,
        convert.Load(inputs, roles, input_options_of(options), progress=show) as load,
    ):
        return load.survey()


def _roles(topic: AnyTopic | NewTopic, options: dict[str, Any]) -> convert.Roles:
    """The roles and types of the columns: from the options, else the topic's types if the values fit them."""
    roles = roles_of(options, keys=topic.keys)
    if isinstance(topic, NewTopic):
        return replace(roles, null_data=True)
    schema = topic.scan().schema
    known = {field.name: field.type for field in schema if field.name not in _KEYS_AND_PAYLOAD}
    fresh = not topic.stats()["schemas"]
    null_data = fresh or "data" not in schema.names or schema.field("data").nullable
    return replace(roles, known=known, null_data=null_data)
