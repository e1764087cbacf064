"""In ESDB, adding to a space that was flushed earlier broke the whole file when it was finished."""

from __future__ import annotations

import pyarrow as pa
import pytest
from small_pieces import Pieces, cut_small

import esformat


@pytest.mark.parametrize("flush", [1, 7, 16384])
def test_spaces_in_any_order(tmp_path, flush):
    """Events may be added to any space at any time, by both methods."""
    path = tmp_path / "a.esdb"
    expected = {"a": [], "b": [], "c": []}
    with cut_small(Pieces(flush_events=flush)), esformat.create(path) as writer:
        for n in range(60):
            space = "abc"[n * 7 % 3 if n % 5 else 0]
            if n % 4:
                writer.add(space, b"%d" % n, timestamp=60 - n)
            else:
                writer.add_table(pa.table({"space": [space], "timestamp": [60 - n], "data": [b"%d" % n]}))
            expected[space].insert(0, b"%d" % n)
    with esformat.open(path) as segment:
        assert {space: [event.data for event in segment[space].scan()] for space in segment.spaces()} == expected
        assert segment.num_events == 60
