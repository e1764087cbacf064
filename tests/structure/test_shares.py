"""Tests are distributed to processes: each once, a group to one process, and none is lost."""

from __future__ import annotations

import random
from collections import Counter
from types import SimpleNamespace

import pytest
from shares import ONE_BY_ONE, TEN, Shares, shares_of

NAMES = [f"tests/test_a.py::test_{n}" + "@spark" * (n % 7 == 0) + "@sources" * (n % 50 == 1) for n in range(1000)]


class Process:
    """A process that runs its tests in order."""

    def __init__(self) -> None:
        self.gateway = SimpleNamespace(id="one of three")
        self.waiting: list[int] = []
        self.shutting_down = False

    def send_runtest_some(self, tests: list[int]) -> None:
        self.waiting += tests

    def shutdown(self) -> None:
        self.shutting_down = True


@pytest.fixture
def shares() -> Shares:
    """The shares of all these tests for three processes that have found the same ones."""
    option = SimpleNamespace(loadscopereorder=True, debug=False)
    shares = Shares(SimpleNamespace(getvalue=lambda _: ["3*popen"], option=option))
    for process in [Process() for _ in range(3)]:
        shares.add_node(process)
        shares.add_node_collection(process, NAMES)
    shares.schedule()
    return shares


def run(shares: Shares, ran: dict[str, Process], most: int = len(NAMES)) -> None:
    """Let processes run up to `most` tests in random order of speed."""
    chance = random.Random(1)
    while (busy := [process for process in shares.nodes if process.waiting]) and most:
        process, most = chance.choice(busy), most - 1
        at = process.waiting.pop(0)
        assert NAMES[at] not in ran
        ran[NAMES[at]] = process
        shares.mark_test_complete(process, at)


def test_each_test_runs_once(shares):
    """Each test runs once, a group in one process, and all processes finish."""
    ran: dict[str, Process] = {}
    run(shares, ran)
    assert sorted(ran) == sorted(NAMES)
    assert len({process for name, process in ran.items() if name.endswith("@spark")}) == 1
    assert shares.tests_finished
    assert not shares.has_pending
    assert all(process.shutting_down for process in shares.nodes)


def test_a_process_that_ends_is_named_with_its_test(shares):
    """If a process dies, its current test is named, and others run what it had not run."""
    ran: dict[str, Process] = {}
    run(shares, ran, 500)
    dead = next(process for process in shares.nodes if process.waiting)
    at_work = NAMES[dead.waiting[0]]
    assert shares.remove_node(dead) == at_work
    run(shares, ran)
    assert sorted(ran) == sorted(NAMES)


def test_ten_at_a_time_but_for_the_last():
    """Most tests are handed out in tens, which costs little; the last ones singly, so that all processes end alike."""
    names = [f"test_{n}" for n in range(ONE_BY_ONE + 95)] + ["grouped@one"]
    sizes = Counter(shares_of(names, {name: name.rpartition("@")[2] for name in names}).values())
    assert sorted(sizes.values(), reverse=True) == [TEN] * 9 + [5] + [1] * (ONE_BY_ONE + 1)
    assert sizes["one"] == 1
