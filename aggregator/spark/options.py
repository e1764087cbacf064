"""The options of catalogs for `.option(…)`: names, meanings, and checks of values."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from aggregator.base.names import check_name
from aggregator.engine.backend import is_store
from aggregator.engine.ingest.append import batch_key
from aggregator.model import DEFAULT_PARTITION
from aggregator.storage.store.shipped import CATALOG
from esformat import UsageError
from esformat.spark.parts import (
    PARTITION_BYTES,
    SEGMENT_BYTES,
    SEGMENT_EVENTS,
    Options,
    WriteOptions,
    local_path,
    one_of,
    parse_bytes,
    parse_count,
    parse_indexes,
    parse_names,
)

HEAD, TAIL = "head", "tail"
IN_A_STORE = "write to a catalog in a directory that all machines share, not in a store"
_STREAMING = ("position", "maxRowsPerTrigger", "maxBytesPerTrigger", "failOnDataLoss")
_KEY = ("producer", "sequence", "note")
_FOLLOWING = ("checkpointLocation", "queryName")  # Spark passes these to both sources and sinks of a stream


@dataclass(frozen=True, slots=True)
class CatalogReadOptions:
    """Options of `spark.read.format("aggregator")`, and of `readStream`.

    root: the catalog's directory, or the address of its store (`load(root)`). topic: the topic to read.
    columns: those to read, in this order, which may include `record_index` and `partition`; None: the topic's own.
    where: the condition that events must satisfy, as for files; "": none.
    partition_bytes (`partitionBytes`): about how many stored bytes a task reads. partitions: number of tasks instead.
    position: where a stream begins: "head", "tail", or the record index of the first event for each partition.
    max_rows (`maxRowsPerTrigger`), max_bytes (`maxBytesPerTrigger`): the most that a micro-batch reads; None: all.
    fail_on_data_loss (`failOnDataLoss`): whether a stream fails if events were removed before it read them.
    zone (`timeZone`): the zone of times in the condition that name none.
    """

    root: str
    topic: str
    columns: tuple[str, ...] | None = None
    where: str = ""
    partition_bytes: int = PARTITION_BYTES
    partitions: int | None = None
    position: str | tuple[tuple[str, int], ...] = HEAD
    max_rows: int | None = None
    max_bytes: int | None = None
    fail_on_data_loss: bool = True
    zone: str = "UTC"

    @classmethod
    def parse(cls, given: Mapping[str, str], *, streaming: bool | None = None, zone: str = "UTC") -> Self:
        """Parse the options that Spark passes. streaming: None if not known yet. Raises UsageError."""
        plain = ("path", "topic", "columns", "where", "partitionBytes", "partitions", "timeZone")
        options = Options(given, plain if streaming is False else (*plain, *_STREAMING, *_FOLLOWING))
        return cls(
            catalog_place(options),
            topic_name(options),
            options.get("columns", parse_names),
            options.get("where", str) or "",
            options.get("partitionBytes", parse_bytes) or PARTITION_BYTES,
            options.get("partitions", parse_count),
            options.get("position", _position) or HEAD,
            options.get("maxRowsPerTrigger", parse_count),
            options.get("maxBytesPerTrigger", parse_bytes),
            options.get("failOnDataLoss", one_of("true", "false")) != "false",
            options.get("timeZone", str) or zone,
        )


@dataclass(frozen=True, slots=True)
class CatalogWriteOptions:
    """Options of `df.write.format("aggregator")`, and of `writeStream`.

    root: the catalog's directory (`save(root)`). topic, partition: where to add events; created if absent.
    space, timestamp, grouping: columns that become those of the events, as for files.
    indexes, keys: for a topic that is created.
    segment_bytes (`segmentBytes`), segment_events (`segmentEvents`): a task begins its next segment when it has this
    much in memory as Arrow.
    producer, sequence: identify this write, so that it is done once even if it is repeated; for a stream they are the
    query and its batch. note: a text that is stored with them.
    checkpoint: the location of a stream's checkpoint; "" if not given.
    """

    root: str
    topic: str
    partition: str = DEFAULT_PARTITION
    space: str = "space"
    timestamp: str = "timestamp"
    grouping: str | None = None
    indexes: tuple[str, ...] = ()
    keys: str | None = None
    segment_bytes: int = SEGMENT_BYTES
    segment_events: int = SEGMENT_EVENTS
    producer: str | None = None
    sequence: int | None = None
    note: str = ""
    checkpoint: str = ""

    @classmethod
    def parse(cls, given: Mapping[str, str], *, streaming: bool) -> Self:
        """Parse the options that Spark passes. Raises UsageError."""
        known = ("path", "topic", "partition", "space", "timestamp", "grouping", "indexes", "keys", "segmentBytes",
                 "segmentEvents", *(_FOLLOWING if streaming else _KEY))  # fmt: skip
        options = Options(given, known)
        made = cls(
            catalog_root(options),
            topic_name(options),
            check_name(options.get("partition", str) or DEFAULT_PARTITION, "partition"),
            options.get("space", str) or "space",
            options.get("timestamp", str) or "timestamp",
            options.get("grouping", str),
            options.get("indexes", parse_indexes) or (),
            options.get("keys", one_of("text", "binary")),
            options.get("segmentBytes", parse_bytes) or SEGMENT_BYTES,
            options.get("segmentEvents", parse_count) or SEGMENT_EVENTS,
            options.get("producer", str),
            options.get("sequence", _whole),
            options.get("note", str) or "",
            options.get("checkpointLocation", str) or "",
        )
        batch_key(made.producer, made.sequence)
        return made

    def for_files(self) -> WriteOptions:
        """The same columns as options for files."""
        return WriteOptions(self.root, self.space, self.timestamp, self.grouping, indexes=self.indexes, keys=self.keys)


def catalog_root(options: Options) -> str:
    """The directory of the catalog. Raises UsageError."""
    root = options.get("path", str)
    if not root:
        raise UsageError("no catalog is named", hint='give its directory: spark.read.format("aggregator").load(root)')
    return local_path(root, IN_A_STORE)


def catalog_place(options: Options) -> str:
    """The place to read a catalog from: its directory, or the address of its store. Raises UsageError."""
    given = (options.get("path", str) or "").rstrip("/")
    if not is_store(given):
        return catalog_root(options)
    if given.startswith("file:"):  # a catalog's directory, or a store in a directory
        root = catalog_root(options)
        return given if Path(root, CATALOG).is_file() else root
    return given


def topic_name(options: Options) -> str:
    """The topic. Raises UsageError."""
    topic = options.get("topic", str)
    if not topic:
        raise UsageError("no topic is named", hint='give .option("topic", …)')
    return check_name(topic, "topic")


def _whole(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ValueError("a whole number") from None


def _position(text: str) -> str | tuple[tuple[str, int], ...]:
    if text.lower() in (HEAD, TAIL):
        return text.lower()
    try:
        found = json.loads(text)
    except json.JSONDecodeError:
        found = None
    if not isinstance(found, dict) or not all(
        isinstance(index, int) and not isinstance(index, bool) and index >= 0 for index in found.values()
    ):
        raise ValueError('head, tail, or a JSON object of record indexes by partition, as {"0": 1000}')
    return tuple(found.items())
