"""Appends: a batch is checked, converted to the topic's schema and logged, and becomes visible once the log says so."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from threading import Lock
from typing import Any, Protocol, Self

import pyarrow as pa

from aggregator.base.common_type import magnitudes_at, magnitudes_of, places_of_magnitudes, rounds_nothing
from aggregator.base.names import check_name
from aggregator.engine.ingest.batch import BatchAdapter, Message, is_valid
from aggregator.engine.ingest.event_table import Rows, as_arrow_or_rows, to_table
from aggregator.engine.ingest.quota import RETRY_S, Quota
from aggregator.engine.ingest.reserve import Reserve
from aggregator.errors import OverloadedError, SequenceConflictError
from aggregator.model import ProducerEntry, Receipt, SchemaInfo
from aggregator.storage.log.entry import PASSED, Entry
from aggregator.storage.log.frame import EventsPrefix, plain_prefix
from aggregator.storage.memtable.batch import SMALL_BYTES, MemtableBatch
from aggregator.storage.memtable.memtable import MERGED
from aggregator.storage.parts import Storage
from aggregator.storage.state.schema import choose_schema, newest_of_families, widened
from aggregator.storage.state.state import Partition, Topic
from esformat import InvalidEventError

MAX_COLUMN_SETS = 64
"""Number of sets of columns that are remembered for each topic."""
MOST_JOINED = 64
"""Batches with at most this many events are joined with others that arrive at the same time."""


@dataclass(slots=True, eq=False)
class _ColumnSet:
    """A set of columns in which batches for a topic arrive, and the adapters for them."""

    schema: pa.Schema
    measured: tuple[tuple[int, str], ...]  # the columns that can have a magnitude
    adapters: dict[Any, tuple[SchemaInfo, BatchAdapter]] = field(default_factory=dict)  # by magnitudes


class Shipper(Protocol):
    """Uploads the log to a store."""

    def admit(self) -> str | None:
        """Why nothing may be acknowledged now; None if it may. Raises LogFailedError if nothing ever will be."""


class _Batch(Entry):
    """A batch on its way into the log, with the steps that the log's leader takes, in their order."""

    __slots__ = (
        "_digest", "_events", "_ingest", "_key", "_limits", "_memtable_batch", "_note", "_schema", "_topic", "due",
        "into", "known", "reserved",
    )  # fmt: skip

    def __init__(
        self,
        ingest: Ingest,
        topic: Topic,
        partition: Partition,
        schema: SchemaInfo,
        rows: int,
        key: tuple[str, int] | None = None,
        note: str = "",
    ) -> None:
        number = partition.number
        super().__init__(number, rows, defines=(number, schema.number), key=(number, *key) if key else None)
        self._ingest, self._topic, self.into, self._schema = ingest, topic, partition, schema
        self._key, self._note, self._digest, self._events = key, note, 0, rows
        self.known: ProducerEntry | None = None
        """The entry of the same batch, if it was stored before."""
        self.due = False
        """Whether it made the partition due for sealing."""
        self.reserved = 0
        """Bytes of memory that are reserved for it."""

    def hold(self, message: Message, digest: int = 0) -> None:
        """Set the events and reserve memory for them. Raises InvalidEventError, OverloadedError."""
        ingest, stored, size = self._ingest, message.stored, len(message.stored)
        ingest.quota.check_size(size)
        self._memtable_batch = MemtableBatch(
            0, self._schema, stored, message.rows, message.min_timestamp, message.max_timestamp, size, ingest.clock()
        )
        self._digest = digest
        self._limits = self._topic.info.roll.rows, ingest.roll_bytes(self._topic)
        self.carry([self._prefix(), stored])
        ingest.quota.reserve(size)
        self.reserved = size

    def receipt(self) -> Receipt:
        """The receipt for its appender."""
        if self.known is not None:
            return _receipt(self._topic, self.into, self.known.first_index, self.known.count, duplicate=True)
        first = (self.bearer or self).first_index + self.offset
        return _receipt(self._topic, self.into, first, self._events)

    def _prefix(self) -> bytes:
        """The bytes before the batch in its log frame."""
        if self._key is None and not self._note:
            return plain_prefix(self._schema.number)
        producer, sequence = self._key or ("", 0)
        return EventsPrefix(self._schema.number, producer, sequence, self._digest, self._note).encode()

    def definition(self) -> bytes:
        """The body of the log frame that defines its partition and schema."""
        return definition(self._topic, self.into, self._schema)

    def place(self) -> bool:
        """Assign the partition's next record indexes. False if the batch is already stored."""
        self._topic.check_there()
        partition, reserve = self.into, self._ingest.reserve
        if self._key is not None:
            self.known = _known(partition, self._key, self._digest, self.count)
            if self.known is not None:
                return False
        if reserve is not None:
            reserve.cover(partition, partition.next_index + self.count)
        self.first_index = partition.next_index
        partition.next_index += self.count
        return True

    def withdraw(self) -> None:
        """Take the record indexes back."""
        if self.into.next_index == self.first_index + self.count:  # else segments were added after it
            self.into.next_index = self.first_index

    def publish(self) -> None:
        """Make it visible to readers."""
        partition, batch = self.into, self._memtable_batch
        if self._key is not None:
            partition.keep_producer(
                ProducerEntry(partition.number, *self._key, self._digest, self.first_index, self.count, self._note)
            )
        batch.first_index = self.first_index
        rows, size = self._ingest.show(partition, batch)
        most_rows, most_bytes = self._limits
        self.due = _passes(most_rows, rows, batch.rows) or _passes(most_bytes, size, batch.size_bytes)


class SmallBatch(_Batch):
    """A batch of few events without a producer. Those that wait for the same group are written as one batch."""

    __slots__ = ("_adapter", "_unconverted")

    def __init__(
        self,
        ingest: Ingest,
        topic: Topic,
        partition: Partition,
        schema: SchemaInfo,
        adapter: BatchAdapter,
        given: pa.RecordBatch,
    ) -> None:
        super().__init__(ingest, topic, partition, schema, given.num_rows)
        self._adapter, self._unconverted = adapter, given
        self.joins = partition.number, adapter  # an adapter is for one set of columns, so theirs are equal

    def join(self, others: Sequence[Self]) -> None:
        """Take the events of all these batches. If they are refused, each takes its own, as one may be at fault."""
        if not others or not self._bear(others):
            for batch in (self, *others):
                try:
                    batch.hold(batch._adapter.message(batch._unconverted))
                except Exception as error:  # noqa: BLE001  it belongs to the thread that appends this batch
                    batch.error, batch.fate = error, PASSED

    def _bear(self, others: Sequence[Self]) -> bool:
        try:
            whole = pa.Table.from_batches([self._unconverted, *(other._unconverted for other in others)])
            if not is_valid(whole):  # Arrow joins unchecked; checking each would release the GIL, and all would wait
                return False
            self.hold(self._adapter.message(whole.combine_chunks()))
        except Exception:  # noqa: BLE001  each batch then finds out whether it is at fault
            return False
        for other in others:
            other.bearer, other.offset = self, self.count
            self.count += other.count
        return True


class Ingest:
    """Accepts batches. Thread-safe."""

    def __init__(
        self,
        storage: Storage,
        quota: Quota,
        *,
        roll_bytes: Callable[[Topic], int],
        wake: Callable[[], None],
        shipper: Shipper | None = None,
    ) -> None:
        """roll_bytes: the size at which a partition of a topic is sealed. wake: called when one may be due for that.
        shipper: uploads the log to a store.
        """
        self._shipper, self._wake = shipper, wake
        self._state, self._manifest, self._log = storage.state, storage.manifest, storage.log
        self.quota, self.roll_bytes, self.clock = quota, roll_bytes, storage.clock
        self.reserve = None if storage.durability.is_synced else Reserve(storage.manifest)
        """Reserves record indexes; None if every append is synced: otherwise a crash may lose acknowledged events."""
        self.appended_rows = self.appended_bytes = (
            0  # since the catalog was opened; changed by one thread at a time, the log's leader
        )
        self._making = Lock()  # held while a partition or a schema is created
        self._column_sets: dict[int, list[_ColumnSet]] = {}  # by topic, the latest first
        self._ordering = Lock()  # held while one of those lists changes

    def show(self, partition: Partition, batch: MemtableBatch) -> tuple[int, int]:
        """Make a batch visible and count it; called by the log's leader. Return the rows and bytes unsealed before."""
        before = self._state.publish(partition, batch)
        self.appended_rows += batch.rows
        self.appended_bytes += batch.size_bytes
        return before

    def append(
        self, topic: Topic, given: Any, partition: str, producer: str | None, sequence: int | None, note: str = ""
    ) -> Receipt:
        """Store a batch, visible and as durable as the catalog promises, or nothing. note: text stored with its key.

        Raises InvalidEventError, InvalidRequestError, SequenceConflictError, OverloadedError, LogFailedError,
        ManifestFailedError, ClosedError.
        """
        topic.check_there()
        key = batch_key(producer, sequence)
        events = given if type(given) is pa.RecordBatch else as_arrow_or_rows(given)
        table = self._as_table(topic, events) if isinstance(events, list) else events
        small = None if key or note else self._small(topic, table, partition)
        if small is not None:
            return self._append(small)
        schema, message = self._fitted(topic, table)
        place = topic.partitions.get(partition) or self._make_partition(topic, partition)
        if not message.rows:
            return Receipt(topic.info.name, partition, place.next_index, place.next_index - 1)
        try:
            return self._store(topic, place, schema, message, key, note)
        except SequenceConflictError:
            first = self._same_of_a_family(topic, place, key, events)
            if first is None:
                raise
            return _receipt(topic, place, first.first_index, first.count, duplicate=True)

    @staticmethod
    def _as_table(topic: Topic, rows: Rows) -> pa.Table | pa.RecordBatch:
        families = newest_of_families(list(topic.schemas.values()))
        return to_table(rows, topic.binary_keys, [known.schema for known in families])

    def _same_of_a_family(
        self, topic: Topic, partition: Partition, key: tuple[str, int] | None, events: pa.Table | pa.RecordBatch | Rows
    ) -> ProducerEntry | None:
        """The stored batch of that key if it has the same events, in the columns of any family: the topic may have
        gained a family since, which batches like it now use.
        """
        producer, sequence = key or ("", 0)
        entry = partition.producers.get(producer, {}).get(sequence)
        if entry is None or entry.count != len(events):
            return None
        for known in newest_of_families(list(topic.schemas.values())):
            table = to_table(events, topic.binary_keys, [known.schema])
            if widened(known.schema, table.schema, topic.info.indexes, magnitudes_of(table)) != known.schema:
                continue
            with contextlib.suppress(InvalidEventError):  # a value that its columns do not accept
                message = BatchAdapter(table.schema, known.schema).message(table)
                if message.fingerprint(known.schema) == entry.fingerprint:
                    return entry
        return None

    def _store(
        self,
        topic: Topic,
        partition: Partition,
        schema: SchemaInfo,
        message: Message,
        key: tuple[str, int] | None,
        note: str,
    ) -> Receipt:
        self._check_shipping()
        digest = message.fingerprint(schema.schema) if key else 0
        remembered = _remembered(partition, key, digest, message.rows)
        if remembered is not None:  # a stored batch needs no room
            return _receipt(topic, partition, remembered.first_index, remembered.count, duplicate=True)
        batch = _Batch(self, topic, partition, schema, message.rows, key, note)
        batch.hold(message, digest)
        return self._append(batch)

    def _small(self, topic: Topic, table: pa.Table | pa.RecordBatch, partition: str) -> SmallBatch | None:
        """The batch as one that can be joined to others; None if it cannot be, or its types or partition are new."""
        place = topic.partitions.get(partition)
        if place is None or not 0 < table.num_rows <= MOST_JOINED:
            return None
        column_set = self._column_set(topic, table.schema)
        found = None if column_set.measured else column_set.adapters.get(())
        batches = [table] if isinstance(table, pa.RecordBatch) else table.to_batches()
        if found is None or len(batches) > 1 or batches[0].get_total_buffer_size() > SMALL_BYTES:
            return None
        self._check_shipping()
        return SmallBatch(self, topic, place, *found, batches[0])

    def _check_shipping(self) -> None:
        """Raise OverloadedError if nothing may be acknowledged now, LogFailedError if nothing ever will be."""
        refusal = None if self._shipper is None else self._shipper.admit()
        if refusal is not None:
            raise OverloadedError(
                refusal, hint="refused events were not kept; append them again", retry_after_s=RETRY_S
            )

    def _append(self, batch: _Batch) -> Receipt:
        """Log a batch. Release its reserved memory if it is not published."""
        kept = False
        try:
            if self.reserve is not None:
                self.reserve.keep_ahead(batch.into, batch.into.next_index + batch.count)
            self._log.append(batch)
            kept = batch.known is None
        except BaseException:
            kept = batch.first_index >= 0 and batch.error is None  # it was interrupted after it was published
            raise
        finally:
            if not kept:
                self.quota.release(batch.reserved)
        if kept and batch.bearer is None:
            self._tidy(batch)
        return batch.receipt()

    def small(self, topic: Topic, given: Any, partition: str) -> SmallBatch | None:
        """A batch for `append_soon`: few events, in columns that the topic knows; None if only `append` can store it.
        Raises as `append`.
        """
        topic.check_there()
        if not isinstance(given, pa.RecordBatch | pa.Table | list) or len(given) > MOST_JOINED:
            return None
        events = as_arrow_or_rows(given)
        return self._small(topic, self._as_table(topic, events) if isinstance(events, list) else events, partition)

    def append_soon(self, batches: Sequence[SmallBatch]) -> None:
        """Store batches for which no thread waits. The `settled` of each is called once its `outcome` is available.
        Raises LogFailedError, ClosedError; then nothing is called. The log's leader reserves the record indexes, so
        that the caller does not wait for the manifest.
        """
        self._log.submit(batches)

    def outcome(self, batch: SmallBatch) -> Receipt:
        """The result of a settled batch. Call it once. Raises as `append`."""
        try:
            self._log.check_stored(batch)
        except BaseException:
            self.quota.release(batch.reserved)
            raise
        if batch.bearer is None:
            self._tidy(batch)
        return batch.receipt()

    def _tidy(self, batch: _Batch) -> None:
        """After an append: merge small batches in memory, and wake the scheduler if the partition became due."""
        if batch.into.memtable.alike >= MERGED:
            with contextlib.suppress(MemoryError):  # the batch is stored; the small ones then stay separate
                self._state.put_together(batch.into)
        if batch.due:
            self._wake()

    # ------------------------------------------------------------ partitions and schemas

    def _make_partition(self, topic: Topic, name: str) -> Partition:
        check_name(name, "partition")
        with self._making:
            info = self._manifest.add_partition(topic.info.number, name)
            with self._state.view_lock:
                return self._state.add_partition(info)

    def _fitted(self, topic: Topic, table: pa.Table | pa.RecordBatch) -> tuple[SchemaInfo, Message]:
        """The schema for a batch, and the batch in that schema's columns. Raises InvalidEventError."""
        column_set = self._column_set(topic, table.schema)
        magnitudes = magnitudes_at(table, column_set.measured) if column_set.measured else {}
        key = tuple(magnitudes.items())
        found = column_set.adapters.get(key)
        if found is None:
            try:
                found = column_set.adapters[key] = self._make_adapter(topic, table, magnitudes)
            except InvalidEventError:
                fitted = self._fitted_by_value(topic, table)
                if fitted is None:
                    raise
                return fitted
        schema, adapter = found
        return schema, adapter.message(table)

    def _fitted_by_value(self, topic: Topic, table: pa.Table | pa.RecordBatch) -> tuple[SchemaInfo, Message] | None:
        """Fit a batch whose types no family accepts into a family that can store these values; None if there is none.

        The values must also fit the type in which the column is read over all families.
        """
        for known in newest_of_families(list(topic.schemas.values())):
            types = {field.name: field.type for field in known.schema.arrow}
            if all(
                name in types and rounds_nothing(types[name], kind) for name, kind in zip(*_columns(table), strict=True)
            ):
                with contextlib.suppress(InvalidEventError):
                    cast = BatchAdapter(table.schema, known.schema).apply(table)
                    schema = self.schema_for(topic, cast.schema, magnitudes_of(cast))
                    return schema, BatchAdapter(cast.schema, schema.schema).message(cast)
        return None

    def _column_set(self, topic: Topic, schema: pa.Schema) -> _ColumnSet:
        """The set for batches with these columns."""
        known = self._column_sets.setdefault(topic.info.number, [])
        if known and (first := known[0]).schema.equals(schema):
            return first
        column_set = next((column_set for column_set in known if column_set.schema.equals(schema)), None)
        if column_set is None or column_set is not known[0]:
            column_set = column_set or _ColumnSet(schema, places_of_magnitudes(schema))
            with self._ordering:
                known[:] = [column_set, *(other for other in known if other is not column_set)][:MAX_COLUMN_SETS]
        return column_set

    def _make_adapter(
        self, topic: Topic, table: pa.Table | pa.RecordBatch, magnitudes: Mapping[str, int]
    ) -> tuple[SchemaInfo, BatchAdapter]:
        given = table.schema
        known, wanted = self._choose(topic, given, magnitudes)
        if wanted != known:
            BatchAdapter(given, wanted.schema).apply(table)  # a refused batch creates no schema
        schema = self.schema_for(topic, given, magnitudes)
        return schema, BatchAdapter(given, schema.schema)

    @staticmethod
    def _choose(topic: Topic, given: pa.Schema, magnitudes: Mapping[str, int]) -> tuple[SchemaInfo | None, SchemaInfo]:
        known = list(topic.schemas.values())
        return choose_schema(known, given, topic.info.indexes, binary_keys=topic.binary_keys, magnitudes=magnitudes)

    def schema_for(self, topic: Topic, given: pa.Schema, magnitudes: Mapping[str, int]) -> SchemaInfo:
        """The schema for batches with these columns, created if needed.

        Raises InvalidEventError, ManifestFailedError.
        """
        with self._making:
            known, wanted = self._choose(topic, given, magnitudes)
            if wanted == known:
                return wanted
            wanted = replace(wanted, number=0, topic=topic.info.number)
            return self._add_schema(topic, self._manifest.add_schema(wanted, known))

    def _add_schema(self, topic: Topic, info: SchemaInfo) -> SchemaInfo:
        self._column_sets.pop(topic.info.number, None)  # batches of the older schema use the newer one from now on
        with self._state.view_lock:
            self._state.add_schema(info)
        return info


def _columns(table: pa.Table | pa.RecordBatch) -> tuple[list[str], list[pa.DataType]]:
    return table.schema.names, table.schema.types


def _passes(limit: int, before: int, more: int) -> bool:
    """Whether `more` makes a sum reach the limit or a multiple of it: only then is the scheduler woken."""
    return before // limit != (before + more) // limit


def definition(topic: Topic, partition: Partition, schema: SchemaInfo) -> bytes:
    """The body of the log frame that defines a partition and a schema."""
    return json.dumps(topic.definition(partition, schema)).encode()


def batch_key(producer: str | None, sequence: int | None) -> tuple[str, int] | None:
    """The identity of a batch, checked; None if neither part is set. Raises InvalidEventError."""
    if producer is None and sequence is None:
        return None
    if producer is None or sequence is None:
        raise InvalidEventError("producer and sequence must be passed together", hint="pass both, or neither")
    check_name(producer, "producer")
    if isinstance(sequence, bool) or not isinstance(sequence, int) or not -(2**63) <= sequence < 2**63:
        raise InvalidEventError(f"a sequence must be a 64-bit whole number, not {sequence!r}")
    return producer, sequence


def _remembered(partition: Partition, key: tuple[str, int] | None, digest: int, count: int) -> ProducerEntry | None:
    """The batch that a producer appended before under the same sequence, if any. Raises SequenceConflictError."""
    if key is None:
        return None
    producer, sequence = key
    entry = partition.producers.get(producer, {}).get(sequence)
    if entry is not None and (entry.fingerprint, entry.count) != (digest, count):
        raise SequenceConflictError(
            f"sequence {sequence} of producer {producer!r} was appended before with other events",
            hint="use a new sequence for each new batch; repeat a sequence only with the same events",
        )
    return entry


def _known(partition: Partition, key: tuple[str, int] | None, digest: int, count: int) -> ProducerEntry | None:
    """The same for the log's leader, which sees every earlier batch. Also raises SequenceForgottenError."""
    entry = _remembered(partition, key, digest, count)
    return entry if entry is not None or key is None else partition.remembered(*key)


def _receipt(topic: Topic, partition: Partition, first: int, count: int, *, duplicate: bool = False) -> Receipt:
    return Receipt(topic.info.name, partition.name, first, first + count - 1, duplicate)
