"""`load`: load files of any format into a topic, a group at a time, skipping files that were loaded before."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from aggregator.model import DEFAULT_PARTITION, ProducerEntry
from aggregator.opening import make_directory_tree
from aggregator.spark.options import IN_A_STORE
from aggregator.spark.source import write
from aggregator.storage.files.layout import Layout
from aggregator.storage.files.modes import create_directory
from aggregator.storage.files.staging import staging
from aggregator.storage.manifest import Manifest
from esformat.spark.parts import (
    GROUP_BYTES,
    INPUT_FORMATS,
    InputFile,
    Inputs,
    LocalFolder,
    Progress,
    Published,
    Summary,
    check_count,
    in_groups,
    ledger,
    local_path,
    owned,
)

LOAD_FORMATS = (*INPUT_FORMATS, "esdb")
_PRODUCER = "load:"


def load(
    spark: SparkSession,
    inputs: str | Sequence[str],
    root: str,
    topic: str,
    *,
    format: str | None = None,
    read_options: Mapping[str, Any] | None = None,
    group_bytes: int = GROUP_BYTES,
    progress: Progress | None = None,
    **roles: Any,
) -> Summary:
    """Load files into a topic of the catalog in the directory `root`, clustered by space. Creates both if absent.

    inputs: files, directories, patterns. format: one of LOAD_FORMATS; None: by the files' names. read_options: as for
    `esformat.spark.jobs.convert`. roles: `space`, `timestamp`, `grouping`, `indexes` (of a new topic), `partition`,
    `partitions` and others of `aggregator.spark.write`.
    The catalog records the files of a group together with their events, in one transaction. So a stopped job continues
    with its next group, and files that were loaded before are skipped, even if they were moved, or the segments were
    merged. A file that has changed since is an error. No other process may have the catalog open for writing, or load
    into it.
    Raises UsageError for invalid arguments; errors of a group are in the summary's `failed`.
    """
    root = local_path(root, IN_A_STORE)
    found = Inputs.find(spark, inputs, format, LOAD_FORMATS, read_options, roles)
    partition = str(roles.get("partition", DEFAULT_PARTITION))

    layout = Layout(Path(root))
    make_directory_tree(layout.root)
    create_directory(staging(layout))
    with owned(LocalFolder(str(staging(layout))), "load"):

        def publish(group: list[InputFile]) -> Published:
            note = json.dumps(ledger(group))
            producer = _PRODUCER + hashlib.sha256(note.encode()).hexdigest()[:32]
            df, rows = found.events(group)
            write(df, root, topic, producer=producer, sequence=0, note=note, **found.event_roles(group, rows))
            entries = [entry for entry in _loaded(root, topic, partition) if entry.producer == producer]
            published = _published(root, entries)
            check_count(rows, published.events, root)
            return published

        before = [json.loads(entry.note) for entry in _loaded(root, topic, partition)]
        return in_groups(
            "load", found.files, publish, kind=found.kind, prepare=found.prepare, ledgers=before,
            target=f"{topic} of {root}", group_bytes=group_bytes, progress=progress,
        )  # fmt: skip


def _loaded(root: str, topic: str, partition: str) -> list[ProducerEntry]:
    """The producer entries of the groups that were loaded into a partition."""
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


def _published(root: str, entries: Sequence[ProducerEntry]) -> Published:
    """The segments, events and bytes that a group became."""
    manifest = Manifest(Layout(Path(root)).manifest, read_only=True)
    try:
        segments = manifest.load().segments
    finally:
        manifest.close()
    made = [
        segment
        for entry in entries
        for segment in segments
        if segment.partition == entry.partition and segment.first_index >= entry.first_index
    ]
    return Published(len(made), sum(entry.count for entry in entries), sum(segment.size_bytes for segment in made))
