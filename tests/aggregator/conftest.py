"""What every test of catalogs may use."""

from __future__ import annotations

import pytest

from aggregator.engine.upkeep.upkeep import Housekeeping


@pytest.fixture
def quiet(monkeypatch):
    """Nothing is removed, merged or erased by itself: files can be copied as a crash would leave them."""
    monkeypatch.setattr(Housekeeping, "chores", lambda _: ())
