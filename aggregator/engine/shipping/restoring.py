"""`restore`: restores a catalog from its store into an empty directory. `take_over`: turns a directory that follows a
store into its writer's.

An unfinished directory is marked in its note, and cannot be opened for writing. A finished one is opened like one after
a crash: its unsealed events are recovered from the log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path
from threading import Lock

from aggregator.base.reports import Lacking, RestoreReport
from aggregator.engine.seal.quarantine_file import batch_path
from aggregator.engine.shipping.attach import fence_at, take
from aggregator.engine.shipping.log_writer import whole_end
from aggregator.engine.shipping.mirror import Mirror, checked_download
from aggregator.errors import CatalogNotFoundError, InvalidRequestError
from aggregator.model import QuarantinedBatch, SegmentInfo
from aggregator.storage.files.layout import Layout, manifest_files
from aggregator.storage.files.modes import create_directory
from aggregator.storage.files.store_note import StoreNote, note_path, read_note, write_note
from aggregator.storage.log.file import list_files
from aggregator.storage.manifest import LOST, STORE, WRITTEN, Manifest, StoredRows
from aggregator.storage.segments.file import file_checksum
from aggregator.storage.store.client import Store
from aggregator.storage.store.lease import Lease, Seen, fenced, new_terms, read_lease
from aggregator.storage.store.objects import object_name
from aggregator.storage.store.shipped import quarantined_object

THREADS = 8
Progress = Callable[[int, int], None]


def restore(store: Store, layout: Layout, until_us: int | None, progress: Progress) -> RestoreReport:
    """Restore the catalog in a store into a directory that is empty, or has an interrupted restore. The result is an
    independent catalog without a store. progress: called with the bytes of segments restored so far, and the total.

    Raises CatalogNotFoundError, InvalidRequestError, StoreError, UnknownVersionError, OSError.
    """
    begin_following(layout, store)
    before = read_lease(store)
    mirror = Mirror(store, layout, until_us=until_us, durable=True)
    try:
        mirror.begin()
    except CatalogNotFoundError:
        _empty_again(layout)
        raise
    mirror.read_over_gaps()
    complete = until_us is None and _is_all(before, read_lease(store)) and not mirror.at.damages
    segments, size_bytes, lacking = fetch(store, layout, progress)
    finish(layout, keeps_store=False, sure=complete)
    note_path(layout).unlink()
    lacking = [Lacking(name, message) for name, message in mirror.at.damages.items()] + lacking
    log_bytes = sum(path.stat().st_size for _, path in list_files(layout.log))
    return RestoreReport(mirror.at.shipped_us, segments, size_bytes, log_bytes, tuple(lacking), complete)


def _empty_again(layout: Layout) -> None:
    """Empty a directory again for which the store had nothing: the address may have been mistyped."""
    with suppress(OSError):  # it has files of an earlier attempt
        for directory in (layout.log, layout.segments):
            directory.rmdir()
        note_path(layout).unlink()


def _is_all(before: Seen | None, after: Seen | None) -> bool:
    """Whether the data read between two looks at the lease includes everything acknowledged before the first look."""
    if before is None or after is None or before.terms.run != after.terms.run:
        return False
    return before.terms.in_store or (before.etag == after.etag and before.terms.released)


def begin_following(layout: Layout, store: Store) -> None:
    """Turn a directory into a copy of the catalog in a store. Its manifest and log are deleted, its segments reused.

    Raises InvalidRequestError if it contains anything else.
    """
    note = read_note(layout) if layout.root.exists() else None
    mine = note is not None and note.following and note.address == store.address
    lock = layout.writer_lock  # alone it is left by an `init` without enough space
    if layout.root.exists() and any(path != lock for path in layout.root.iterdir()) and not mine:
        raise InvalidRequestError(
            "the directory is not empty", path=str(layout.root), hint="use one that is empty or does not exist yet"
        )
    create_directory(layout.root)
    for path in manifest_files(layout.manifest):
        path.unlink(missing_ok=True)
    if layout.log.is_dir():
        for _, path in list_files(layout.log):
            path.unlink()
    write_note(layout, StoreNote(store.address, () if note is None else note.runs, following=True))


def named_files(layout: Layout) -> tuple[list[SegmentInfo], list[QuarantinedBatch]]:
    """The segments and quarantined batches that the manifest of a directory names."""
    with closing(Manifest(layout.manifest, read_only=True)) as manifest:
        return manifest.load().segments, manifest.quarantined()


def fetch(store: Store, layout: Layout, progress: Progress) -> tuple[int, int, list[Lacking]]:
    """Download every missing file that the manifest names. Return the number of segments that are present then, their
    bytes, and what could not be downloaded. Raises StoreError, OSError.
    """
    segments, quarantined = named_files(layout)
    total, done = sum(one.size_bytes for one in segments), 0
    lock, lacking = Lock(), list[Lacking]()

    def add(size: int) -> None:
        nonlocal done
        with lock:
            done += size
            progress(min(done, total), total)

    def bring(wanted: tuple[str, Path, int, int]) -> None:
        name, path, checksum, size = wanted
        if path.exists() and path.stat().st_size == size and file_checksum(path) == checksum:
            add(size)
            return
        if wrong := checked_download(store, name, path, checksum, add):
            with lock:
                lacking.append(Lacking(name, wrong))

    with ThreadPoolExecutor(THREADS, "aggregator-restore") as pool:
        list(pool.map(bring, _files(layout, segments, quarantined)))
    missing = {one.name for one in lacking}
    there = [one for one in segments if object_name(one) not in missing]
    return len(there), sum(one.size_bytes for one in there), lacking


def _files(
    layout: Layout, segments: Iterable[SegmentInfo], quarantined: Iterable[QuarantinedBatch]
) -> list[tuple[str, Path, int, int]]:
    """For each file: its name in the store, its local path, its checksum and its size (-1: unknown)."""
    found = [(object_name(one), layout.segment(one.number), one.checksum, one.size_bytes) for one in segments]
    return found + [
        (quarantined_object(one.number, one.checksum), batch_path(layout, one.number), one.checksum, -1)
        for one in quarantined
    ]


def finish(layout: Layout, *, keeps_store: bool, sure: bool) -> None:
    """Prepare the directory to be opened as a catalog. sure: whether it has everything that was acknowledged; else the
    record indexes that may have been assigned are skipped.
    """
    with closing(Manifest(layout.manifest)) as manifest:
        manifest.put(WRITTEN, "")
        manifest.put(LOST, "" if sure else "1")
        rows = StoredRows(manifest)
        if keeps_store:
            rows.add(manifest.load().segments, local=False)  # opening finds out which of them are local
        else:
            rows.remove([each.number for each in rows.all()])
            manifest.put(STORE, "")


def take_over(mirror: Mirror, layout: Layout, store: Store, seen: Seen, lease_s: float) -> Lease:
    """Turn a directory that follows a store into its writer's: the previous writer can change nothing from then on.

    seen: the lease, which may be taken. The directory is opened next. Raises CatalogLockedError if another process was
    faster, FencedError if that turns out later, StoreError, OSError.
    """
    terms = new_terms(seen, lease_s, in_store=False)
    note = StoreNote(store.address, (*(read_note(layout) or StoreNote("")).runs, terms.run), following=True)
    write_note(layout, note)
    lease = take(store, seen, terms)
    mirror.poll()
    mirror.read_over_gaps()  # else a fence could take the place of an object deleted before it was read
    while True:
        if mirror.at.epoch > terms.epoch:  # this took longer than a lease: a fence would stop the next writer
            raise fenced(store.address)
        end = whole_end(layout.log, mirror.at.position)
        if fence_at(store, mirror.at.sequence, terms, mirror.at.shipped_us, end) is not None:
            break
        mirror.poll()
    lease.renew()  # fails if another took it and has put no fence yet
    if mirror.at.announced is None:
        raise CatalogNotFoundError("no catalog found", path=store.address)
    needs = (mirror.at.announced.sequence, mirror.at.announced.position)
    finish(layout, keeps_store=True, sure=seen.terms.in_store or seen.terms.released)
    write_note(layout, StoreNote(store.address, (terms.run,), mirror.at.sequence + 1, needs))
    return lease
