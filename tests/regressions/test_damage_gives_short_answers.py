"""In ESDB truncated or damaged blocks shortened results without an error."""

from __future__ import annotations

from pathlib import Path

import pytest
from effort import share_of
from event_model import event_facts
from small_pieces import Pieces, cut_small

import esformat

REFUSED = (esformat.CorruptSegmentError, esformat.UnsupportedVersionError)


@pytest.fixture(scope="module")
def stored(tmp_path_factory) -> bytes:
    """A file of many small blocks of every kind."""
    path = tmp_path_factory.mktemp("damage") / "a.esdb"
    pieces = Pieces(block_rows=4, leaf_blocks=2, chunk_entries=3, page_values=2, opening_root_bytes=0)
    with cut_small(pieces), esformat.create(path, indexes=["type"]) as writer:
        for n in range(14):
            writer.add(
                f"s{n % 2}",
                b"payload %d" % n,
                timestamp=n,
                grouping="g" * (n % 3 > 1),
                indexes={"type": f"t{n % 3}"},
            )
    return Path(path).read_bytes()


def answers(content: bytes) -> list:
    """The results of all queries of a file, by events and columns."""
    with esformat.open(esformat.BytesSource(content)) as segment:
        found = [[event_facts(event) for event in segment.scan()], segment.scan(reverse=True).to_table().to_pylist()]
        for space in segment.spaces():
            found.append([event_facts(event) for event in segment[space].scan(grouping="g")])
            found.append([event_facts(event) for event in segment[space].scan()])
        for value, count in segment.index_values("type").items():
            found += [count, [event_facts(event) for event in segment.scan_index("type", value)]]
        return found


def test_any_damaged_byte(stored):
    """A flipped bit in a byte, each or every sixth, raises an error or does not change the results."""
    whole = answers(stored)
    refused = 0
    places = share_of(range(len(stored)), 6)
    for at in places:
        damaged = bytearray(stored)
        damaged[at] ^= 1 << (at % 8)
        try:
            assert answers(bytes(damaged)) == whole, f"another answer after damage at byte {at}"
        except REFUSED:
            refused += 1
    assert refused > 0.7 * len(places)  # the header, spare copies and the filter are not read here


def test_any_truncation(stored):
    """A file cut at any length does not open."""
    for length in range(len(stored)):
        with pytest.raises(REFUSED):
            esformat.open(esformat.BytesSource(stored[:length]))
