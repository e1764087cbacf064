"""A short run of a server under load; `python -m tests.soak.server` takes minutes and measures."""

from __future__ import annotations

from effort import long

from tests.soak.server import overload


@long
def test_overload(tmp_path):
    """Under overload, requests succeed or are refused with a hint, and exactly the successful ones are stored."""
    found = overload(0.7, batch=300, folder=tmp_path)
    assert found["broken"] == []
    assert found["goodput"] > 0.1
    assert found["afterwards"] > 0.1
