"""What processes of `tests.soak.store` do: write to a catalog with a store, take it over, restore it, read it."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import time
from collections.abc import Callable, Mapping
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, TypeVar

import aggregator
from aggregator.engine.shipping import shipper
from aggregator.engine.standby import Standby
from aggregator.engine.writer import now_us
from aggregator.errors import StoreError
from aggregator.policy import Tuning
from aggregator.storage.files.layout import Layout
from aggregator.storage.store.client import Store
from esformat.parts import hide_pandas

_T = TypeVar("_T")
ROWS = 3
LEASE = "2s"
PARTITIONS = ("0", "one")
PAUSE_S = 0.02
_TUNING = Tuning(log_file_bytes=1 << 14, tick_s=0.2, fan_in=3)
shipper.OBJECT_BYTES = 5_000  # as with the real size, some frames span several objects
FILLED = (0, 0, 0, 30, 8_000)
"""Filler bytes of each event of a batch, besides its distinct payload."""


def payloads(client: str, number: int) -> list[str]:
    """The payloads of a batch."""
    return [f"{client}-{number}-{row}" for row in range(ROWS)]


class Notes:
    """A client's notes, line by line, which are read after it was killed."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("a")

    def note(self, *words: object) -> None:
        """Append these words to the notes, with the time."""
        self._file.write(" ".join(map(str, (f"{time.time():.3f}", *words))) + "\n")
        self._file.flush()


def _begin(environment: Mapping[str, str]) -> None:
    hide_pandas()
    os.environ.update(environment)


def write(
    root: str, address: str, notes: str, client: str, batches: int, durability: str, environment: Mapping[str, str],
    *, off_s: float = 0.0,
) -> None:  # fmt: skip
    """Append until this many batches are acknowledged or another writer takes over. off_s: clock error in seconds."""
    _begin(environment)
    _set_clock(off_s)
    told = Notes(Path(notes))
    with contextlib.suppress(aggregator.FencedError), _patiently(lambda: aggregator.open(
        root, store=address, durability=durability, ship_interval="100ms", lease=LEASE, tuning=_TUNING
    )) as catalog:  # fmt: skip
        topic = catalog.topic("t") if "t" in catalog.topics() else catalog.create_topic("t")
        told.note("opened")
        try:
            _append(catalog, topic, told, client, batches)
        except aggregator.FencedError:
            told.note("fenced")
            raise
        told.note("done")


def _append(catalog: aggregator.Catalog, topic: aggregator.Topic, told: Notes, client: str, batches: int) -> None:
    for number in count():
        if number == batches:
            return
        rows = [
            {
                "space": f"s{number % 5}", "timestamp": number, "payload": payload,
                "filling": secrets.token_bytes(FILLED[number % len(FILLED)]),
            }
            for payload in payloads(client, number)
        ]  # fmt: skip
        partition = PARTITIONS[number % 2]
        told.note("tried", number)
        receipt = _taken(partial(topic.append, rows, partition, producer=client, sequence=number))
        told.note("acknowledged", number, partition, receipt.first)
        if batches < 0:  # it continues until fenced, in parallel with other points
            time.sleep(PAUSE_S)
        if number % 6 == 5:
            catalog.seal("t")
        if number % 9 == 8:
            space = f"erased-{client}-{number}"
            _taken(partial(topic.append, [{"space": space, "timestamp": 0, "payload": space}]))
            _patiently(lambda space=space: topic.erase(space))  # type: ignore[misc]
            told.note("erased", space)


def _taken(append: Callable[[], aggregator.Receipt]) -> aggregator.Receipt:
    """Append again while the store's failure causes refusals."""
    while True:
        try:
            return append()
        except aggregator.OverloadedError:
            time.sleep(0.05)


def _set_clock(off_s: float) -> None:
    real, offset = time.time_ns, int(off_s * 1e9)
    time.time_ns = lambda: real() + offset


def take_over(
    root: str, address: str, notes: str, client: str, batches: int, durability: str, environment: Mapping[str, str],
    *, off_s: float = 0.0,
) -> None:  # fmt: skip
    """Follow until the lease may be taken, take it, and write."""
    _begin(environment)
    told = Notes(Path(notes))
    while True:
        standby = _patiently(lambda: Standby(Store(address), Layout(Path(root)), now_us))
        told.note("following")
        standby.may_take.wait()
        told.note("may take")
        if _patiently(standby.take_over):
            break
    told.note("took over")
    write(root, address, notes, client, batches, durability, environment, off_s=off_s)


def settle(root: str, address: str, done: str, environment: Mapping[str, str]) -> None:
    """Let the catalog in its directory finish its work, without a history, and let `gc` delete ownerless objects."""
    _begin(environment)
    options = {"store": address, "durability": "store", "ship_interval": "100ms", "lease": LEASE, "history": "0s"}
    with _patiently(lambda: aggregator.open(root, tuning=_TUNING, **options)) as catalog:
        for topic in catalog.topics():
            catalog.seal(topic)
        end = time.monotonic() + 60
        while catalog.store.status()["leaving"]["segments"] and time.monotonic() < end:
            time.sleep(0.1)
        left = catalog.store.status()["leaving"]["segments"]
        for _ in range(2):  # the newest two manifest copies stay
            _patiently(catalog._backend.shipper.publish)
        problems = told_problems(catalog)
        gone = _patiently(lambda: catalog.store.gc(grace="0s")).names
    Path(done).write_text(json.dumps({"leaving": left, "gone": gone, "problems": problems}))


def told_problems(catalog: aggregator.Catalog) -> list[str]:
    """The problems that the catalog lists; nothing is damaged here."""
    return [f"{each.subject}: {each.message}" for each in catalog.problems()]


def _patiently(ask: Callable[[], _T]) -> _T:
    """Retry what needs the store, as servers and users do."""
    while True:
        try:
            return ask()
        except StoreError:
            time.sleep(0.2)


def restore(address: str, root: str, environment: Mapping[str, str]) -> None:
    """Restore into a directory, or continue there."""
    _begin(environment)
    _patiently(lambda: aggregator.restore(address, root))


def read(place: str, answer: str, environment: Mapping[str, str]) -> None:
    """Write every event of a catalog, in a directory or a store, to a file."""
    _begin(environment)
    found: dict[str, Any] = {"rows": [], "problems": []}
    with aggregator.open(place, read_only="://" in place) as catalog:
        if "t" in catalog.topics():
            for partition in catalog.topic("t").partitions:
                table = catalog.topic("t").read(partition).to_table()
                if len(table):
                    columns = [table[name].to_pylist() for name in ("record_index", "payload", "space")]
                    found["rows"] += [[partition, *row] for row in zip(*columns, strict=True)]
        found["problems"] = told_problems(catalog)
    Path(answer).write_text(json.dumps(found))
