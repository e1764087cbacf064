"""`compact`: merge many small segments of a directory or prefix into fewer, larger ones."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pyspark.sql import SparkSession

from esformat.errors import UsageError
from esformat.io.commit_folder import CommitFolder
from esformat.io.commits import Write
from esformat.io.lease import Lease, owned
from esformat.io.location import SUFFIX, Place, folder_at
from esformat.read.segment import open_segment
from esformat.spark.files import listed_below, name_of, size_of
from esformat.spark.identity import joined, origin_of
from esformat.spark.jobs.summary import Progress, Summary
from esformat.spark.jobs.waves import in_waves
from esformat.tools import merge

TARGET_BYTES = 256 << 20


@dataclass(frozen=True, slots=True)
class Member:
    """The facts about a segment that decide what to merge. kind: schema and indexes, which must be equal in a merge."""

    name: str
    stored_bytes: int
    first_space: bytes
    kind: str


def choose(members: Sequence[Member], target_bytes: int) -> list[list[Member]]:
    """Choose groups of segments to merge: small ones, adjacent by first space, up to the target size."""
    groups: list[list[Member]] = []
    size = 0
    small = [member for member in members if 2 * member.stored_bytes <= target_bytes]
    for member in sorted(small, key=lambda each: (each.kind, each.first_space, each.name)):
        if groups and groups[-1][0].kind == member.kind and size + member.stored_bytes <= target_bytes:
            groups[-1].append(member)
            size += member.stored_bytes
        else:
            groups.append([member])
            size = member.stored_bytes
    return [group for group in groups if len(group) > 1]


def compact(
    spark: SparkSession, path: str, *, target_bytes: int = TARGET_BYTES, progress: Progress | None = None
) -> Summary:
    """Merge small segments of a directory or prefix into segments of up to `target_bytes`, copying blocks if possible.

    Readers see either the small segments or the merged one. Segments above half of the target are left alone, so a
    repeated run continues where the last one stopped, and finally does nothing. Segments with different columns or
    indexes are not merged with each other. Raises UsageError.
    """
    folder = folder_at(path)
    if not listed_below(folder):
        raise UsageError(f"no {SUFFIX} file", path=path, hint="compact works on one directory or prefix of segments")
    with owned(folder, "compact") as lease:
        return _compact(spark, lease, target_bytes, progress)


def _compact(spark: SparkSession, lease: Lease, target_bytes: int, progress: Progress | None) -> Summary:
    places = listed_below(lease.folder)
    summary = Summary.begin("compact", progress)
    members: list[Member] = []
    for (name, place), member, reason in in_waves(spark, list(places.items()), _member):
        if member is None:
            summary.failed.append((name_of(place), reason or f"no information about {name}"))
        else:
            members.append(member)
    groups = choose(members, target_bytes)
    summary.files = sum(map(len, groups))
    summary.skipped = len(members) - summary.files
    sizes = {member.name: member.stored_bytes for group in groups for member in group}
    total, done = sum(sizes.values()), 0
    writes = [Write(lease.folder, secrets.token_hex(8), lease=lease.name) for _ in groups]
    jobs = [
        (write, {member.name: places[member.name] for member in group})
        for write, group in zip(writes, groups, strict=True)
    ]
    unfinished = {write.job: write for write in writes}
    try:
        for write in writes:
            write.begin()
        for (write, inputs), merged, reason in in_waves(spark, jobs, _merge):
            if merged is None:
                summary.failed.append((name_of(next(iter(inputs.values()))), reason or "unknown"))
            else:
                staged, events = merged
                summary.bytes += size_of(write.place(staged))
                _check_there(lease.folder, inputs)
                write.commit([staged], removed=list(inputs), facts={"job": "compact", "events": events})
                del unfinished[write.job]
                summary.made += 1
                summary.events += events
            done += sum(sizes[each] for each in inputs)
            if progress:
                progress(done, total)
    finally:
        for write in unfinished.values():
            write.abort()
    return summary.finish()


def _check_there(folder: CommitFolder, names: Iterable[str]) -> None:
    """Raise UsageError if a concurrent write removed a merged segment: its events must not reappear."""
    missing = set(names) - set(listed_below(folder))
    if missing:
        raise UsageError(f"{min(missing)} was replaced while it was merged", path=folder.name, hint="run it again")


def _member(item: tuple[str, Place]) -> Member:
    name, place = item
    with open_segment(place, cache_bytes=0) as segment:
        first = next(iter(segment.spaces()), "")
        key = first if isinstance(first, bytes) else first.encode()
        return Member(name, segment.size_bytes, key, f"{segment.schema.to_string()} indexed: {segment.indexes}")


def _merge(job: tuple[Write, dict[str, Place]]) -> tuple[str, int]:
    write, inputs = job
    origin = joined([origin_of(place) for place in inputs.values()])
    staged = write.staged(f"merged-{secrets.token_hex(4)}")
    made = merge(list(inputs.values()), write.place(staged), properties=origin.as_property())
    events = made.statistics.events
    if events != origin.events:
        raise UsageError(f"{origin.events} events were read and {events} written", path=write.folder.name)
    return staged, events
