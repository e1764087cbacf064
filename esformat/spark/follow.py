"""Streaming from a directory of segments: a micro-batch consists of new segments, and each event is read once.

An offset lists the segments that the stream knows, with the identities of their original files. So a repeated
micro-batch reads the same events, and segments that were moved, or merged from known ones, are skipped.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxFiles, SupportsTriggerAvailableNow

from esformat.errors import UsageError
from esformat.io.location import Place, folder_at
from esformat.spark.files import folder_of, listed_below
from esformat.spark.identity import origin_of
from esformat.spark.reader import SegmentReader
from esformat.spark.scan_plan import in_threads

Known = Mapping[str, Sequence[str]]
"""Segments by name relative to the directory, with the identities of their original files."""


class SegmentStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Follows a directory. One instance lives on the driver while the query runs; its copies in tasks only read."""

    def __init__(
        self, path: str, reader: SegmentReader, *, names: re.Pattern[str] | None, most: int | None, fail: bool
    ) -> None:
        """names: pattern of file names. most: segments per micro-batch. fail: raise if unread segments are missing."""
        self._folder = folder_at(path)
        self._reader = reader
        self._names = names
        self._most = most
        self._fail = fail
        self._target: Known | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """The offset before the first segment."""
        return {"segments": {}}

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 - Spark's name
        """The offset after the next micro-batch."""
        before: Known = start["segments"]
        existing = self._listed()
        unknown = [name for name in existing if name not in before]
        most = limit.max_files if isinstance(limit, ReadMaxFiles) else self._most
        wanted = unknown if self._target is None else [name for name in unknown if name in self._target]
        taken = sorted(wanted, key=lambda name: (_changed(existing[name]), name))
        chosen = taken if most is None or isinstance(limit, ReadAllAvailable) else taken[:most]
        origins = in_threads(origin_of, [existing[name] for name in chosen])
        left = len(chosen) < len(unknown)  # any of the rest may be merged from segments that are gone
        known = {name: identities for name, identities in before.items() if left or name in existing}
        known |= {name: list(origin.identities) for name, origin in zip(chosen, origins, strict=True)}
        return {"segments": known} if chosen else start

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """The limit according to the option `maxFilesPerTrigger`."""
        return ReadAllAvailable() if self._most is None else ReadMaxFiles(self._most)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Read only the segments that exist now."""
        self._target = dict.fromkeys(self._listed(), ())

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The work of each task of a micro-batch. Raises UsageError for segments that are gone or partly read."""
        places = self._unread(start["segments"], end["segments"])
        return self._reader.tasks(places) if places else []

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the events of one task."""
        return self._reader.read(partition)

    def _listed(self) -> dict[str, Place]:
        """The existing segments, by name."""
        found = listed_below(self._folder)
        return {
            name: place
            for name, place in found.items()
            if self._names is None or self._names.fullmatch(folder_of(place)[1])
        }

    def _unread(self, before: Known, after: Known) -> list[Place]:
        """The segments of a micro-batch with unread events, wherever they are now."""
        existing = self._listed()
        known = {identity for identities in before.values() for identity in identities}
        unread: dict[str, Sequence[str]] = {}
        for name, identities in after.items():
            count = 0 if name in before else len(known.intersection(identities))
            if name in before or count == len(identities):
                continue
            if count:
                raise UsageError(
                    f"{name} was merged from {len(identities)} segments, of which the stream read {count}; their "
                    "events cannot be separated",
                    path=self._folder.name,
                    hint="merge only segments that the stream has read",
                )
            known.update(identities)
            unread[name] = identities
        missing = {name: identities for name, identities in unread.items() if name not in existing}
        places = [existing[name] for name in unread if name in existing]
        return places + self._merged(missing, {name: place for name, place in existing.items() if name not in after})

    def _merged(self, missing: Known, others: Mapping[str, Place]) -> list[Place]:
        """The segments that contain only events of those that are missing."""
        wanted = {identity for identities in missing.values() for identity in identities}
        found = []
        origins = in_threads(origin_of, list(others.values())) if wanted else []
        for place, origin in zip(others.values(), origins, strict=False):
            if wanted.issuperset(origin.identities):
                wanted.difference_update(origin.identities)
                found.append(place)
        if wanted and self._fail:
            raise UsageError(
                f"segments were removed before the stream read them: {', '.join(sorted(missing))}",
                path=self._folder.name,
                hint='restore them, or continue without them: .option("failOnDataLoss", "false")',
            )
        return found


def _changed(place: Place) -> int:
    """When a local file was last modified, for ordering; 0 for objects and missing files."""
    try:
        return Path(place).stat().st_mtime_ns if isinstance(place, str) else 0
    except FileNotFoundError:
        return 0
