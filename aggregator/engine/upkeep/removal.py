"""Removes segments: first from the manifest and the view, then, once no scan reads them, from disk.

In this order: the manifest retires them and adds their replacements, in one transaction; scans that begin from then on
see the change; the files are deleted once all earlier scans have ended; then the manifest forgets the segments, except
those that a store also has (`tier`). A crash leaves files that the manifest still names as retired: they are deleted
later.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from threading import Lock

from aggregator.base.interrupts import uninterrupted
from aggregator.engine.ingest.quota import Quota
from aggregator.errors import SegmentMissingError
from aggregator.model import SegmentInfo
from aggregator.storage.manifest import Edit
from aggregator.storage.parts import Storage
from aggregator.storage.state.state import Topic
from aggregator.storage.state.streams import StreamIndex
from esformat import EsdbError, SegmentChangedError
from esformat.parts import sync_directory


class UnlessRemoved:
    """Ignores errors in its body about missing or changed files if one of the segments was removed meanwhile."""

    def __init__(self, topic: Topic, segments: Sequence[SegmentInfo]) -> None:
        self._topic, self._segments = topic, segments

    def __enter__(self) -> None:
        return None

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> bool:
        if not isinstance(error, FileNotFoundError | SegmentMissingError | SegmentChangedError):
            return False
        return not all(segment.number in self._topic.segments for segment in self._segments)


class Removal:
    """Retires segments and deletes their files. Thread-safe."""

    def __init__(self, storage: Storage, quota: Quota, streams: StreamIndex) -> None:
        self._state, self._manifest, self._layout = storage.state, storage.manifest, storage.layout
        self._pins, self._pool, self._quota, self._streams = storage.pins, storage.pool, quota, streams
        self._sweeping = Lock()
        self.retired = 0
        """Number of segments retired without a replacement since the catalog was opened."""
        self.remove_objects: Callable[[], object] = lambda: None
        """Does for objects in the store what `sweep` does for files. Set by the tier."""
        self.lingers: Callable[[int], bool] = lambda position: False
        """Whether the store may still have what was logged before a position and is gone here. Set from the shipper."""

    def replace(self, topic: Topic, retired: Sequence[SegmentInfo], added: Sequence[SegmentInfo], reason: str) -> bool:
        """Replace segments by others. Returns False and changes nothing if one of them is already gone.

        Raises ManifestFailedError; then the new files are deleted.
        """
        return uninterrupted(lambda: self._replace(topic, retired, added, reason))

    def _replace(self, topic: Topic, retired: Sequence[SegmentInfo], added: Sequence[SegmentInfo], reason: str) -> bool:
        with self._state.edit_lock:
            if not all(segment.number in topic.segments for segment in retired):
                return False
            numbers = [segment.number for segment in retired]
            try:
                change = self._manifest.apply(Edit(added=added, retired=numbers, reason=reason))
            except BaseException:
                with contextlib.suppress(EsdbError, OSError):  # else the next opening cleans up
                    self._manifest.commit_empty()
                    named = {segment.number for segment in self._manifest.load(since=self._state.change).segments}
                    self.discard([segment for segment in added if segment.number not in named])
                raise
            self._quota.retire(topic, retired)
            self._state.change_segments(topic, change, added, numbers, {})
            return True

    def retire(self, topic: Topic, segments: Sequence[SegmentInfo], reason: str) -> list[SegmentInfo]:
        """Retire segments without replacements. Return those that still existed."""
        return uninterrupted(lambda: self._retire(topic, segments, reason))

    def _retire(self, topic: Topic, segments: Sequence[SegmentInfo], reason: str) -> list[SegmentInfo]:
        with self._state.edit_lock:
            present = [segment for segment in segments if segment.number in topic.segments]
            if present:
                numbers = [segment.number for segment in present]
                change = self._manifest.apply(Edit(retired=numbers, reason=reason))
                self._quota.retire(topic, present)
                self._state.change_segments(topic, change, (), numbers, {})
                self.retired += len(present)
            return present

    def discard(self, made: Sequence[SegmentInfo]) -> None:
        """Delete new files that were not used."""
        for segment in made:
            self._layout.segment(segment.number).unlink(missing_ok=True)

    def waiting(self) -> list[tuple[int, int, int]]:
        """Retired segments whose files or objects still exist: number, bytes, change."""
        return self._manifest.retired()

    def sweep(self) -> int:
        """Delete files of retired segments that no scan of any process reads. Return the bytes freed."""
        with self._sweeping:
            self._pins.keep_file()
            deleted: list[int] = []
            freed = 0
            folders = set()
            failed: OSError | None = None
            with self._state.view_lock:
                shown = self._state.change  # a scan that begins from here on pins this change, or a later one
            waiting = [each for each in self._manifest.retired_files() if each[2] <= shown]  # oldest change first
            self._manifest.write_backup()
            if waiting:
                self._manifest.check_ownership()
            for number, size_bytes, change in waiting:
                if self.is_read(change):
                    break
                self._pool.forget(number)
                path = self._layout.segment(number)
                try:
                    path.unlink(missing_ok=True)
                except OSError as error:  # a file that cannot be deleted does not block others
                    failed = failed or error
                    continue
                folders.add(path.parent)
                deleted.append(number)
                freed += size_bytes
            for folder in folders:  # before the manifest forgets them: an unknown file must not reappear
                sync_directory(folder)
            if deleted:
                self._quota.deleted(deleted)
                self._manifest.forget_files(deleted)
            if failed is not None:
                raise failed
            return freed

    def is_read(self, change: int) -> bool:
        """Whether a scan reads a snapshot older than a change. Waits for scans of the stream index, which end soon."""
        if not self._pins.holds_before(change):
            return False
        self._streams.wait()
        return self._pins.holds_before(change)
