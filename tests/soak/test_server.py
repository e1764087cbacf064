"""A slice of the long run of a server under load; `python -m tests.soak.server` takes minutes and measures."""

from __future__ import annotations

from tests.soak.server import overload, stalled


def test_overload(tmp_path):
    """Far more than fits: some is done, what is not is refused with a hint, and exactly what was done is stored."""
    found = overload(1.0, batch=500, folder=tmp_path)
    assert found["broken"] == []
    assert found["goodput"] > 0.1
    assert found["afterwards"] > 0.1


def test_stalled_clients():
    """Clients that stall are let go, and healthy ones beside them are all served."""
    found = stalled(40, 1.0, stall_s=1.0)
    assert found["broken"] == []
    assert found["healthy requests"] > 10
    assert found["longest held s"] < 15
