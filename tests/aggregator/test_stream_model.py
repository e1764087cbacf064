"""Streams against plain lists over kills: a slice of `python -m tests.soak.streams`."""

from __future__ import annotations

from tests.soak.streams import run


def test_streams_equal_lists(tmp_path):
    """Killed processes, one after another, over one catalog: nothing is lost, doubled or out of order."""
    model = run(tmp_path, 11, lives=3, longest_s=0.8)
    assert model.wrong == []
    assert model.counts["lives"] == 3
    assert model.counts["records"] > 50
