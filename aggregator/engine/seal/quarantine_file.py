"""The file of one quarantined batch: an Arrow IPC file of its events and their record indexes, as they were appended.

The schema's metadata has everything that the manifest knows of the batch, so that a lost manifest can be rebuilt.
Reading never touches more columns than it must: the others may be what could not be sealed.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from aggregator.base.merge import numbers
from aggregator.errors import CorruptLogError
from aggregator.model import RECORD_INDEX, ProducerEntry, QuarantinedBatch
from aggregator.storage.files.layout import PARTIAL, Layout, entries, make_directory, replaced
from aggregator.storage.segments.file import PROPERTY, file_checksum
from aggregator.storage.state.tombstones import Hidden, hidden_rows

SUFFIX = ".quarantined.arrow"
_KEYS = ("space", "timestamp", RECORD_INDEX)


def file_name(number: int) -> str:
    """The name of the file of a quarantined batch."""
    return f"{number:012d}{SUFFIX}"


def batch_path(layout: Layout, number: int) -> Path:
    """The path of a quarantined batch."""
    return layout.quarantine / file_name(number)


def batch_files(layout: Layout) -> dict[int, Path]:
    """The files of quarantined batches, by number. Deletes files that a crash left half written."""
    found = {}
    for path in entries(layout.quarantine):
        stem, suffix, _ = path.name.partition(SUFFIX)
        if suffix and path.name.endswith(PARTIAL):
            path.unlink()
        elif suffix and stem.isdecimal() and path == batch_path(layout, int(stem)):
            found[int(stem)] = path
    return found


def damaged_files(layout: Layout) -> list[Path]:
    """The other files in quarantine: segments, log files and copies of the manifest."""
    if not layout.quarantine.is_dir():
        return []
    return sorted(path for path in layout.quarantine.iterdir() if SUFFIX not in path.name)


def write_batch(
    layout: Layout,
    batches: Sequence[pa.RecordBatch],
    *,
    number: int,
    facts: Mapping[str, Any],
    producers: Iterable[ProducerEntry] = (),
    created_us: int,
    reason: str,
) -> QuarantinedBatch:
    """Write events with their record indexes to a file that is complete and synced under its name when this returns.

    facts: of the topic, partition and schema, as in a definition in the log. Raises OSError, pa.ArrowException.
    """
    path = batch_path(layout, number)
    make_directory(path.parent)
    properties = {
        **facts,
        "number": number,
        "created_us": created_us,
        "reason": reason,
        "producers": [asdict(entry) for entry in producers],
    }
    schema = batches[0].schema.with_metadata({PROPERTY: json.dumps(properties)})
    try:
        with replaced(path) as file, pa.ipc.new_file(file, schema) as writer:
            for batch in batches:
                writer.write_batch(batch)
        return _described(path, properties)
    except BaseException:
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)
        raise


def _described(path: Path, facts: Mapping[str, Any]) -> QuarantinedBatch:
    keys = _read(path, _KEYS)
    indexes, times = numbers(keys, RECORD_INDEX), numbers(keys, "timestamp")
    return QuarantinedBatch(
        facts["number"], facts["partition"], facts["schema"], int(indexes[0]), int(indexes[-1]), int(times.min()),
        int(times.max()), len(keys), path.stat().st_size, file_checksum(path), facts["created_us"], facts["reason"],
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class FoundBatch:
    """A file, described by its metadata: the batch's row for the manifest, and the facts of a definition in the log."""

    batch: QuarantinedBatch
    facts: dict[str, Any]

    @property
    def producers(self) -> list[ProducerEntry]:
        """Batches of producers whose events are in the file."""
        return [ProducerEntry(**entry) for entry in self.facts["producers"]]


def describe_batch(path: Path, number: int) -> FoundBatch:
    """Describe a file. Raises CorruptLogError if it is not a complete file of that number; OSError."""
    try:
        with pa.OSFile(str(path)) as file, pa.ipc.open_file(file) as reader:
            facts = json.loads(reader.schema.metadata[PROPERTY.encode()])
        if facts["number"] != number:
            raise ValueError(f"it has number {facts['number']}, not {number}")
        found = FoundBatch(_described(path, facts), facts)
        _ = found.producers
    except (pa.ArrowInvalid, ValueError, KeyError, TypeError, IndexError) as error:
        raise CorruptLogError(f"it is not a quarantined batch: {error}", path=str(path)) from None
    return found


def read_batches(layout: Layout, batch: QuarantinedBatch) -> list[pa.RecordBatch]:
    """The events with their record indexes. Raises CorruptLogError if the file is damaged; OSError."""
    path = batch_path(layout, batch.number)
    if file_checksum(path) != batch.checksum:
        raise CorruptLogError("the checksum of a quarantined batch does not match", path=str(path))
    try:
        with pa.OSFile(str(path)) as file, pa.ipc.open_file(file) as reader:
            schema = reader.schema.remove_metadata()
            found = [reader.get_batch(place) for place in range(reader.num_record_batches)]
        return [pa.RecordBatch.from_arrays(each.columns, schema=schema) for each in found]
    except (pa.ArrowException, ValueError) as error:
        raise CorruptLogError(f"a quarantined batch cannot be read: {error}", path=str(path)) from None


def read_facts(layout: Layout, number: int) -> dict[str, Any]:
    """The facts that a file records about its topic, partition and schema. Raises CorruptLogError, OSError."""
    return describe_batch(batch_path(layout, number), number).facts


def count_space(layout: Layout, batch: QuarantinedBatch, space: bytes) -> int:
    """Number of events of a space in a batch. Raises CorruptLogError, OSError."""
    path = batch_path(layout, batch.number)
    try:
        keys = _read(path, ("space",))
    except pa.ArrowException as error:
        raise CorruptLogError(f"a quarantined batch cannot be read: {error}", path=str(path)) from None
    return sum(value == space for value in keys.column("space").cast(pa.binary()).to_pylist())


def hides(layout: Layout, batch: QuarantinedBatch, hidden: Hidden) -> bool:
    """Whether any event of a batch is hidden. Raises pa.ArrowException, OSError."""
    mask = hidden_rows(_read(batch_path(layout, batch.number), _KEYS), hidden)
    return mask is not None and bool(mask.any())


def without_hidden(batches: Iterable[pa.RecordBatch], hidden: Hidden) -> list[pa.RecordBatch]:
    """The events that are not hidden, in buffers without any others. Raises CorruptLogError if Arrow cannot separate
    them.
    """
    left = []
    for batch in batches:
        mask = hidden_rows(pa.Table.from_batches([batch.select(_KEYS)]), hidden)
        if mask is None or not mask.any():
            left.append(batch)
            continue
        try:
            kept = batch.filter(pa.array(~mask))
            kept.validate(full=True)
        except pa.ArrowException as error:
            raise CorruptLogError(f"events cannot be distinguished from erased ones: {error}") from None
        if len(kept):
            left.append(kept)
    return left


def _read(path: Path, columns: Sequence[str]) -> pa.Table:
    """Read some columns of a file, and nothing of the others."""
    with pa.OSFile(str(path)) as file:
        with pa.ipc.open_file(file) as reader:
            places = [reader.schema.get_field_index(name) for name in columns]
        file.seek(0)
        options = pa.ipc.IpcReadOptions(included_fields=places)
        with pa.ipc.open_file(file, options=options) as reader:
            return reader.read_all().select(list(columns))
