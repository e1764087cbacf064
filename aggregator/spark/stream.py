"""Read a topic as a stream: micro-batches are ranges of record indexes, so a repeated batch has the same events.

An offset has, for each partition, the record index of the first event that was not read. Events that arrive later come
after it, however old their timestamps are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from aggregator.engine.backend import reader_of
from aggregator.engine.follower import ReaderEngine
from aggregator.model import RECORD_INDEX, SegmentInfo
from aggregator.spark.admission import I64, Span, admit, uncovered
from aggregator.spark.options import HEAD, TAIL, CatalogReadOptions
from aggregator.spark.plan import plan_tasks, read_task
from aggregator.spark.reader import make_request, topic_of
from aggregator.storage.files.pins import Pin
from aggregator.storage.segments.table import Bounds
from aggregator.storage.state.state import Snapshot, Topic
from esformat import UsageError

Ends = dict[str, int]
"""Record indexes by name of partition."""


class CatalogStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Follows a topic. The driver has one for as long as the query runs; its copies in the tasks only read."""

    def __init__(self, options: CatalogReadOptions, schema: StructType) -> None:
        """Raises UsageError, AggregatorError."""
        self._options = options
        self._request = make_request(options, schema)
        self._following: ReaderEngine | None = None
        self._pins: list[Pin] = []
        self._target: Ends | None = None

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_following": None, "_pins": [], "_target": None}

    def _catalog(self) -> ReaderEngine:
        if self._following is None:
            self._following = reader_of(self._options.root)
        return self._following

    def _topic(self) -> Topic:
        return topic_of(self._catalog(), self._options.topic)

    # ------------------------------------------------------------ offsets

    def _ends(self) -> Ends:
        """The current end of each partition."""
        topic = self._topic()
        with self._catalog().state.view_lock:
            return {partition.name: partition.visible_end for partition in topic.partitions.values()}

    def _offset(self, ends: Mapping[str, int]) -> dict[str, Any]:
        lineage = self._catalog().state.lineage
        incarnation = lineage.name_of(self._numbered(ends)).hex() if lineage.names else ""
        return {
            "catalog": self._identity(),
            "incarnation": incarnation,
            "topic": self._topic().info.number,  # the name can be reused for another topic
            "ends": dict(ends),
        }

    def _numbered(self, ends: Mapping[str, int]) -> dict[int, int]:
        """Convert names of partitions to their numbers; 0 for one that the topic does not have."""
        known = self._topic().partitions
        return {known[name].number if name in known else 0: end for name, end in ends.items()}

    def _identity(self) -> str:
        return self._catalog().manifest.get("identity") or ""

    def _read_offset(self, offset: Mapping[str, Any]) -> Ends:
        """Return the ends of an offset. Raises UsageError if it belongs to another catalog or topic."""
        if (offset["catalog"], offset["topic"]) != (self._identity(), self._topic().info.number):
            raise UsageError(
                "the checkpoint belongs to another catalog or topic, perhaps a deleted one of the same name, or the "
                "manifest was rebuilt after it",
                path=self._options.root,
                hint="start with a new checkpoint and the option position",
            )
        visible = self._numbered(self._ends())
        self._catalog().state.lineage.check(
            bytes.fromhex(offset["incarnation"]), self._numbered(offset["ends"]), visible
        )
        return dict(offset["ends"])

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """The offset at which a new query begins."""
        position = self._options.position
        if position == TAIL:
            return self._offset(self._ends())
        if position == HEAD:
            return self._offset({})
        given = dict(position)  # type: ignore[arg-type]  # head and tail were the only texts
        known = self._ends()
        unknown = [name for name in given if name not in known]
        if unknown:
            raise UsageError(f"no partition {unknown[0]!r}", hint=f"the partitions are {', '.join(known) or 'none'}")
        return self._offset(given)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """The offset at which the next micro-batch ends. Releases the files of the previous one, which is done."""
        self._release()
        begin = self._read_offset(start)
        ends = self._ends()
        if self._target is not None:
            ends = {name: min(end, self._target.get(name, 0)) for name, end in ends.items()}
        ends = {name: max(end, begin.get(name, 0)) for name, end in ends.items()}
        if not isinstance(limit, ReadAllAvailable):
            rows = limit.max_rows if isinstance(limit, ReadMaxRows) else self._options.max_rows
            size = limit.max_bytes if isinstance(limit, ReadMaxBytes) else self._options.max_bytes
            if rows is not None or size is not None:
                ends = self._admitted(begin, ends, rows, size)
        return self._offset({**begin, **ends})

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """The limit from the options. If both are set, this is the rows; `latestOffset` adds the bytes."""
        if self._options.max_rows is not None:
            return ReadMaxRows(self._options.max_rows)
        return ReadAllAvailable() if self._options.max_bytes is None else ReadMaxBytes(self._options.max_bytes)

    def reportLatestOffset(self) -> dict[str, Any]:  # noqa: N802
        """The end of the topic, for the query's progress."""
        return self._offset(self._ends())

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Limit the query to the events that exist now."""
        self._target = self._ends()

    def _admitted(self, begin: Ends, ends: Ends, rows: int | None, size: int | None) -> Ends:
        snapshot, pin = self._snapshot()
        try:
            spans = {name: list(self._spans(snapshot, number)) for number, name in snapshot.partitions}
            return admit(spans, begin, ends, rows, size)
        finally:
            pin.release()

    def _spans(self, snapshot: Snapshot, partition: int) -> Iterator[Span]:
        for info in snapshot.segments.select(Bounds(partition=partition)):
            load = _indexes_of(self._catalog(), info)
            yield Span(info.first_index, info.last_index + 1, info.rows, info.size_bytes, load)
        for part in snapshot.memtables:
            for batch in part.batches if part.partition == partition else ():
                yield Span(batch.first_index, batch.end_index, batch.rows, batch.size_bytes, batch.record_indexes)

    # ------------------------------------------------------------ reading

    def _snapshot(self) -> tuple[Snapshot, Pin]:
        return self._catalog().snapshot(self._topic(), None)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Plan the tasks of a micro-batch. Its files are pinned until the next micro-batch is requested."""
        begin, ends = self._read_offset(start), self._read_offset(end)
        snapshot, pin = self._snapshot()
        self._pins.append(pin)
        spans = {number: (begin.get(name, 0), ends.get(name, 0)) for number, name in snapshot.partitions}
        if self._options.fail_on_data_loss:
            self._check_there(
                snapshot, {number: spans[number] for number, name in snapshot.partitions if name in begin}
            )
        tasks = plan_tasks(
            self._catalog().layout,
            snapshot,
            self._request,
            indexes=spans,
            store=self._catalog().objects.settings,
            partition_bytes=self._options.partition_bytes,
            partitions=self._options.partitions,
        )
        return [InputPartition(task) for task in tasks]

    def _check_there(self, snapshot: Snapshot, asked: Mapping[int, tuple[int, int]]) -> None:
        """Raise UsageError if whole ranges of unread record indexes are gone.

        Single missing events were erased, which is not a loss.
        """
        for number, name in snapshot.partitions:
            begin, end = asked.get(number, (0, 0))
            there = [(span.first, span.end) for span in self._spans(snapshot, number)]
            gone = uncovered(begin, end, [*there, *snapshot.holes.get(number, ())])
            if gone:
                count = sum(last - first for first, last in gone)
                raise UsageError(
                    f"{count:,} events of partition {name!r} from record index {gone[0][0]} on were removed before the "
                    "stream read them",
                    path=self._options.root,
                    hint='keep events longer, or continue without them: .option("failOnDataLoss", "false")',
                )

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the events of one task."""
        return read_task(partition.value or (), self._request, self._options.root)

    def _release(self) -> None:
        for pin in self._pins:
            pin.release()
        self._pins.clear()

    def stop(self) -> None:
        """Release the files, and close the catalog."""
        self._release()
        if self._following is not None:
            self._following.close()
            self._following = None


def _indexes_of(catalog: ReaderEngine, info: SegmentInfo) -> Callable[[], I64]:
    def load() -> I64:
        column = catalog.pool.get(info).scan(columns=[RECORD_INDEX]).to_table()[RECORD_INDEX]
        return np.asarray(column.to_numpy())

    return load
