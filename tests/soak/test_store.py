"""A few points of the campaign over catalogs with a store."""

from __future__ import annotations

import pytest

from tests.soak.store import run


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["same", "restore", "stop"])
def test_kills_and_take_overs(mode: str, unmeasured: None):
    """Nothing that was acknowledged is lost or doubled, and nothing erased comes back."""
    outcome = run(1, seed=7, modes=(mode,))
    assert outcome.wrong == []
    assert outcome.acknowledged
