"""How read windows share memory."""

from __future__ import annotations

from contextlib import ExitStack

from aggregator.base.window_budget import LEAST_BYTES, WINDOWS_BYTES, WindowBudget


def test_windows_that_are_merged_share_alike():
    """Four merged windows are equal and all fit; a single window is larger, and a fifth scan still gets its own."""
    budget = WindowBudget()
    with budget.window() as alone:
        assert alone.bytes == WINDOWS_BYTES // 2
    with ExitStack() as stack:
        merged = [stack.enter_context(budget.window(merged=4)).bytes for _ in range(4)]
        assert len(set(merged)) == 1
        assert LEAST_BYTES < budget.held_bytes < WINDOWS_BYTES
        assert stack.enter_context(budget.window()).bytes > LEAST_BYTES
    assert budget.held_bytes == 0


def test_the_least_is_given_where_nothing_is_left():
    """A window gets the minimum when the budget is used up, even among very many merged windows."""
    budget = WindowBudget()
    with ExitStack() as stack:
        sizes = [stack.enter_context(budget.window(merged=1000)).bytes for _ in range(40)]
        assert set(sizes) == {LEAST_BYTES}
        assert stack.enter_context(budget.window(1024)).bytes == 1024
