"""Random steps move segments between disk and store, with concurrent readers, compared with a plain list."""

from __future__ import annotations

import random
import threading
from pathlib import Path

import pytest
from effort import ALL, share_of

import aggregator
from aggregator.policy import Tuning
from aggregator.storage.store.objects import object_name

pytestmark = pytest.mark.usefixtures("unshipped")
STEPS = 60 if ALL else 30
TUNING = Tuning(fan_in=3, tick_s=0.05)


class Readers:
    """Threads that scan until stopped and collect errors. Events only arrive, or leave by whole space."""

    def __init__(self, path: Path, topic: aggregator.Topic) -> None:
        self.wrong: list[object] = []
        self._stop = threading.Event()
        self._path, self._topic = path, topic
        self._threads = [threading.Thread(target=self._read, args=(each,)) for each in (False, True)]
        for thread in self._threads:
            thread.start()

    def _read(self, apart: bool) -> None:
        try:
            if not apart:
                self._look(self._topic)
                return
            with aggregator.open(self._path, read_only=True) as reader:
                self._look(reader.topic("t"))
        except Exception as error:  # noqa: BLE001  it is reported
            self.wrong.append(error)

    def _look(self, topic: aggregator.Topic) -> None:
        while not self._stop.is_set():
            found = topic.scan(columns=["space", "data"]).to_table()
            values = found["data"].to_pylist()
            if len(values) != len(set(values)):
                self.wrong.append(f"{len(values) - len(set(values))} events twice")
            history = [event.data for event in topic.scan(space="s1")]
            if len(history) != len(set(history)):
                self.wrong.append("an event of a history twice")

    def stop(self) -> list[object]:
        self._stop.set()
        for thread in self._threads:
            thread.join()
        return self.wrong


@pytest.mark.parametrize("seed", share_of(range(2), 2))
def test_random_steps(tmp_path, seed):
    """Whatever is moved, merged or erased, each event is there once, and no stray file or object is left."""
    some = random.Random(seed)
    store, data = (tmp_path / "bucket").as_uri(), tmp_path / "data"
    catalog = aggregator.open(data, store=store, keep_local={"bytes": 20_000}, tuning=TUNING)
    topic = catalog.create_topic("t")
    expected: set[bytes] = set()
    readers = Readers(data, topic)
    count = 0
    for _ in range(STEPS):
        step = some.choice(["append", "append", "seal", "push", "evict", "fetch", "compact", "erase", "reopen"])
        if step == "append":
            events = [
                {"space": f"s{n % 7}", "timestamp": count + n, "data": b"%d s%d" % (count + n, n % 7)}
                for n in range(200)
            ]
            topic.append(events)
            expected |= {event["data"] for event in events}  # type: ignore[misc]
            count += 200
        elif step == "seal":
            catalog.seal()
        elif step == "push":
            catalog.store.push()
        elif step == "evict":
            catalog.store.evict(keep_local={"bytes": some.choice([0, 5_000])})
        elif step == "fetch":
            catalog.store.fetch()
        elif step == "compact":
            catalog.compact()
        elif step == "erase" and some.random() < 0.3:
            space = f"s{some.randrange(7)}"
            topic.erase(space)
            expected = {value for value in expected if not value.endswith(space.encode())}
        elif step == "reopen" and some.random() < 0.3:
            assert readers.stop() == []
            catalog.close()
            catalog = aggregator.open(data, tuning=TUNING)
            topic = catalog.topic("t")
            readers = Readers(data, topic)
        assert set(topic.scan(columns=["data"]).to_table()["data"].to_pylist()) == expected
    assert readers.stop() == []
    catalog.compact()
    catalog.store.push()
    catalog._backend.upkeep.removal.sweep()
    catalog._backend.upkeep.tier.remove()
    live = {object_name(info) for info in catalog._backend.upkeep.tier.live()}
    assert (catalog.store.verify(read=True), catalog.problems(), catalog.verify()) == ([], [], [])
    assert {f"segments/{path.parent.name}/{path.name}" for path in (tmp_path / "bucket").rglob("*.esdb")} == live
    assert catalog.store.gc(grace="0s").names == ()
    assert topic.scan().count() == len(expected)
    catalog.close()
