"""The distribution of tests to the processes of pytest-xdist: a group stays together, other tests go in tens."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from xdist.scheduler import LoadGroupScheduling
from xdist.workermanage import WorkerController

TEN = 10
ONE_BY_ONE = 300
"""The number of last tests handed out singly, so that all processes end at about the same time."""


def shares_of(names: Sequence[str], group_of: dict[str, str]) -> dict[str, str]:
    """The share of each test: its group or, for tests without one, ten consecutive tests."""
    alone = [name for name in names if group_of[name] == name]
    many = max(0, len(alone) - ONE_BY_ONE)
    return group_of | {name: f"ten {at // TEN}" for at, name in enumerate(alone[:many])}


class Shares(LoadGroupScheduling):
    """xdist's scheduler without the parts that take quadratic time in the number of tests.

    The original hands out tests singly, searches each in the list of all, and after each counts all that it handed out.
    """

    def schedule(self) -> None:
        """Give each process its first share, and from the second call on more to processes with little left."""
        if self.collection is None:
            names = next(iter(self.registered_collections.values()))
            group_of = {name: super(Shares, self)._split_scope(name) for name in names}
            self._shares = shares_of(names, group_of)
            self._places = {name: at for at, name in enumerate(names)}
        super().schedule()

    def mark_test_complete(self, node: WorkerController, item_index: int, duration: float = 0) -> None:
        """Record that a test has run, and drop a share whose tests have all run."""
        name = self.registered_collections[node][item_index]
        shares, share = self.assigned_work[node], self._shares[name]
        shares[share][name] = True
        if all(shares[share].values()):
            del shares[share]
        self._reschedule(node)

    def _split_scope(self, nodeid: str) -> str:
        return self._shares[nodeid]

    def _assign_work_unit(self, node: WorkerController) -> None:
        share, tests = self.workqueue.popitem(last=False)
        self.assigned_work[node][share] = tests
        node.send_runtest_some([self._places[name] for name, done in tests.items() if not done])


@pytest.hookimpl(optionalhook=True)  # not called without xdist
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> Shares | None:
    """Use these shares for `--dist loadgroup`."""
    return Shares(config, log) if config.getvalue("dist") == "loadgroup" else None
