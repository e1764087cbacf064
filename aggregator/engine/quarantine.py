"""`QuarantineView`: the public interface of a catalog's quarantine: list, read, retry, drop."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from aggregator.engine.backend import Backend, writer_of
from aggregator.engine.seal.poison import problems_of
from aggregator.engine.seal.quarantine_file import damaged_files, file_name, read_batches, without_hidden
from aggregator.errors import InvalidRequestError
from aggregator.model import RECORD_INDEX, Problem, QuarantinedBatch, Receipt
from aggregator.storage.state.tombstones import hidden_in
from esformat.parts import sync_directory

PRODUCER = "quarantine"
"""Prefix of the producer under which a batch is appended again; the batch's first record index follows."""


@dataclass(frozen=True, slots=True)
class Quarantined:
    """A file in `quarantine/`: a batch that could not be sealed, or a damaged file, of which only name, size and time
    are known. Times are µs.

    For batches: `number`; `first_index`, `last_index`: of its events; `reason`: the error that sealing them raised.
    """

    name: str
    size_bytes: int
    created_us: int
    number: int | None = None
    topic: str | None = None
    partition: str | None = None
    rows: int | None = None
    first_index: int | None = None
    last_index: int | None = None
    min_timestamp: int | None = None
    max_timestamp: int | None = None
    reason: str = "damaged"


class QuarantineView:
    """The quarantine of a catalog. Created by `Catalog.quarantine`."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    def __repr__(self) -> str:
        return f"<aggregator.QuarantineView {str(self._backend.layout.root)!r}>"

    def entries(self) -> list[Quarantined]:
        """Batches, oldest first, then damaged files by name."""
        return [*map(self._shown, self._batches()), *map(_damaged, damaged_files(self._backend.layout))]

    def problems(self) -> list[Problem]:
        """A problem for each batch."""
        return problems_of(self._batches(), self._backend.state)

    def events(self, number: int) -> pa.Table:
        """The events of a batch with their record indexes, without those erased since.

        Raises InvalidRequestError (no such batch), CorruptLogError, OSError.
        """
        batch = self._batch(number)
        batches = read_batches(self._backend.layout, batch)
        return pa.Table.from_batches(self._visible(batch, batches), batches[0].schema)

    def retry(self, number: int) -> Receipt | None:
        """Append the events of a batch again, for example after an upgrade, and drop the batch.

        Returns None if all of them were erased. They get new record indexes. They are appended once, even if this is
        interrupted or called twice.
        Raises InvalidRequestError, ReadOnlyError, and everything `Topic.append` raises; then the batch stays.
        """
        writing = writer_of(self._backend)
        with writing.quarantine.lock:  # nothing is erased meanwhile
            batch = self._batch(number)
            topic, partition = writing.state.partitions[batch.partition]
            events = self.events(number)
            empty = [name for name in events.column_names if events[name].null_count == len(events)]
            events = events.drop_columns([*empty, RECORD_INDEX])  # may be too many columns to seal
            receipt = None
            if len(events):
                key = f"{PRODUCER}-{batch.first_index}"
                receipt = writing.ingest.append(topic, events, partition.name, key, 0)
            writing.quarantine.remove([batch])
        return receipt

    def drop(self, name: int | str) -> None:
        """Delete a batch by its number, or a damaged file by its name. This cannot be undone.

        Raises InvalidRequestError, ReadOnlyError, OSError.
        """
        writing = writer_of(self._backend)
        if isinstance(name, int):
            writing.quarantine.remove([self._batch(name)])
            return
        path = next((path for path in damaged_files(writing.layout) if path.name == name), None)
        if path is None:
            raise _unknown(f"file {name!r}", writing.layout.quarantine)
        path.unlink()
        sync_directory(path.parent)

    def _batches(self) -> Sequence[QuarantinedBatch]:
        self._backend.refresh()
        return self._backend.manifest.quarantined()

    def _batch(self, number: int) -> QuarantinedBatch:
        found = next((batch for batch in self._batches() if batch.number == number), None)
        if found is None:
            raise _unknown(f"batch {number}", self._backend.layout.quarantine)
        return found

    def _visible(self, batch: QuarantinedBatch, batches: Sequence[pa.RecordBatch]) -> Sequence[pa.RecordBatch]:
        topic, partition = self._backend.state.partitions[batch.partition]
        hidden = hidden_in(topic.tombstones, partition.number)
        return without_hidden(batches, hidden) if hidden else batches

    def _shown(self, batch: QuarantinedBatch) -> Quarantined:
        topic, partition = self._backend.state.partitions[batch.partition]
        return Quarantined(
            file_name(batch.number), batch.size_bytes, batch.created_us, batch.number, topic.info.name, partition.name,
            batch.rows, batch.first_index, batch.last_index, batch.min_timestamp, batch.max_timestamp, batch.reason,
        )  # fmt: skip


def _damaged(path: Path) -> Quarantined:
    found = path.stat()
    return Quarantined(path.name, found.st_size, found.st_mtime_ns // 1000)


def _unknown(what: str, directory: Path) -> InvalidRequestError:
    return InvalidRequestError(
        f"no {what} is in quarantine", path=str(directory), hint="see `aggregator quarantine list`"
    )
