"""In ESDB a name that contains `:` collides with another: `a:b` + `c` is `a` + `b:c`."""

from __future__ import annotations

import itertools

PARTS = ["", "a", "b", "c", ":", "a:b", "b:c", "a:", ":b", "a\0b", "\0", "a/b", "a,b", "a b", "a\nb", "%3a"]


def test_space_and_grouping_are_two_things(write):
    """Every pair of space and grouping is distinct, and so is every pair of index name and value."""
    pairs = list(itertools.product(PARTS, PARTS))
    rows = [
        (space, b"%d" % n, 1, grouping, {"t:1": space, "t": f"1:{grouping}"})
        for n, (space, grouping) in enumerate(pairs)
    ]
    segment = write(rows, indexes=["t:1", "t"])
    assert (segment.num_spaces, segment.info()["groupings"]) == (len(PARTS), len(pairs))
    for n, (space, grouping) in enumerate(pairs):
        (event,) = segment[space].scan(grouping=grouping)
        assert (event.space, event.grouping, event.data) == (space, grouping, b"%d" % n)
    for part in PARTS:
        assert {event.space for event in segment.scan_index("t:1", part)} == {part}
        assert {event.grouping for event in segment.scan_index("t", f"1:{part}")} == {part}
