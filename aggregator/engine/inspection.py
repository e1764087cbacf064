"""Checks for read-only processes: damaged files, and segments that retention would remove."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from aggregator.base.reports import Removed, RetentionReport
from aggregator.engine.follower import ReaderEngine
from aggregator.engine.upkeep.ages import stored_report
from aggregator.engine.upkeep.retention import expired
from aggregator.model import Problem, QuarantinedBatch, SegmentInfo
from aggregator.policy import Retention
from aggregator.storage.files.usage import measure
from aggregator.storage.manifest import StoredRows
from aggregator.storage.segments.file import file_checksum
from aggregator.storage.state.state import Topic


def damaged_segments(following: ReaderEngine, now_us: int) -> Iterator[Problem]:
    """Read every segment file from end to end and report the damaged ones. Only a writer moves them to quarantine.

    Evicted segments are not checked here, but by `aggregator store verify`.
    """
    stored = {each.number for each in StoredRows(following.manifest).all()}
    for topic in list(following.state.topics.values()):
        for info in _segments(following, topic):
            path = following.layout.segment(info.number)
            try:
                found = "" if file_checksum(path) == info.checksum else "damaged"
            except FileNotFoundError:
                found = "" if info.number in stored else "missing"
            if not found:
                continue
            following.refresh()
            if info.number in topic.segments:  # else it was merged or removed meanwhile
                rows = f"{info.rows} events, record indexes {info.first_index} to {info.last_index}"
                subject = str(path.relative_to(following.layout.root))
                yield Problem(subject, f"the segment is {found} ({rows})", "reported", now_us)


def would_remove(
    following: ReaderEngine, names: Iterable[str], now_us: int, instead: Retention | None = None
) -> RetentionReport:
    """The segments that the topics' policies, or the policy `instead`, no longer keep. The limits of the catalog as a
    whole are not considered: only the writer knows them.
    """
    believed_us = stored_report(following.manifest, now_us).believed_us
    batches, state, removed = following.manifest.quarantined(), following.state, []
    for topic in [state.topics[name] for name in names]:
        aside = [batch for batch in batches if state.partitions[batch.partition][0] is topic]
        for each in expired([*_segments(following, topic), *aside], instead or topic.info.retention, believed_us):
            info = each.segment
            removed.append(
                Removed(
                    topic.info.name,
                    state.partitions[info.partition][1].name,
                    info.number,
                    info.rows,
                    info.size_bytes,
                    info.first_index,
                    info.last_index,
                    info.min_timestamp,
                    info.max_timestamp,
                    each.reason,
                    isinstance(info, QuarantinedBatch),
                )
            )
    live = sum(info.size_bytes for topic in state.topics.values() for info in _segments(following, topic))
    live -= StoredRows(following.manifest).evicted()[1]
    waiting = sum(size for _, size, _ in following.manifest.retired_files())
    usage = measure(following.layout, segments=live, waiting=waiting)
    return RetentionReport(tuple(removed), usage.total, usage.waiting, dry_run=True)


def _segments(following: ReaderEngine, topic: Topic) -> list[SegmentInfo]:
    with following.state.view_lock:
        return list(topic.segments.view())
