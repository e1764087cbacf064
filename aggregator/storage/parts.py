"""`Storage`: the open files and state of a catalog's writer, as one value."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from aggregator.base.memory_budget import Budget
from aggregator.policy import Durability, Limits, Tuning
from aggregator.storage.files.disk_reserve import DiskReserve
from aggregator.storage.files.layout import Layout
from aggregator.storage.files.pins import Pins
from aggregator.storage.log.log import Log
from aggregator.storage.manifest import Manifest
from aggregator.storage.segments.pool import SegmentPool
from aggregator.storage.state.state import CatalogState
from aggregator.storage.store.objects import Objects


@dataclass(frozen=True, slots=True, eq=False)
class Storage:
    """The files of a catalog, its in-memory state, and its limits. clock: the time in µs."""

    layout: Layout
    state: CatalogState
    manifest: Manifest
    log: Log
    pins: Pins
    pool: SegmentPool
    objects: Objects
    reserve: DiskReserve
    budget: Budget
    limits: Limits
    durability: Durability
    tuning: Tuning
    clock: Callable[[], int]
