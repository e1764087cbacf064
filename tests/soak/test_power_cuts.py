"""A few of the power cuts; `python -m tests.soak.power_cuts` makes many."""

from __future__ import annotations

import pytest
from effort import ALL

from tests.soak import power_cuts, tracing


@pytest.mark.slow
@pytest.mark.skipif(not tracing.POSSIBLE, reason="needs Linux on x86-64")
def test_power_cuts(monkeypatch):
    """Copies of the disk made during a run have everything acknowledged by then."""
    if reason := power_cuts.why_not():
        pytest.skip(reason)
    monkeypatch.setattr(power_cuts, "PAUSE_S", (0.1, 0.5))
    monkeypatch.setattr(power_cuts.workload, "OPEN_SECONDS", 30.0)
    outcome = power_cuts.run(8 if ALL else 4, seed=1, seconds=20, tell=print)
    assert outcome.wrong == []
    assert outcome.acknowledged > 0
    assert outcome.unsynced > 0
