"""Consistency check at opening: files that differ from the manifest are deleted, adopted or moved to quarantine.

What a crash normally leaves is deleted: half-written files, segments whose events are still in the log, segments made
from others that still exist. Everything else is reported as a problem: files that the manifest names but that are
missing or damaged, and files that it does not name but that have events of their own, for example because an old copy
of the manifest was put back. Sizes are compared for all segments; contents are checked when they are read, and by
`check_contents`.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable, Collection, Container, Iterator, Mapping
from pathlib import Path

from aggregator.engine.recovery.replay import Replay, adopt_partition, adopt_schema, adopt_topic
from aggregator.engine.recovery.restore import restore
from aggregator.errors import CorruptManifestError, StoreError, UnknownVersionError
from aggregator.model import Problem, QuarantinedBatch, SegmentInfo
from aggregator.storage.files.layout import PARTIAL, Layout, segment_number
from aggregator.storage.files.quarantine import quarantine_file
from aggregator.storage.log.file import describe_gap
from aggregator.storage.log.logged_events import LoggedEvents, Span
from aggregator.storage.log.recovery import Recovered
from aggregator.storage.manifest import IDENTITY, Edit, Manifest, StoredRows
from aggregator.storage.manifest.backup import read_facts
from aggregator.storage.segments.file import (
    FoundSegment,
    describe_segment,
    file_checksum,
    index_spans,
    stored_producers,
)
from aggregator.storage.segments.table import SegmentView
from aggregator.storage.state.state import CatalogState, Topic
from aggregator.storage.store.objects import Objects
from esformat import EsdbError

logger = logging.getLogger("aggregator")

KEPT, TAKEN_IN, SET_ASIDE = "reported", "taken in", "set aside in quarantine"


class ConsistencyCheck:
    """The checks of one opening. `swept`: the deleted files that a crash had left, relative to the root."""

    def __init__(
        self,
        layout: Layout,
        state: CatalogState,
        manifest: Manifest,
        clock: Callable[[], int],
        change: int,
        objects: Objects,
    ) -> None:
        """change: the manifest's last change, as it was found. objects: the catalog's store."""
        self._layout, self._state, self._manifest, self._clock = layout, state, manifest, clock
        self.swept: list[str] = []
        self.last_number = 0
        """The largest number of the segment files that were found."""
        self.is_old_copy = False
        """Whether the manifest lacked something that was found: it may be older than segments, log and its backup."""
        self._began_us = clock()
        self._missing: set[int] = set()
        self._absent: list[SegmentInfo] = []  # see `report_missing`
        self._change = change
        self._rows, self._objects = StoredRows(manifest), objects

    def check_manifest(self, noted: int) -> None:
        """Report changes of the manifest that are lost. noted: its last change, according to the log."""
        if self._change < noted:
            what = f"its last {noted - self._change} changes are lost: they are rebuilt from segments, log and facts"
            self._report(self._layout.manifest, what, TAKEN_IN)

    def check_segments(self) -> None:
        """Compare the segment files with the manifest. Called before the log is replayed. Raises OSError."""
        retired = {number for number, _, _ in self._manifest.retired()}
        files: dict[int, os.DirEntry[str]] = {}
        sizes: dict[int, int] = {}
        for entry in _files(self._layout):
            number = segment_number(entry.name)
            if not entry.is_file():
                path = Path(entry.path)
                aside = quarantine_file(self._layout, path)
                self._report(path, "expected a file, found a directory or a special file", f"{SET_ASIDE}: {aside.name}")
            elif number is not None:
                files[number], sizes[number] = entry, entry.stat().st_size
            elif entry.name.endswith(PARTIAL):
                self._sweep(Path(entry.path))
        self.last_number = max(files, default=0)
        named = {info.number: info for topic in self._state.topics.values() for info in topic.segments.view()}
        absent = [info for number, info in named.items() if number not in files]
        stored = self._look_at_stored(named, files, absent)
        absent = [info for info in absent if info.number not in stored]
        orphans = {n: Path(entry.path) for n, entry in files.items() if n not in named and n not in retired}
        self._check_orphans(orphans, absent)
        self._absent += filter(self._is_named, absent)
        others = [info for number, info in named.items() if sizes.get(number, info.size_bytes) != info.size_bytes]
        for info in filter(self._is_named, others):
            self._replace_or_quarantine(Path(files[info.number].path), info)

    def _is_named(self, info: SegmentInfo) -> bool:
        """Whether the manifest still names the segment: no orphan has replaced it."""
        return info.number in self._state.partitions[info.partition][0].segments

    def _look_at_stored(
        self, named: Mapping[int, SegmentInfo], there: Container[int], absent: list[SegmentInfo]
    ) -> set[int]:
        """Update which segments of the store have local files, whatever a crash left. Return the numbers of all
        segments in the store.
        """
        stored = self._rows.all()
        known = {each.number for each in stored}
        missing = [info for info in absent if info.number not in known]
        if missing and self._objects.settings is not None:  # an old copy of the manifest: they were evicted since
            with contextlib.suppress(StoreError):
                lacking = {info.number for info in self._objects.lacking(missing)}
                self._rows.add([info for info in missing if info.number not in lacking], local=False)
                stored = self._rows.all()
        for local in (False, True):
            changed = [each.number for each in stored if each.local is not local and (each.number in there) is local]
            if changed:
                self._rows.set_local(changed, local=local)
        for each in stored:
            if each.number in named and each.number not in there:
                self._state.set_evicted(named[each.number], evicted=True)
        return {each.number for each in stored}

    # ------------------------------------------------------------ files that the manifest does not name

    def _check_orphans(self, paths: dict[int, Path], missing: list[SegmentInfo]) -> None:
        """Delete, adopt or quarantine these files. missing: segments that the manifest names and that have no files."""
        if not paths:
            return
        found: list[tuple[Path, FoundSegment]] = []
        for number, path in sorted(paths.items()):
            try:
                each = describe_segment(path, number)
                if self._state.is_deleted(each.facts["topic_number"]):
                    self._sweep(path)
                else:
                    found.append((path, each))
            except EsdbError as error:
                aside = quarantine_file(self._layout, path)
                self._report(
                    path, f"a file that the manifest does not list: {error.message}", f"{SET_ASIDE}: {aside.name}"
                )
        there = {each.info.number for _, each in found}
        # Made from others: unfinished work if all of those still exist, else what remains of them.
        made = [each for _, each in found if not all(n in there or self._is_live(n) for n in each.replaces)]
        made = [each for each in made if not self._is_evicted(each, missing)]
        superseded = {number for each in made for number in each.replaces}
        logged = LoggedEvents(self._layout.log)
        sealed = {each.info.number: index_spans(path, each.info) for path, each in found if self._is_new_seal(each)}
        spans: dict[int, list[Span]] = {}
        for _, each in found:
            spans.setdefault(each.info.partition, []).extend(sealed.get(each.info.number, ()))
        found = [
            (path, each)
            for path, each in found
            if not self._is_torn(path, each, sealed.get(each.info.number, []), spans[each.info.partition], logged)
        ]
        # Up to the last event that only such files have, the files count; after it, the log: see `_report_between`.
        ends: dict[int, int] = {}
        for _, each in found:
            info = each.info
            if info.number in sealed and not logged.holds(info.partition, sealed[info.number]):
                ends[info.partition] = max(info.last_index + 1, ends.get(info.partition, 0))
        begins = {partition: self._sealed_index(partition) for partition in ends}
        taken: dict[int, list[tuple[int, int]]] = {}
        for path, each in found:
            info = each.info
            newly = info.number in sealed and info.first_index < ends.get(info.partition, 0)
            if info.number in superseded or not (each in made or newly):
                self._sweep(path)
                continue
            self._adopt(path, each)
            taken.setdefault(info.partition, []).extend(sealed.get(info.number) or index_spans(path, info))
        for partition, end in ends.items():
            self._report_between(partition, logged.outside(partition, taken.get(partition, ()), begins[partition], end))

    def _is_live(self, number: int) -> bool:
        """Whether the manifest names a segment, and it has a file or was evicted."""
        named = any(number in topic.segments for topic in self._state.topics.values())
        return named and (number in self._state.evicted or self._layout.segment(number).exists())

    def _is_evicted(self, each: FoundSegment, missing: list[SegmentInfo]) -> bool:
        """Whether the manifest has all events of a file that was made from others, without that file: another was made
        instead, for example because the manifest could not be written when the file was finished.
        """
        info = each.info
        known = self._state.partitions.get(info.partition)
        if known is None or info.last_index >= known[1].sealed_index:
            return False
        return not any(
            lost.partition == info.partition
            and lost.first_index <= info.last_index
            and info.first_index <= lost.last_index
            for lost in missing
        )

    def is_in_log(self, batch: QuarantinedBatch) -> bool:
        """Whether the log has the events of a quarantined batch."""
        return LoggedEvents(self._layout.log).holds(batch.partition, [(batch.first_index, batch.last_index + 1)])

    def _is_new_seal(self, each: FoundSegment) -> bool:
        """Whether a file is directly from a seal, and has events that the manifest does not know to be sealed."""
        return not each.replaces and each.info.last_index >= self._sealed_index(each.info.partition)

    def _sealed_index(self, partition: int) -> int:
        known = self._state.partitions.get(partition)
        return 0 if known is None else known[1].sealed_index

    def _is_torn(
        self, path: Path, each: FoundSegment, mine: Collection[Span], spans: Collection[Span], logged: LoggedEvents
    ) -> bool:
        """Whether a file is part of an unfinished seal, with events that the log lost together with its end, and with
        events of other families between them that only the log has. Then the log counts, and the file is moved to
        quarantine. mine, spans: record indexes of its events, and of those of all such files of the partition.
        """
        info = each.info
        if logged.holds(info.partition, mine) or not logged.lacks_only_the_end(info.partition, mine):
            return False
        if not logged.outside(info.partition, spans, self._sealed_index(info.partition), info.last_index + 1):
            return False
        aside = quarantine_file(self._layout, path)
        message = f"a crash interrupted its seal, and the log has lost its last events ({_described(info)})"
        self._report(path, message, f"{SET_ASIDE}: {aside.name}")
        return True

    def _report_between(self, partition: int, passed_over: list[tuple[int, int]]) -> None:
        """Report events of the log that are between those of adopted files, and in none of them: a crash interrupted a
        seal of several families, and the log has since lost a part of one of them.
        """
        if passed_over:
            count, first, end = sum(end - first for first, end in passed_over), passed_over[0][0], passed_over[-1][1]
            events = f"{count} events of partition {partition}, with record indexes from {first} to {end - 1}"
            message = (
                f"{events}, are in no segment and are skipped: later events, which only a segment has, were sealed"
            )
            self._report(self._layout.log, message, KEPT)

    def _adopt(self, path: Path, each: FoundSegment) -> None:
        self.is_old_copy = True
        adopt_segment(self._state, self._manifest, each)
        self._report(path, f"the manifest did not list it ({_described(each.info)}): it may be an old copy", TAKEN_IN)

    # ------------------------------------------------------------ files that are not what the manifest says

    def _replace_or_quarantine(self, path: Path, info: SegmentInfo) -> None:
        try:
            found = describe_segment(path, info.number)
        except EsdbError as error:
            self._quarantine_damaged(path, info, error.message)
            return
        topic, _ = self._state.partitions[info.partition]
        self._manifest.correct_segment(found.info)
        self._state.change_segments(topic, self._manifest.change(), [found.info], [info.number], {})
        lost = info.rows - found.info.rows
        self._report(path, f"it was replaced by another valid file, with {lost} events fewer", TAKEN_IN)

    def check_contents(self, topic: Topic) -> list[int]:
        """Read a topic's segment files from end to end, move damaged ones to quarantine and report missing ones. Return
        the numbers of both.
        """
        bad: list[int] = []
        stored = {each.number for each in self._rows.all()}
        for info in self._segments(topic):
            path = self._layout.segment(info.number)
            try:
                whole = file_checksum(path) == info.checksum
            except FileNotFoundError:
                whole = False
            if whole or info.number not in topic.segments:  # retention was faster
                continue
            there = path.exists()
            if not there and info.number in stored:  # it was evicted
                continue
            bad.append(info.number)
            if there:
                self._quarantine_damaged(path, info, "its checksum does not match")
            else:
                self._report_missing(path, info)
        return bad

    def _quarantine_damaged(self, path: Path, info: SegmentInfo, why: str) -> None:
        aside = quarantine_file(self._layout, path)
        action = f"{SET_ASIDE}: {aside.name}"
        if any(each.number == info.number for each in self._rows.all()):
            self._rows.set_local([info.number], local=False)
            self._state.set_evicted(info, evicted=True)
            action += "; read from the store from now on"
        self._report(path, f"the segment is damaged ({_described(info)}): {why}", action)

    def forget_solved(self, damaged: Collection[int]) -> None:
        """Forget problems, found by earlier openings, of segments that are now whole. damaged: those that are not."""
        topics = list(self._state.topics.values())
        whole = {info.number for topic in topics for info in self._segments(topic)}.difference(damaged)
        known = [(problem, segment_number(Path(problem.subject).name)) for problem in self._manifest.problems()]
        solved = [problem for problem, number in known if number in whole and problem.found_us < self._began_us]
        self._manifest.forget_problems(problem for problem in solved if problem.subject.startswith("segments/"))

    def accept_losses(self, topic: Topic, missing_objects: Container[int] = ()) -> list[Problem]:
        """Remove segments without files from a topic, so that scans continue without them.

        missing_objects: numbers of segments that the store should have, but lacks.
        """
        stored = {each.number for each in self._rows.all() if each.number not in missing_objects}
        missing = [info for info in self._segments(topic) if not self._layout.segment(info.number).exists()]
        lost = [info for info in missing if info.number not in stored]
        if not lost:
            return []
        with self._state.edit_lock:
            lost = [info for info in lost if info.number in topic.segments]  # others were removed or merged meanwhile
            numbers = [info.number for info in lost]
            change = self._manifest.apply(Edit(retired=numbers, reason="lost"))
            self._state.change_segments(topic, change, (), numbers, {})
        self._manifest.write_backup()
        return [
            self._report(self._layout.segment(info.number), f"lost: {_described(info)}", "given up") for info in lost
        ]

    def _segments(self, topic: Topic) -> SegmentView:
        with self._state.view_lock:
            return topic.segments.view()

    # ------------------------------------------------------------ the log and the manifest backup

    def check_backup(self, change: int) -> None:
        """If the manifest backup is newer than the manifest, the manifest is an old copy: restore what it lacks. Called
        after the log is replayed. change: the backup's. Raises OSError, ManifestFailedError.
        """
        if change <= self._change:
            return
        path = self._layout.facts
        try:
            facts, change = read_facts(path)
            if facts.settings.identity != self._manifest.get(IDENTITY):
                raise CorruptManifestError("it belongs to another catalog")
        except (CorruptManifestError, UnknownVersionError) as error:
            aside = quarantine_file(self._layout, path)
            self._report(path, f"it is newer than the manifest, but {error.message}", f"{SET_ASIDE}: {aside.name}")
            return
        partitions = {number: partition.memtable for number, (_, partition) in self._state.partitions.items()}
        logged = {
            number: (memtable.batches[0].first_index, memtable.end_index)
            for number, memtable in partitions.items()
            if memtable.batches
        }
        self.is_old_copy = True
        restored = restore(facts, change, self._state, self._manifest, logged)
        message = "it is newer than the manifest, which may be an old copy"
        self._report(path, "; ".join([message, *restored.missing]), TAKEN_IN)

    def report_missing(self) -> None:
        """Report segments whose files are missing, except if all their events are hidden or their topic is deleted:
        then an old copy of the manifest names deleted segments. Called after `check_backup`. Raises
        ManifestFailedError.
        """
        for info in self._absent:
            topic, _ = self._state.partitions[info.partition]
            if info.number not in topic.segments:
                continue
            if _is_hidden(topic, info):
                change = self._manifest.apply(Edit(retired=[info.number], reason="erased"))
                self._state.change_segments(topic, change, (), [info.number], {})
            else:
                self._report_missing(self._layout.segment(info.number), info)

    def report_log(self, recovered: Recovered, replay: Replay) -> None:
        """Report what the log has lost, and copy unreadable files before they are deleted. Raises OSError."""
        damaged: dict[Path, list[str]] = {}
        for damage in recovered.damages:
            damaged.setdefault(damage.path, []).append(damage.description)
        for frame, message in replay.unreadable:
            path = next(file.path for file in recovered.files if file.position <= frame.position < file.end)
            damaged.setdefault(path, []).append(f"{message} (frame at position {frame.position})")
        known = {(problem.subject, problem.message) for problem in self._manifest.problems()}
        for path, messages in damaged.items():
            if all((self._name(path), message) in known for message in messages):
                continue
            aside = quarantine_file(self._layout, path, keep=True)
            for message in messages:
                self._report(path, message, f"{SET_ASIDE}: {aside.name}")
        for position, end in recovered.gaps:
            self._report(self._layout.log, describe_gap(position, end), KEPT)
        for number, first, end in replay.missing:
            topic, partition = self._state.partitions[number]
            place = f"partition {partition.name!r} of topic {topic.info.name!r}"
            message = f"{end - first} events are missing: record indexes {first} to {end - 1} of {place}"
            self._report(self._layout.log, message, KEPT)

    # ------------------------------------------------------------ reporting

    def _name(self, path: Path) -> str:
        return str(path.relative_to(self._layout.root))

    def _sweep(self, path: Path) -> None:
        path.unlink()
        self.swept.append(self._name(path))
        logger.info("removed %s, left by a crash", path)

    def _report_missing(self, path: Path, info: SegmentInfo) -> None:
        """Report a missing segment, once per opening. If it is in quarantine, its problem is already known."""
        if info.number in self._missing:
            return
        self._missing.add(info.number)
        name = self._name(path)
        for known in self._manifest.problems():
            if known.subject == name and known.action.startswith(SET_ASIDE):
                logger.warning("%s: %s; %s", path, known.message, known.action)
                return
        self._report(path, f"the segment is missing ({_described(info)})", KEPT)

    def _report(self, path: Path, message: str, action: str) -> Problem:
        logger.warning("%s: %s; %s", path, message, action)
        problem = Problem(self._name(path), message, action, self._clock())
        self._manifest.add_problem(problem)
        return problem


def adopt_segment(state: CatalogState, manifest: Manifest, found: FoundSegment) -> None:
    """Add a segment file, with everything it records about its topic, and replace the segments it was made from."""
    facts = found.facts | {"columns": found.schema.to_json()}
    topic_info = adopt_topic(state, manifest, facts)
    adopt_schema(state, manifest, topic_info, facts)
    adopt_partition(state, manifest, topic_info, facts)
    info = found.info
    topic, partition = state.partitions[info.partition]
    replaced = [number for number in found.replaces if number in topic.segments]
    sealed = {info.partition: max(partition.sealed_index, info.last_index + 1)}
    for entry in stored_producers(found.facts):
        partition.keep_producer(entry)
    names = {entry.producer for entry in stored_producers(found.facts)}
    producers = [entry for name in names for entry in partition.producers[name].values()]  # other segments' as well
    change = manifest.apply(
        Edit(added=[info], retired=replaced, reason="superseded", sealed=sealed, producers=producers)
    )
    state.change_segments(topic, change, [info], replaced, sealed)
    partition.next_index = max(partition.next_index, info.last_index + 1)


def _is_hidden(topic: Topic, info: SegmentInfo) -> bool:
    """Whether all events of a segment are of one space that was erased."""
    cuts = topic.tombstones.get((info.partition, info.min_space), ()) if info.min_space == info.max_space else ()
    return any(cut.erases and info.last_index < cut.end_index for cut in cuts)


def _described(info: SegmentInfo) -> str:
    return f"{info.rows} events, record indexes {info.first_index} to {info.last_index}"


def _files(layout: Layout) -> Iterator[os.DirEntry[str]]:
    for folder in os.scandir(layout.segments):
        if folder.is_dir():
            yield from os.scandir(folder.path)
