"""`Mirror`: a directory that follows a catalog in a store: its manifest, and the log after it, but no segments.

Readers, restores and standbys share it. Objects of the log are requested one by one, by number, until one is missing,
so that a store with late listings hides nothing. The newest copy of the manifest is found by listing, and is valid if
an object of the log announces it.
"""

from __future__ import annotations

import logging
import time
from bisect import bisect_right
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from aggregator.engine.shipping.attach import read_again, read_object
from aggregator.engine.shipping.log_writer import drop_before, write_at
from aggregator.errors import CatalogNotFoundError, CorruptLogError, CorruptManifestError, ObjectMissingError
from aggregator.storage.files.checksum import checksum64, hasher64
from aggregator.storage.files.layout import Layout, make_directory, replaced
from aggregator.storage.store.client import Store
from aggregator.storage.store.shipped import (
    LOG,
    MANIFESTS,
    Announced,
    LogObject,
    log_name,
    log_sequence,
    manifest_sequence,
    unpacked,
)

logger = logging.getLogger("aggregator")

READ_AT_ONCE = 8
"""Maximum number of objects of the log that are requested in parallel; each may have 16 MiB."""

MISSING = "the object is missing"
FIRST_AT_ONCE = 4
"""The same for the first requests of a new mirror: few objects follow the newest copy, and each round takes a wait."""
HELD_BYTES = 64 << 20
"""Bytes of the log that are cached by the search for the newest copy, for the reads that follow it."""
LISTED_S = 0.5
"""Two equal listings this many seconds apart are taken to be complete."""
EMPTY_POLLS = 30
"""Number of polls without new objects after which the log is listed: unread objects may have been deleted."""


@dataclass(slots=True)
class Followed:
    """The progress of a mirror. sequence: the number of the next object. shipped_us: when the last one was uploaded.
    whole: whether nothing was acknowledged after it. announced_by: the object that announced the copy of the manifest.
    damages: what is wrong with damaged or missing objects, by name.
    """

    sequence: int = 1
    epoch: int = 0
    run: str = ""
    shipped_us: int = 0
    position: int = 0
    whole: bool = False
    announced: Announced | None = None
    announced_by: int = 0
    damages: dict[str, str] = field(default_factory=dict)


class Mirror:
    """Brings a directory up to date with a store. Not thread-safe."""

    def __init__(self, store: Store, layout: Layout, *, until_us: int | None = None, durable: bool = False) -> None:
        """until_us: apply only what the store had by then, by the writer's clock. durable: sync the files.

        The directory exists, and has neither a manifest nor a log. Sends no request to the store yet.
        """
        self._store, self._layout, self._until_us, self._durable = store, layout, until_us, durable
        self._empty = 0
        self._held: dict[int, LogObject] = {}
        self.at = Followed()

    def begin(self) -> None:
        """Bring the directory up to date for the first time.

        Raises CatalogNotFoundError, StoreError, OSError, UnknownVersionError.
        """
        for directory in (self._layout.log, self._layout.segments):
            make_directory(directory)
        if not self._begin_from_copy() and not self._begin_anew():
            raise CatalogNotFoundError(
                "no catalog found"
                if self._until_us is None
                else "the catalog did not exist at that time, or its history does not go back that far",
                path=self._store.address,
            )
        self._read_on()

    def poll(self) -> bool:
        """Apply what is new in the store. Return whether the manifest was replaced. Raises StoreError, OSError."""
        before, sequence = self.at.announced, self.at.sequence
        self._read_on()
        self._empty = self._empty + 1 if self.at.sequence == sequence else 0
        if self._empty >= EMPTY_POLLS:
            self._empty = 0
            self.read_over_gaps()
        return self.at.announced is not before

    # ------------------------------------------------------------ where to begin

    def _begin_from_copy(self) -> bool:
        """Begin from the newest copy of the manifest that is announced and undamaged; False if there is none."""
        found = ((manifest_sequence(each.name), each.name) for each in self._store.list(MANIFESTS))
        copies = sorted((sequence, name) for sequence, name in found if sequence is not None)
        if self._until_us is not None:
            copies = copies[: self._first_after(copies, self._until_us)]
        if any(self._take_newest_from(sequence) for sequence, _ in reversed(copies)):
            return True
        return self._take_newest_from(1)  # a new catalog, whose copies are not listed yet

    def _begin_anew(self) -> bool:
        """The same if the listed copies are gone: deleted since then, or long before, as listings may be late."""
        before = None
        while (listed := {each.name for each in self._store.list(MANIFESTS)}) != before:
            before = listed
            time.sleep(LISTED_S)
            if self._begin_from_copy():
                return True
        return False

    def _take_newest_from(self, sequence: int, behind: int = 0) -> bool:
        """Begin from the newest readable copy that objects from `sequence` on announce; False if there is none.
        behind: the copy must need no object before this one.
        """
        for announced, by in reversed(self._announced_from(sequence)):
            if (
                announced.sequence >= behind
                and announced.name not in self.at.damages
                and self._take_manifest(announced, by)
            ):
                self.at.sequence = announced.sequence
                self.at.position = max(self.at.position, announced.position)  # the first object may begin in a frame
                return True
        return False

    def _first_after(self, copies: list[tuple[int, str]], until_us: int) -> int:
        """The place of the first copy that was uploaded after `until_us`; each comparison costs a request."""

        def shipped_us(place: int) -> int:
            for sequence, _ in copies[place:]:
                try:
                    return read_object(self._store, sequence).shipped_us
                except (ObjectMissingError, CorruptLogError):
                    continue
            return 1 << 62

        return bisect_right(range(len(copies)), until_us, key=shipped_us)

    def _announced_from(self, sequence: int) -> list[tuple[Announced, int]]:
        """The copies that objects from `sequence` on announce, up to the end or a gap, with these objects' numbers."""
        found: list[tuple[Announced, int]] = []
        held = 0
        for one in self._objects_from(sequence, FIRST_AT_ONCE):
            if isinstance(one, CorruptLogError):
                continue
            if self._is_later(one):
                break
            found += [] if one.manifest is None else [(one.manifest, one.sequence)]
            held += sum(len(data) for _, data in one.pieces)
            if held <= HELD_BYTES:
                self._held[one.sequence] = one
        return found

    def _objects_from(self, sequence: int, at_once: int = 1) -> Iterator[LogObject | CorruptLogError]:
        """Yield objects of the log, up to the end or a gap; an error in the place of each damaged one.

        If there are many, several are requested in parallel: with a distant store, single requests might be slower than
        the writer's uploads and never reach the end.
        """
        while True:
            while sequence in self._held:
                yield self._held.pop(sequence)
                sequence, at_once = sequence + 1, 1
            ahead = min((number for number in self._held if number > sequence), default=None)
            if ahead is not None:  # so those before it exist
                at_once = min(READ_AT_ONCE, ahead - sequence)
            numbers = range(sequence, sequence + at_once)
            if at_once == 1:
                found = [self._look_at(sequence)]
            else:
                with ThreadPoolExecutor(at_once, "aggregator-read") as threads:
                    found = list(threads.map(self._look_at, numbers))
            for one in found:
                if one is None:
                    return
                yield one
            sequence, at_once = sequence + at_once, min(READ_AT_ONCE, 2 * at_once)

    def _look_at(self, sequence: int) -> LogObject | CorruptLogError | None:
        try:
            return read_object(self._store, sequence)
        except ObjectMissingError:
            return None
        except CorruptLogError as error:
            return error

    def _is_later(self, one: LogObject) -> bool:
        return self._until_us is not None and one.shipped_us > self._until_us

    # ------------------------------------------------------------ applying

    def _read_on(self) -> None:
        for found in self._objects_from(self.at.sequence):
            if isinstance(found, CorruptLogError):
                self._report(log_name(self.at.sequence), found.message)
                self.at.sequence += 1
            elif self._is_later(found):
                break
            else:
                self._take(found)
        self._held.clear()

    def read_over_gaps(self) -> None:
        """Continue after missing objects, and report them: somebody may have deleted them."""
        while self._following():
            before = self.at.sequence
            self._read_on()
            if self.at.sequence == before and not self._read_over_gap():
                return

    def _following(self) -> list[int]:
        """The numbers of the objects of the log after the next one."""
        listed = self._store.list(LOG, after=log_name(self.at.sequence))
        return [each for each in (log_sequence(one.name) for one in listed) if each is not None]

    def _read_over_gap(self) -> bool:
        """Continue after a missing object that has later ones: it is no longer needed, or somebody deleted it. Return
        whether anything was applied.
        """
        before = self.at.sequence
        if self._until_us is None and self._begin_from_copy_behind():
            return True
        following = min(self._following())
        self.at.sequence = following
        self._read_on()
        if self.at.sequence == following:  # it was uploaded after `until_us`
            self.at.sequence = before
            return False
        for sequence in range(before, following):
            self._report(log_name(sequence), MISSING)
        return True

    def _begin_from_copy_behind(self) -> bool:
        """Begin from a newer copy that needs none of the missing objects."""
        found = (manifest_sequence(each.name) for each in self._store.list(MANIFESTS))
        later = sorted((one for one in found if one is not None and one > self.at.sequence), reverse=True)
        return any(self._take_newest_from(sequence, self.at.sequence + 1) for sequence in later)

    def _take(self, one: LogObject) -> None:
        at = self.at
        is_fence = one.run != at.run and not one.pieces and one.manifest is None
        if is_fence and one.end < at.position:  # the frame after that is incomplete
            write_at(self._layout.log, one.end, b"", durable=self._durable)
            at.position = one.end
        for position, data in one.pieces:
            if position + len(data) > at.position:
                skipped = max(0, at.position - position)
                write_at(self._layout.log, position + skipped, data[skipped:], durable=self._durable)
                at.position = position + len(data)
        copy, known = one.manifest, at.announced
        if copy is not None and one.sequence > at.announced_by and (known is None or copy.change >= known.change):
            self._take_manifest(copy, one.sequence)
        at.sequence, at.epoch, at.run = one.sequence + 1, one.epoch, one.run
        at.shipped_us, at.whole = one.shipped_us, one.whole
        at.position = max(at.position, one.end)

    def _take_manifest(self, announced: Announced, by: int) -> bool:
        """Replace the manifest with a copy; False if that is damaged or missing. by: the object that announced it."""
        try:
            image = read_again(lambda: self._image(announced))
        except ObjectMissingError:
            self._report(announced.name, MISSING)
            return False
        except CorruptManifestError as error:
            self._report(announced.name, error.message)
            return False
        self._replace_manifest(image)
        self.at.announced, self.at.announced_by = announced, by
        drop_before(self._layout.log, announced.position)
        return True

    def _image(self, announced: Announced) -> bytes:
        stored = self._store.get(announced.name)
        if f"{checksum64(stored):016x}" != announced.checksum:
            raise CorruptManifestError("its checksum does not match")
        return unpacked(stored)

    def _replace_manifest(self, image: bytes) -> None:
        if self._durable:
            with replaced(self._layout.manifest) as file:
                file.write(image)
            return
        partial = self._layout.manifest.with_suffix(".new")
        partial.write_bytes(image)
        partial.replace(self._layout.manifest)

    def _report(self, name: str, message: str) -> None:
        if self.at.damages.get(name) != message:
            logger.warning("%s: %s", self._store.path_of(name), message)
            self.at.damages[name] = message


def checked_download(store: Store, name: str, path: Path, checksum: int, on_bytes: Callable[[int], None]) -> str:
    """Download an object into a synced file, which appears whole. Return what is wrong with the object, "" if nothing.

    Raises StoreError, OSError.
    """

    def download() -> None:
        hasher = hasher64()
        with replaced(path) as file:
            for part in store.stream(name):
                hasher.update(part)
                file.write(part)
                on_bytes(len(part))
            if hasher.intdigest() != checksum:
                raise CorruptManifestError("its checksum does not match")

    make_directory(path.parent)
    try:
        read_again(download)
    except ObjectMissingError:
        return MISSING
    except CorruptManifestError as error:
        return error.message
    return ""
