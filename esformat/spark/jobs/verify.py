"""`verify`: check every rule of the format for every segment of a data lake."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import SparkSession

from esformat.io.location import Place
from esformat.io.remote import RemoteSource
from esformat.io.store import StoredAt
from esformat.spark.files import name_of, segments_at, size_of
from esformat.spark.jobs.summary import Progress, Summary
from esformat.spark.jobs.waves import in_waves
from esformat.spark.scan_plan import in_threads
from esformat.tools.verification import Report
from esformat.tools.verification import verify as verify_segment


def verify(spark: SparkSession, paths: str | Sequence[str], *, progress: Progress | None = None) -> Summary:
    """Check every block of segments against its checksum and the rules of the format, with one task per segment.

    paths: files, directories, patterns, prefixes of object stores. The summary's `failed` lists each problem with its
    segment. Raises UsageError if there are no segments.
    """
    summary = Summary.begin("verify", progress)
    places = segments_at(paths)
    sizes = in_threads(size_of, places)
    done, total = 0, sum(sizes)
    for stored, (place, report, reason) in zip(sizes, in_waves(spark, places, _verify), strict=True):
        summary.files += 1
        if report is None:
            summary.failed.append((name_of(place), reason or "unknown"))
        else:
            summary.events += report.events
            summary.bytes += report.size_bytes
            summary.failed += [(name_of(place), str(problem)) for problem in report.problems]
        done += stored
        if progress:
            progress(done, total)
    return summary.finish()


def _verify(place: Place) -> Report:
    return verify_segment(RemoteSource(place.store, place.path) if isinstance(place, StoredAt) else place)
