"""A few of the cases of damaged files; `python -m tests.soak.salvage` runs 10,000."""

from __future__ import annotations

import effort

from tests.soak.salvage import run


def test_damaged_files():
    """Every damage is detected, no answer is wrong, and repair saves intact events and counts the rest."""
    cases = 60 if effort.ALL else 8
    outcome = run(cases)
    assert outcome.ok, outcome
    assert outcome.exact > cases // 3
