"""Statistics of a catalog and its topics, as JSON values."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from aggregator.base.window_budget import WindowBudget
from aggregator.model import QuarantinedBatch
from aggregator.storage.files.usage import Usage
from aggregator.storage.state.state import CatalogState, Partition, Topic
from aggregator.storage.state.tombstones import ends_of, erased_spaces, hidden_in

Facts = dict[str, Any]
_SUMS = (
    "rows", "bytes", "segments", "sealed_rows", "sealed_bytes", "unsealed_rows", "unsealed_bytes", "quarantined_rows",
    "quarantined_bytes",
)  # fmt: skip


def topic_stats(topic: Topic, state: CatalogState, quarantined: Iterable[QuarantinedBatch]) -> Facts:
    """Rows, bytes, segments, unsealed events and times (µs) of a topic and of each partition, and the identity of its
    catalog.

    quarantined: batches of any topic; `rows` and `bytes` do not count them.
    """
    with state.view_lock:
        view = topic.segments.view()
        facts = {name: _unsealed(partition) for name, partition in topic.partitions.items()}
    names = {partition.number: name for name, partition in topic.partitions.items()}
    for info in view:
        mine = facts[names[info.partition]]
        mine["segments"] += 1
        mine["sealed_rows"] += info.rows
        mine["sealed_bytes"] += info.size_bytes
        _widen(mine, info.min_timestamp, info.max_timestamp)
        mine["first_index"] = min(mine["first_index"], info.first_index)
    for batch in quarantined:
        if batch.partition in names:
            facts[names[batch.partition]]["quarantined_rows"] += batch.rows
            facts[names[batch.partition]]["quarantined_bytes"] += batch.size_bytes
    for mine in facts.values():
        mine["rows"] = mine["sealed_rows"] + mine["unsealed_rows"]
        mine["bytes"] = mine["sealed_bytes"] + mine["unsealed_bytes"]
    total: Facts = {"catalog": state.lineage.identity.hex(), "topic": topic.info.name}
    for key in _SUMS:
        total[key] = sum(mine[key] for mine in facts.values())
    for least, key in ((min, "min_timestamp"), (max, "max_timestamp"), (min, "oldest_unsealed_us")):
        total[key] = least((mine[key] for mine in facts.values() if mine[key] is not None), default=None)
    total["schemas"] = len(topic.schemas)
    total["erasing"] = len(erased_spaces(topic.tombstones))
    total["truncating"] = len({space for _, space in topic.tombstones} - erased_spaces(topic.tombstones))
    total["roll"], total["retention"] = topic.info.roll.to_json(), topic.info.retention.to_json()
    total["partitions"] = facts
    return total


def segment_facts(topic: Topic, state: CatalogState) -> list[Facts]:
    """The metadata of each sealed segment of a topic, in order of time. Opens no segment."""
    with state.view_lock:
        view = topic.segments.view()
        names = {partition.number: name for name, partition in topic.partitions.items()}
        stones = topic.tombstones
    hidden = {
        info.number
        for partition in {number for number, _ in stones}
        for info in view.holding(partition, ends_of(hidden_in(stones, partition)))
    }
    merging = set(topic.rewriting)
    return [
        {
            "segment": info.number, "partition": names[info.partition], "level": info.level, "rows": info.rows,
            "bytes": info.size_bytes, "min_timestamp": info.min_timestamp, "max_timestamp": info.max_timestamp,
            "first_index": info.first_index, "last_index": info.last_index, "created_us": info.created_us,
            "state": "merging" if info.number in merging else "erasing" if info.number in hidden else "sealed",
        }
        for info in sorted(view, key=lambda info: (info.min_timestamp, info.number))
    ]  # fmt: skip


def _unsealed(partition: Partition) -> Facts:
    facts: Facts = dict.fromkeys(_SUMS, 0) | {
        "min_timestamp": None,
        "max_timestamp": None,
        "oldest_unsealed_us": None,
        "first_index": partition.visible_end,
        "end_index": partition.visible_end,
    }
    for part in (partition.sealing, partition.memtable):
        if part is None or not part.batches:
            continue
        facts["unsealed_rows"] += part.rows
        facts["unsealed_bytes"] += part.size_bytes
        facts["first_index"] = min(facts["first_index"], part.batches[0].first_index)
        if facts["oldest_unsealed_us"] is None:
            facts["oldest_unsealed_us"] = part.oldest_us
        _widen(facts, min(p.min_timestamp for p in part.batches), max(p.max_timestamp for p in part.batches))
    return facts


def _widen(facts: Facts, low: int, high: int) -> None:
    known = facts["min_timestamp"], facts["max_timestamp"]
    facts["min_timestamp"] = low if known[0] is None else min(low, known[0])
    facts["max_timestamp"] = high if known[1] is None else max(high, known[1])


def disk_stats(usage: Usage) -> Facts:
    """The catalog's disk usage, in bytes."""
    return {
        "total": usage.total,
        "segments": usage.segments,
        "waiting_for_scans": usage.waiting,
        "log": usage.log,
        "manifest": usage.manifest,
        "quarantine": usage.quarantine,
        "reserve": usage.reserve,
        "cache": usage.cache,
        "free": usage.free,
    }


def memory_stats(held_bytes: int, limit_bytes: int) -> Facts:
    """Memory used by unsealed events, and by Arrow in total, in bytes."""
    return {"unsealed": held_bytes, "limit": limit_bytes, "arrow": pa.total_allocated_bytes()}


def scan_stats(windows: WindowBudget) -> Facts:
    """Memory that scans use for their readers, in bytes, and how many scans now wait for memory of others."""
    return {"window_bytes": windows.held_bytes, "limit": windows.limit_bytes, "waiting": windows.waiting}
