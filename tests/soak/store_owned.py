"""Objects in a store that belong to nothing, determined from the objects alone, as in `spec/store.md`."""

from __future__ import annotations

import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from aggregator.storage.store.client import Store
from aggregator.storage.store.shipped import (
    CATALOG,
    LEASE,
    LOG,
    MANIFESTS,
    LogObject,
    log_name,
    log_sequence,
    quarantined_object,
    unpacked,
)


def ownerless(store: Store) -> list[str]:
    """Objects that no announced manifest copy names or needs, in a closed catalog without a history.

    Raises an error if an object is damaged.
    """
    listed = {each.name for each in store.list()}
    log = {log_sequence(name): name for name in listed if name.startswith(f"{LOG}/")}
    objects = [LogObject.decode(store.get(name), sequence) for sequence, name in sorted(log.items())]
    announced = [each.manifest for each in objects if each.manifest is not None and each.manifest.name in listed]
    needed = min((each.sequence for each in announced), default=0)
    owned = {CATALOG, LEASE, *(each.name for each in announced)}
    owned |= {log_name(sequence) for sequence in log if sequence >= needed}
    for each in announced:
        owned.update(_named(unpacked(store.get(each.name))))
    return sorted(listed - owned)


def missing(store: Store) -> list[str]:
    """Objects that the newest announced manifest copy names and that are missing."""
    listed = {each.name for each in store.list()}
    newest = max(name for name in listed if name.startswith(f"{MANIFESTS}/"))
    return sorted(set(_named(unpacked(store.get(newest)))) - listed)


def _named(image: bytes) -> Iterator[str]:
    """Objects that a manifest copy names."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "manifest")
        path.write_bytes(image)
        with closing(sqlite3.connect(path)) as manifest:
            for number, checksum in manifest.execute("SELECT number, checksum FROM segments"):
                yield f"segments/{number // 1000:06d}/{number:012d}-{int.from_bytes(checksum, 'little'):016x}.esdb"
            for number, checksum in manifest.execute("SELECT number, checksum FROM quarantine"):
                yield quarantined_object(number, int.from_bytes(checksum, "little"))
