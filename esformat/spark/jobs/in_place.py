"""Replacement of segments by new versions, which tasks write and the driver publishes."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import SparkSession

from esformat.errors import UsageError
from esformat.io.commits import Write
from esformat.io.lease import Lease, all_owned
from esformat.io.location import SUFFIX, Place
from esformat.spark.files import folder_of, name_of, segments_at, size_of
from esformat.spark.jobs.summary import Progress, Summary
from esformat.spark.jobs.waves import in_waves
from esformat.spark.scan_plan import in_threads


@dataclass(frozen=True, slots=True)
class Remade:
    """The result for a segment. made: whether a new version was written; otherwise none was necessary."""

    made: bool
    events: int
    note: str = ""


Remake = Callable[[Place, Place], Remade]
"""Takes a segment and the place for its new version; writes the new version unless there is nothing to do."""


@dataclass(frozen=True, slots=True)
class _Item:
    """A segment, its name in its directory, and the write that its new version belongs to."""

    place: Place
    name: str
    write: Write


class _Task:
    def __init__(self, remake: Remake) -> None:
        self._remake = remake

    def __call__(self, item: _Item) -> tuple[Remade, str]:
        """Return the result and the staged name, which is unique to this attempt."""
        staged = item.write.staged(f"{item.name.removesuffix(SUFFIX)}-{secrets.token_hex(4)}")
        return self._remake(item.place, item.write.place(staged)), staged


def remake_all(
    spark: SparkSession, job: str, paths: str | Sequence[str], remake: Remake, progress: Progress | None
) -> Summary:
    """Replace each segment by its new version, one by one and atomically; segments already done are skipped."""
    places = segments_at(paths)
    folders = {folder.name: folder for folder, _ in map(folder_of, places)}
    with all_owned(list(folders.values()), job) as leases:
        return _remake_all(spark, job, places, dict(zip(folders, leases, strict=True)), remake, progress)


def _remake_all(
    spark: SparkSession,
    job: str,
    places: Sequence[Place],
    leases: Mapping[str, Lease],
    remake: Remake,
    progress: Progress | None,
) -> Summary:
    summary = Summary.begin(job, progress)
    sizes = in_threads(size_of, places)
    found = [folder_of(place) for place in places]
    writes = {name: Write(lease.folder, secrets.token_hex(8)) for name, lease in leases.items()}
    done, total = 0, sum(sizes)
    try:
        for write in writes.values():
            write.begin()
        items = [_Item(place, name, writes[folder.name]) for place, (folder, name) in zip(places, found, strict=True)]
        for number, (item, result, reason) in enumerate(in_waves(spark, items, _Task(remake))):
            name = name_of(item.place)
            summary.files += 1
            done += sizes[number]
            if result is None:
                summary.failed.append((name, reason or "unknown"))
            else:
                remade, staged = result
                if remade.made:
                    summary.bytes += size_of(item.write.place(staged))
                    leases[item.write.folder.name].check()
                    if size_of(item.place) != sizes[number]:
                        raise UsageError("it was replaced meanwhile", path=name, hint="run it again")
                    item.write.folder.publish([(staged, item.name)])
                    summary.made += 1
                    summary.events += remade.events
                else:
                    summary.skipped += 1
                if remade.note:
                    summary.notes.append(f"{name}: {remade.note}")
            if progress:
                progress(done, total)
    finally:
        for write in writes.values():
            write.abort()
    return summary.finish()
