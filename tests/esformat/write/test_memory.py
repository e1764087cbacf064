"""The division of a memory budget."""

from __future__ import annotations

import pytest

import esformat
from esformat.errors import UsageError
from esformat.write.memory import DEFAULT_MEMORY, Budget


def test_shares_fit():
    """Three steps, tasks in progress, a chunk of each run and the posting lists fit into the budget together."""
    assert Budget.of(None).memory == DEFAULT_MEMORY
    for memory in ("16MiB", "256MiB", "1GiB", "64GiB"):
        budget = Budget.of(memory)
        assert budget.held < budget.memory
        assert 3 * budget.step + budget.flight + 128 * budget.chunk + budget.postings <= budget.memory


@pytest.mark.parametrize("memory", [0, -5, "1023KiB"], ids=str)
def test_too_little(tmp_path, memory):
    """Too small a budget is refused before any file is created."""
    with pytest.raises(UsageError, match=r"is too little; give at least 1 MiB|memory: invalid size -5"):
        esformat.create(tmp_path / "a.esdb", memory=memory)
    assert list(tmp_path.iterdir()) == []
