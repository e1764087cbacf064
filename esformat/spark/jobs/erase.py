"""`erase`: erase some spaces from every segment that contains them."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import SparkSession

from esformat.errors import CorruptSegmentError, UsageError
from esformat.io.location import Place
from esformat.read.segment import open_segment
from esformat.spark.files import name_of
from esformat.spark.identity import origin_of
from esformat.spark.jobs.in_place import Remade, remake_all
from esformat.spark.jobs.summary import Progress, Summary
from esformat.tools import erase as erase_spaces


def erase(
    spark: SparkSession, paths: str | Sequence[str], spaces: Sequence[str | bytes], *, progress: Progress | None = None
) -> Summary:
    """Erase the events of spaces from segments, in place; each new version is searched for traces of them.

    Segments without such events, according to their space filter and directory, are not touched, so a stopped job
    continues where it was. The summary's `events` are those remaining in rewritten segments; its notes list what was
    erased from each. Raises UsageError.
    """
    if isinstance(spaces, str | bytes) or not spaces:
        raise UsageError("erase needs a list of at least one space")
    return remake_all(spark, "erase", paths, _Erase(tuple(spaces)), progress)


class _Erase:
    def __init__(self, spaces: tuple[str | bytes, ...]) -> None:
        self._spaces = spaces

    def __call__(self, place: Place, out: Place) -> Remade:
        with open_segment(place, cache_bytes=0) as segment:
            events = segment.num_events
            found = [segment.find(space) for space in self._spaces if segment.may_contain(space)]
            held = {space.key_bytes: space.num_events for space in found if space is not None}
        if not held:
            return Remade(False, events)
        note = origin_of(place).as_property(events - sum(held.values()))
        report = erase_spaces(place, out, list(held), properties=note)
        if not report.ok:
            left = "; ".join(f"{check.what}: {check.found}" for check in report.checks if not check.ok)
            raise CorruptSegmentError(f"traces of the erased spaces remain: {left}", path=name_of(place))
        return Remade(True, events - report.events, f"{report.events} events of {len(report.erased)} spaces erased")
