"""`load`: files of any format into a topic, a group of them at a time; what was loaded before is passed over."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from aggregator.files import Layout
from aggregator.manifest import Manifest
from aggregator.model import ProducerEntry
from aggregator.spark.source import write
from aggregator.topic import DEFAULT_PARTITION
from esformat import UsageError
from esformat.spark.parts import (
    FAILURES,
    GROUP_BYTES,
    INPUT_FORMATS,
    InputFile,
    Progress,
    Summary,
    as_events,
    choose_groups,
    format_of,
    input_files,
    ledger,
    not_done,
    read_inputs,
    reason_of,
)

LOAD_FORMATS = (*INPUT_FORMATS, "esdb")
_PRODUCER = "load:"


def load(
    spark: SparkSession,
    inputs: Sequence[str],
    root: str,
    topic: str,
    *,
    format: str | None = None,
    read_options: Mapping[str, str] | None = None,
    group_bytes: int = GROUP_BYTES,
    progress: Progress | None = None,
    **roles: Any,
) -> Summary:
    """Load files into a topic of the catalog in the directory `root`, clustered by space. Both are made if absent.

    inputs: files, directories, patterns. format: one of LOAD_FORMATS; None: by the files' names. read_options: as of
    `spark.read.format(format)`. roles: `space`, `timestamp`, `grouping`, `indexes` (of a new topic), `partition`,
    `partitions` and others of `aggregator.spark.write`; keys and times are read as `esformat.spark.jobs.convert` does.
    The catalog remembers the files of a group together with their events, in one transaction: a job that was stopped
    goes on with its next group. A file that has changed since is an error. Nobody else may have the catalog open for
    writing.
    Raises UsageError for what cannot be; what goes wrong with a group is in the summary's `failed`.
    """
    summary = Summary("load")
    files = [InputFile.at(path) for path in input_files(inputs)]
    kind = format or format_of(files)
    if kind not in LOAD_FORMATS:
        raise UsageError(f"format {kind!r} is none of {', '.join(LOAD_FORMATS)}")
    partition = str(roles.get("partition", DEFAULT_PARTITION))
    before = [json.loads(entry.note) for entry in _loaded(root, topic, partition)]
    todo = not_done(files, before, f"{topic} of {root}", summary)
    total, done = sum(file.size_bytes for file in todo), 0
    for group in choose_groups(todo, group_bytes):
        note = json.dumps(ledger(group))
        producer = _PRODUCER + hashlib.sha256(note.encode()).hexdigest()[:32]
        try:
            df = as_events(read_inputs(spark, kind, [file.path for file in group], read_options or {}), roles)
            rows = df.count()
            write(df, root, topic, producer=producer, sequence=0, note=note, **roles)
            found = [entry for entry in _loaded(root, topic, partition) if entry.producer == producer]
            if sum(entry.count for entry in found) != rows:
                raise UsageError(f"{rows} rows were read and {sum(e.count for e in found)} events loaded", path=root)
            _count(root, found, summary)
        except FAILURES as error:
            summary.failed += [(file.path, reason_of(error)) for file in group]
        summary.files += len(group)
        done += sum(file.size_bytes for file in group)
        if progress:
            progress(done, total)
    return summary.finish()


def _loaded(root: str, topic: str, partition: str) -> list[ProducerEntry]:
    """The groups that were loaded into a partition."""
    layout = Layout(Path(root))
    if not layout.manifest.exists():
        return []
    manifest = Manifest(layout.manifest, read_only=True)
    try:
        contents = manifest.load(since=1 << 62)
        topics = {info.number for info in contents.topics if info.name == topic}
        numbers = {place.number for place in contents.partitions if place.topic in topics and place.name == partition}
        entries = manifest.producers()
        return [entry for entry in entries if entry.partition in numbers and entry.producer.startswith(_PRODUCER)]
    finally:
        manifest.close()


def _count(root: str, entries: Sequence[ProducerEntry], summary: Summary) -> None:
    """Add what groups became to the summary."""
    manifest = Manifest(Layout(Path(root)).manifest, read_only=True)
    try:
        segments = manifest.load().segments
    finally:
        manifest.close()
    for entry in entries:
        made = [s for s in segments if s.partition == entry.partition and s.first_index >= entry.first_index]
        summary.made += len(made)
        summary.events += entry.count
        summary.bytes += sum(segment.size_bytes for segment in made)
