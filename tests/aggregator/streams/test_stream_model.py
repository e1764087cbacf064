"""Streams compared with plain lists over kills: a slice of `python -m tests.soak.streams`."""

from __future__ import annotations

from effort import ALL

from tests.soak.streams import run

LIVES = 3 if ALL else 2


def test_streams_equal_lists(tmp_path):
    """After killing one process after another over one catalog, no record is lost, duplicated or out of order."""
    for longest_s in (0.8, 8.0):  # the second attempt is for a machine so busy that a life ends before it writes
        root = tmp_path / str(longest_s)
        root.mkdir()
        model = run(root, 11, lives=LIVES, longest_s=longest_s)
        assert model.wrong == []
        assert model.counts["lives"] == LIVES
        if model.counts["records"] > 50:
            break
    assert model.counts["records"] > 50
