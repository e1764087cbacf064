"""`reindex`: give all segments of directories or prefixes the same indexes."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import SparkSession

from esformat.errors import UsageError
from esformat.io.location import Place
from esformat.read.segment import open_segment
from esformat.spark.files import name_of
from esformat.spark.identity import origin_of
from esformat.spark.jobs.in_place import Remade, remake_all
from esformat.spark.jobs.summary import Progress, Summary
from esformat.tools import reindex as reindex_segment


def reindex(
    spark: SparkSession, paths: str | Sequence[str], indexes: Sequence[str], *, progress: Progress | None = None
) -> Summary:
    """Give segments indexes on exactly these columns, in place; data blocks are copied unchanged.

    Segments that already have exactly these are skipped, so a stopped job continues where it was. Raises UsageError.
    """
    if isinstance(indexes, str):
        raise UsageError(f"indexes must be a list of column names, not the text {indexes!r}")
    return remake_all(spark, "reindex", paths, _Reindex(tuple(indexes)), progress)


class _Reindex:
    def __init__(self, indexes: tuple[str, ...]) -> None:
        self._indexes = indexes

    def __call__(self, place: Place, out: Place) -> Remade:
        with open_segment(place, cache_bytes=0) as segment:
            events = segment.num_events
            if set(segment.indexes) == set(self._indexes):
                return Remade(False, events)
        made = reindex_segment(place, out, self._indexes, properties=origin_of(place).as_property())
        if made.statistics.events != events:
            raise UsageError(f"{events} events became {made.statistics.events}", path=name_of(place))
        return Remade(True, events)
