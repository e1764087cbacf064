"""Opening creates many long-lived objects: the garbage collector is off meanwhile and restored afterwards."""

from __future__ import annotations

import gc

import pytest

import aggregator
from aggregator.base.gc_pause import gc_paused


@pytest.fixture
def looks():
    """One entry per garbage collection since the fixture began."""
    seen = []

    def note(phase, _):
        if phase == "start":
            seen.append(1)

    before = gc.get_threshold()
    gc.callbacks.append(note)
    gc.set_threshold(20)  # containers
    yield seen
    gc.set_threshold(*before)
    gc.callbacks.remove(note)


@pytest.mark.parametrize("read_only", [False, True])
def test_opening(tmp_path, looks, read_only):
    with aggregator.open(tmp_path / "data") as catalog:
        for number in range(30):
            catalog.create_topic(f"t{number}")
    gc.collect()
    looks.clear()
    catalog = aggregator.open(tmp_path / "data", read_only=read_only)
    found = len(looks)
    catalog.close()
    assert found < 10  # before and after opening; 56 and 29 if collection stays on
    assert gc.isenabled()


def test_whoever_turned_it_off_finds_it_so():
    gc.disable()
    try:
        with gc_paused():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
    with pytest.raises(ZeroDivisionError), gc_paused():
        assert 1 // gc.isenabled()
    assert gc.isenabled()
