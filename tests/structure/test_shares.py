"""Tests are given out to the processes that run them: each once, those of a group to one, and none is lost."""

from __future__ import annotations

import random
from collections import Counter
from types import SimpleNamespace

import pytest
from shares import ONE_BY_ONE, TEN, Shares, shares_of

NAMES = [f"tests/test_a.py::test_{n}" + "@spark" * (n % 7 == 0) + "@sources" * (n % 50 == 1) for n in range(1000)]


class Process:
    """One that runs tests as it is told, in order."""

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
    """Of all these tests, for three processes that have found the same."""
    option = SimpleNamespace(loadscopereorder=True, debug=False)
    shares = Shares(SimpleNamespace(getvalue=lambda _: ["3*popen"], option=option))
    for process in [Process() for _ in range(3)]:
        shares.add_node(process)
        shares.add_node_collection(process, NAMES)
    shares.schedule()
    return shares


def run(shares: Shares, ran: dict[str, Process], most: int = len(NAMES)) -> None:
    """Let processes run so many tests, each as fast as it happens to be."""
    chance = random.Random(1)
    while (busy := [process for process in shares.nodes if process.waiting]) and most:
        process, most = chance.choice(busy), most - 1
        at = process.waiting.pop(0)
        assert NAMES[at] not in ran
        ran[NAMES[at]] = process
        shares.mark_test_complete(process, at)


def test_each_test_runs_once(shares):
    """Those of a group in one process, all processes to the end."""
    ran: dict[str, Process] = {}
    run(shares, ran)
    assert sorted(ran) == sorted(NAMES)
    assert len({process for name, process in ran.items() if name.endswith("@spark")}) == 1
    assert shares.tests_finished
    assert not shares.has_pending
    assert all(process.shutting_down for process in shares.nodes)


def test_a_process_that_ends_is_named_with_its_test(shares):
    """What it had not run is run by others, what it ran is not."""
    ran: dict[str, Process] = {}
    run(shares, ran, 500)
    dead = next(process for process in shares.nodes if process.waiting)
    at_work = NAMES[dead.waiting[0]]
    assert shares.remove_node(dead) == at_work
    run(shares, ran)
    assert sorted(ran) == sorted(NAMES)


def test_ten_at_a_time_but_for_the_last():
    """Long shares cost little, short ones at the end let all processes end together."""
    names = [f"test_{n}" for n in range(ONE_BY_ONE + 95)] + ["grouped@one"]
    sizes = Counter(shares_of(names, {name: name.rpartition("@")[2] for name in names}).values())
    assert sorted(sizes.values(), reverse=True) == [TEN] * 9 + [5] + [1] * (ONE_BY_ONE + 1)
    assert sizes["one"] == 1
