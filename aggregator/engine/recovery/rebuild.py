"""`rebuild_manifest`: rebuilds a lost or damaged manifest from segments, log and the manifest backup.

Segments record their topic, partition, schema, producers and what they were made from. The log has the unsealed events.
The backup, `catalog.facts`, has what neither can record: docs/decisions/0032-facts.md has the list. Without it the rest
is restored, and the report says so.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Collection, Container, Mapping
from pathlib import Path

from aggregator.base.age_clock import stored_clock
from aggregator.base.reports import RebuildReport
from aggregator.engine.recovery.check import KEPT, SET_ASIDE, adopt_segment
from aggregator.engine.recovery.replay import adopt_definitions, adopt_partition, adopt_schema, adopt_topic
from aggregator.engine.recovery.restore import Restored, restore
from aggregator.engine.recovery.stored import describe_objects, known_store, listed
from aggregator.engine.seal.quarantine_file import batch_files, describe_batch
from aggregator.errors import CatalogNotFoundError, CorruptLogError, CorruptManifestError, UnknownVersionError
from aggregator.model import Problem, SegmentInfo, StoredSegment
from aggregator.policy import StoreSettings
from aggregator.storage.files.layout import Layout, manifest_files, segment_files
from aggregator.storage.files.lock import WriterLock
from aggregator.storage.files.quarantine import quarantine_file
from aggregator.storage.files.staging import undo as undo_adding
from aggregator.storage.log.file import Marks
from aggregator.storage.log.logged_events import LoggedEvents
from aggregator.storage.manifest import CLOCK, Edit, IncarnationRows, Manifest, StoredRows
from aggregator.storage.manifest.backup import read_facts
from aggregator.storage.segments.file import FoundSegment, describe_segment, index_spans
from aggregator.storage.state.state import CatalogState
from aggregator.storage.store.objects import Objects, object_name
from esformat import EsdbError, Source
from esformat.parts import sync_directory

_NEW = "manifest.sqlite.rebuilding"
Place = Path | Source
"""The location of a segment: its file, or an object of the store."""


def rebuild(
    layout: Layout,
    clock: Callable[[], int],
    progress: Callable[[int, int], None] = lambda done, total: None,
    address: str | None = None,
) -> RebuildReport:
    """Rebuild the manifest. Every segment is read from end to end, from the store if it has no file. Damaged files, and
    what is left of the old manifest, are moved to quarantine. progress: called with the bytes done, and the total.
    address: of the store; None: as in the manifest backup.

    Raises CatalogNotFoundError, CatalogLockedError, StoreError, OSError; then the old manifest is unchanged.
    """
    if not (layout.segments.is_dir() or layout.log.is_dir()):
        raise CatalogNotFoundError("no catalog found: there are neither segments nor a log", path=str(layout.root))
    lock = WriterLock(layout.writer_lock)
    try:
        for path in layout.root.glob(_NEW + "*"):  # from an interrupted attempt
            path.unlink()
        undo_adding(layout, ())
        new = layout.root / _NEW
        manifest = Manifest(new)
        try:
            if layout.log.is_dir():  # there may be readers that know of these changes
                manifest.count_from(Marks.read(layout.log).change or 0)
            report = _fill(layout, manifest, clock, progress, known_store(layout, address))
        finally:
            manifest.close()
        if new.with_name(new.name + "-wal").exists():
            raise CorruptManifestError("the new manifest could not be completed", path=str(new))
        for path in manifest_files(layout.manifest):
            if path.exists():
                quarantine_file(layout, path)
        os.replace(new, layout.manifest)  # noqa: PTH105  the rename makes it valid
        sync_directory(layout.root)
        return report
    finally:
        lock.release()


def _fill(
    layout: Layout,
    manifest: Manifest,
    clock: Callable[[], int],
    progress: Callable[[int, int], None],
    store: StoreSettings | None,
) -> RebuildReport:
    quarantined: list[str] = []
    found, there = _read_all(layout, manifest, clock, progress, store, quarantined)
    state = CatalogState(manifest.load())
    _take_deleted(layout, state, manifest)
    found = {number: each for number, each in found.items() if not state.is_deleted(each[1].facts["topic_number"])}
    far = {number for number, (place, _) in found.items() if not isinstance(place, Path)}
    superseded = _superseded({number: each for number, (_, each) in found.items()}, far)
    unfinished, between = _unfinished(layout, [each for number, each in found.items() if number not in superseded])
    rows = 0
    newest_first = [each for number, (_, each) in sorted(found.items(), reverse=True) if number not in unfinished]
    for each in newest_first:  # the newest has the latest policies of its topic
        adopt_topic(state, manifest, each.facts)
    for each in reversed(newest_first):  # inputs of merges first: scans may keep their files
        adopt_segment(state, manifest, each)
        rows += each.info.rows if each.info.number not in superseded else 0
    _retire(state, manifest, [found[number][1].info for number in superseded])
    _note_stored(manifest, store, [each.info for each in newest_first], there, far)
    _take_batches(layout, state, manifest)
    restored, missing, logged = _restore(layout, state, manifest, quarantined, clock)
    next_indexes = {
        number: max(partition.next_index, logged.get(number, 0)) for number, (_, partition) in state.partitions.items()
    }
    IncarnationRows(manifest).begin(next_indexes, known=False)
    if found:
        manifest.put(CLOCK, stored_clock(max(each.info.created_us for _, each in found.values())))
    return RebuildReport(
        len(state.topics),
        len(found) - len(superseded) - len(unfinished),
        rows,
        len(superseded),
        tuple(quarantined),
        restored.pipes,
        restored.hidden,
        (*between, *missing),
        _logged_rows(layout, state),
    )


def _read_all(
    layout: Layout,
    manifest: Manifest,
    clock: Callable[[], int],
    progress: Callable[[int, int], None],
    store: StoreSettings | None,
    quarantined: list[str],
) -> tuple[dict[int, tuple[Place, FoundSegment]], dict[int, StoredSegment]]:
    """Read every segment. Return them by number with their locations, and those that the store has. quarantined:
    receives the names of unusable ones.
    """
    files = segment_files(layout)
    objects = Objects(lambda: store, layout.cache, read_only=True)
    there = {} if store is None else listed(objects)
    total = sum(path.stat().st_size for path in files.values())
    total += sum(each.size_bytes for number, each in there.items() if number not in files)
    found: dict[int, tuple[Place, FoundSegment]] = {}
    done = 0
    for number, path in sorted(files.items()):
        done += path.stat().st_size
        try:
            found[number] = (path, describe_segment(path, number))
        except (EsdbError, IsADirectoryError) as error:
            aside = quarantine_file(layout, path)
            name = str(path.relative_to(layout.root))
            quarantined.append(name)
            message = error.message if isinstance(error, EsdbError) else "expected a file, found a directory"
            manifest.add_problem(Problem(name, message, f"{SET_ASIDE}: {aside.name}", clock()))
        progress(done, total)
    read = [done]

    def on_bytes(size_bytes: int) -> None:
        read[0] += size_bytes
        progress(read[0], max(total, read[0]))

    for each in describe_objects(objects, layout, there, found, on_bytes) if there else ():
        number = each.stored.number
        if isinstance(each.found, FoundSegment):
            source = objects.source(each.stored)
            assert source is not None
            found[number] = (source, each.found)
        else:
            name = objects.store.path_of(object_name(each.stored))
            quarantined.append(name)
            manifest.add_problem(Problem(name, each.found.message, KEPT, clock()))
    return found, there


def _retire(state: CatalogState, manifest: Manifest, infos: Collection[SegmentInfo]) -> None:
    """Retire segments that others were made from."""
    for info in infos:
        topic, _ = state.partitions[info.partition]
        if info.number in topic.segments:
            change = manifest.apply(Edit(retired=[info.number], reason="superseded"))
            state.change_segments(topic, change, (), [info.number], {})


def _note_stored(
    manifest: Manifest,
    store: StoreSettings | None,
    infos: Collection[SegmentInfo],
    there: dict[int, StoredSegment],
    far: set[int],
) -> None:
    """Record the store, and which of the segments it has."""
    if store is None:
        return
    rows = StoredRows(manifest)
    rows.set_settings(store)
    same = [info for info in infos if info.number in there and there[info.number].checksum == info.checksum]
    rows.add([info for info in same if info.number not in far])
    rows.add([info for info in same if info.number in far], local=False)


def _take_deleted(layout: Layout, state: CatalogState, manifest: Manifest) -> None:
    """Record which topics were deleted, before anything else is adopted: their remains are not."""
    with contextlib.suppress(FileNotFoundError, CorruptManifestError, UnknownVersionError):  # `_restore` reports it
        facts, _ = read_facts(layout.facts)
        for topic in facts.topics:
            if topic.deleted:
                state.add_topic(manifest.add_topic(topic))
        for partition in facts.partitions:
            if state.is_deleted(partition.topic):
                sealed = {partition.number: partition.sealed_index}
                state.add_partition(manifest.add_partition(partition.topic, partition.name, partition.number))
                known = state.partitions[partition.number][1]
                known.sealed_index = known.next_index = partition.sealed_index  # positions may point there
                manifest.apply(Edit(sealed=sealed))


def _take_batches(layout: Layout, state: CatalogState, manifest: Manifest) -> None:
    """Adopt the quarantined batches, the newest last. One that cannot be read stays where it is."""
    for number, path in sorted(batch_files(layout).items()):
        with contextlib.suppress(CorruptLogError):
            found = describe_batch(path, number)
            if state.is_deleted(found.facts["topic_number"]):
                continue
            topic = adopt_topic(state, manifest, found.facts)
            adopt_schema(state, manifest, topic, found.facts)
            adopt_partition(state, manifest, topic, found.facts)
            manifest.apply(Edit(quarantined=[found.batch], producers=found.producers))


def _restore(
    layout: Layout, state: CatalogState, manifest: Manifest, quarantined: list[str], clock: Callable[[], int]
) -> tuple[Restored, tuple[str, ...], Mapping[int, int]]:
    """Restore what the manifest backup has; an unusable backup is moved to quarantine. Return what was restored, what
    is missing, and for each partition the record index after its last event in the log.
    """
    path = layout.facts
    try:
        facts, change = read_facts(path)
    except FileNotFoundError:
        return Restored(), (_without_facts(path.name, "is missing"),), {}
    except (CorruptManifestError, UnknownVersionError) as error:
        quarantine_file(layout, path)
        quarantined.append(path.name)
        return Restored(), (_without_facts(path.name, f"cannot be used: {error.message}"),), {}
    logged = adopt_definitions(layout.log, state, manifest, clock) if layout.log.is_dir() else {}
    restored = restore(facts, change, state, manifest, logged)
    missing = list(restored.missing)
    if facts.passed_over:
        missing.append(f"{path.name} is of a newer version: {facts.passed_over} of its lines were skipped")
    return restored, tuple(missing), {number: end for number, (_, end) in logged.items()}


def _without_facts(name: str, why: str) -> str:
    return (
        f"{name} {why}: topics without events in segments or log, later policies, pipes, and erasures and "
        "truncations in progress are not restored; positions from before are refused"
    )


def _logged_rows(layout: Layout, state: CatalogState) -> int:
    """Number of events that the log has and the segments do not."""
    if not layout.log.is_dir():
        return 0
    ends = {number: partition.sealed_index for number, (_, partition) in state.partitions.items()}
    logged = LoggedEvents(layout.log)
    # with facts, other partitions belong to deleted topics; without, to topics that only the log defines
    return sum(logged.rows_from(number, ends.get(number, 0)) for number in (ends if layout.facts.exists() else logged))


def _unfinished(layout: Layout, found: Collection[tuple[Place, FoundSegment]]) -> tuple[set[int], list[str]]:
    """Segments that a crash left of a seal of several families: between their events, the log has others that are in no
    segment. The log has all of that seal, and the next opening recovers it from there. Also return, in sentences, what
    cannot be recovered.
    """
    if not layout.log.is_dir():
        return set(), []
    logged = LoggedEvents(layout.log)
    left_out: set[int] = set()
    missing: list[str] = []
    for partition in {each.info.partition for _, each in found}:
        mine = [(path, each) for path, each in found if each.info.partition == partition]
        held = [
            each.info
            for path, each in mine
            if not each.replaces and logged.lacks_only_the_end(partition, index_spans(path, each.info))
        ]
        torn = [(info.first_index, lost) for info in held if (lost := _between(info, mine, logged))]
        if not torn:
            continue
        begin = min(first for first, _ in torn)
        newer: list[SegmentInfo] = []
        while len(newer) < len(newer := [each.info for _, each in mine if each.info.last_index >= begin]):
            begin = min(info.first_index for info in newer)
        if all(info in held for info in newer):
            left_out |= {info.number for info in newer}
        else:
            missing.append(f"{max(lost for _, lost in torn)} events that are in the log but in no segment are skipped")
    return left_out, missing


def _between(info: SegmentInfo, mine: Collection[tuple[Place, FoundSegment]], logged: LoggedEvents) -> int:
    """Number of events that the log has within the span of a segment, and that are in none of these segments."""
    if info.rows == info.last_index + 1 - info.first_index:
        return 0
    overlapping = [(path, each.info) for path, each in mine if _overlap(info, each.info)]
    spans = [span for path, other in overlapping for span in index_spans(path, other)]
    return sum(end - first for first, end in logged.outside(info.partition, spans, info.first_index, info.last_index))


def _overlap(one: SegmentInfo, other: SegmentInfo) -> bool:
    return one.first_index <= other.last_index and other.first_index <= one.last_index


def _superseded(found: dict[int, FoundSegment], far: Container[int]) -> set[int]:
    """Segments whose events are in another one that was made from them.

    far: segments that only the store has. They may have stayed there longer than the segments made from them, and
    others made from those: if one shares record indexes with a newer one of its partition and schema, these are the
    same events.
    """
    gone = {number for each in found.values() for number in each.replaces if number in found}
    kinds: dict[tuple[int, int], list[SegmentInfo]] = {}
    for number, each in sorted(found.items(), reverse=True):
        newer = kinds.setdefault((each.info.partition, each.info.schema), [])
        if number in far and any(_overlap(each.info, other) for other in newer):
            gone.add(number)
        newer.append(each.info)
    return gone
