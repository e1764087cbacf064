"""Describes segments that only a catalog's store has, for rebuilding the manifest."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass
from pathlib import Path

from aggregator.errors import CorruptManifestError, UnknownVersionError
from aggregator.model import StoredSegment
from aggregator.policy import StoreSettings
from aggregator.storage.files.checksum import hasher64
from aggregator.storage.files.layout import Layout, make_directory
from aggregator.storage.files.staging import staging
from aggregator.storage.manifest.backup import read_facts
from aggregator.storage.segments.file import FoundSegment, describe_segment
from aggregator.storage.store.objects import FOLDER, Objects, object_name, parse_name
from esformat import CorruptSegmentError, EsdbError


@dataclass(frozen=True, slots=True)
class FoundObject:
    """An object with its own description, or the reason why it cannot be used."""

    stored: StoredSegment
    found: FoundSegment | EsdbError


def known_store(layout: Layout, address: str | None) -> StoreSettings | None:
    """The settings of a catalog's store: from the manifest backup, or `address` if that is set; None if unknown."""
    settings = None
    with contextlib.suppress(OSError, CorruptManifestError, UnknownVersionError):  # the rebuild reports it
        settings = read_facts(layout.facts)[0].settings.store
    if address is not None and (settings is None or settings.address != address.rstrip("/")):
        settings = StoreSettings(address.rstrip("/"))
    return settings


def listed(objects: Objects) -> dict[int, StoredSegment]:
    """The segments that the store has, by number; the newest if one occurs twice. Raises StoreError."""
    newest: dict[int, int] = {}
    there: dict[int, StoredSegment] = {}
    for found in objects.store.list(FOLDER):
        named = parse_name(found.name)
        if named is not None and found.modified_us >= newest.get(named[0], 0):
            newest[named[0]] = found.modified_us
            there[named[0]] = StoredSegment(*named, found.size_bytes, local=False)
    return there


def describe_objects(
    objects: Objects,
    layout: Layout,
    there: dict[int, StoredSegment],
    local: Container[int],
    progress: Callable[[int], None],
) -> Iterator[FoundObject]:
    """Read every object whose segment is not in `local`, one after the other. progress: called with the bytes of each.

    Raises StoreError, OSError.
    """
    make_directory(staging(layout))
    path = staging(layout) / "object.esdb"
    try:
        for number, stored in sorted(there.items()):
            if number not in local:
                yield FoundObject(stored, _described(objects, stored, path))
                progress(stored.size_bytes)
    finally:
        path.unlink(missing_ok=True)


def _described(objects: Objects, stored: StoredSegment, path: Path) -> FoundSegment | EsdbError:
    hasher = hasher64()
    with path.open("wb") as file:
        for part in objects.store.stream(object_name(stored)):
            hasher.update(part)
            file.write(part)
    if hasher.intdigest() != stored.checksum:
        return CorruptSegmentError("its checksum does not match the one in its name")
    try:
        return describe_segment(path, stored.number)
    except CorruptSegmentError as error:
        return error
