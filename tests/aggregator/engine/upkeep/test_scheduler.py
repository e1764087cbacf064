"""Background work continues whatever fails, and reports failures."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from waiting import until

import aggregator
from aggregator.engine.seal import sealer as sealing_module
from aggregator.engine.seal.sealer import Sealer
from aggregator.engine.upkeep.upkeep import Upkeep
from aggregator.policy import Tuning

WAIT_S = 60


class Failing:
    """Raise an error instead of calling a function, until told to stop."""

    def __init__(self, real, error):
        self.real, self.error, self.calls = real, error, 0

    def __call__(self, *args, **options):
        self.calls += 1
        if self.error is not None:
            raise self.error
        return self.real(*args, **options)


QUICK = Tuning(tick_s=0.05, seal_back_off_s=(0.5, 0.5))


@pytest.fixture
def root(tmp_path):
    return tmp_path / "events"


def test_background_beside_a_seal_that_was_asked_for(root, monkeypatch):
    """A background seal next to a requested one leaves events that arrived meanwhile, because they are not due."""
    write = sealing_module.write_segment
    with aggregator.open(root, tuning=QUICK) as catalog:
        topic = catalog.create_topic("t")
        topic.append([{"space": "a", "timestamp": 1}])
        running = catalog._backend.scheduler._running

        def write_while_more_comes(*arguments, **options):
            topic.append([{"space": "a", "timestamp": 2}])
            until(lambda: running)  # the background task was started and waits for its turn
            return write(*arguments, **options)

        monkeypatch.setattr(sealing_module, "write_segment", write_while_more_comes)
        catalog.seal("t")  # waits for the task that it finds
        until(lambda: all(each.done() for each in running.values()))
        assert (topic.stats()["segments"], topic.stats()["unsealed_rows"]) == (1, 1)


@pytest.mark.parametrize("error", [RuntimeError("can't start new thread"), KeyError("x")])
def test_sealing_that_fails_in_a_way_that_nobody_thought_of(root, monkeypatch, error):
    """An unforeseen error in sealing is reported as trouble and retried; success clears it."""
    write = Failing(sealing_module.write_segment, error)
    monkeypatch.setattr(sealing_module, "write_segment", write)
    with aggregator.open(root, tuning=QUICK) as catalog:
        topic = catalog.create_topic("t", roll={"rows": 1})
        topic.append([{"space": "a", "timestamp": 1}])
        until(lambda: catalog.trouble is not None)
        assert repr(error) in catalog.trouble
        write.error = None
        until(lambda: topic.stats()["segments"] == 1)
        until(lambda: catalog.trouble is None)


def test_looking_for_what_is_due_fails(root, monkeypatch):
    """After an error in finding due work, background sealing resumes."""
    with aggregator.open(root, tuning=QUICK) as catalog:
        topic = catalog.create_topic("t", roll={"rows": 1})
        loads = Failing(catalog._backend.sealer.loads, RuntimeError("dictionary changed size during iteration"))
        monkeypatch.setattr(catalog._backend.sealer, "loads", loads)
        until(lambda: loads.calls > 1)
        assert "dictionary" in catalog.trouble
        loads.error = None
        topic.append([{"space": "a", "timestamp": 1}])
        until(lambda: topic.stats()["segments"] == 1)
        until(lambda: catalog.trouble is None)


def test_a_chore_that_fails_in_a_way_that_nobody_thought_of(root, monkeypatch):
    """An unforeseen error in a chore is reported as trouble, and the chore is retried."""
    retain = Failing(Upkeep._retain_by_itself, ValueError("no such thing"))
    monkeypatch.setattr(Upkeep, "_retain_by_itself", lambda self: retain(self))
    with aggregator.open(root, tuning=QUICK) as catalog:
        until(lambda: catalog.trouble is not None)
        assert "no such thing" in catalog.trouble
        retain.error = None
        until(lambda: catalog.trouble is None)


def test_no_thread_for_any_chore(root, monkeypatch):
    """Chores run once the system has threads again, however often it had none."""
    start = Failing(ThreadPoolExecutor._adjust_thread_count, RuntimeError("can't start new thread"))
    monkeypatch.setattr(ThreadPoolExecutor, "_adjust_thread_count", lambda pool: start(pool))
    with aggregator.open(root, limits={"max_bytes": "64 MiB"}, tuning=QUICK) as catalog:
        chores = catalog._backend.scheduler._chores
        until(lambda: start.calls > len(chores))
        assert "can't start new thread" in catalog.trouble
        start.error = None
        until(lambda: not any(chore.due or chore.running for chore in chores))
        until(lambda: catalog.trouble is None)


def test_partitions_that_come_while_it_is_looked_what_is_due(root, monkeypatch):
    """A partition may be created while the scheduler looks for due work."""
    monkeypatch.setattr(Sealer, "loads", lambda _: [])

    class Growing:
        sealed_index = 0

        @property
        def sealing(self):
            partitions[max(partitions) + 1] = partitions[1]

    with aggregator.open(root, tuning=QUICK) as catalog:
        catalog.create_topic("t").append([{"space": "a", "timestamp": 1}])
        partitions = catalog._backend.state.partitions
        before = dict(partitions)
        partitions[2] = (before[1][0], Growing())
        catalog._backend.scheduler._start_seals()
        assert len(partitions) > 2
        for number in set(partitions) - set(before):
            del partitions[number]
