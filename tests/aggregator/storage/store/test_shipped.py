"""Objects of a catalog in a store, as bytes and names."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aggregator.errors import CorruptLogError, UnknownVersionError
from aggregator.storage.store.shipped import (
    Announced,
    LogObject,
    log_name,
    manifest_name,
    manifest_sequence,
)

ANNOUNCED = Announced("manifest/x.zst", 100, "0123456789abcdef", 7, 3, 40)
FULL = LogObject(2, 5, "run", 1_000_000, 120, True, [(40, b"some bytes"), (100, b"\x00" * 20)], ANNOUNCED)
FENCE = LogObject(3, 6, "another run", 1_000_001, 120)


@pytest.mark.parametrize("one", [FULL, FENCE, dataclasses.replace(FULL, manifest=None)])
def test_it_is_read_as_it_was_written(one: LogObject):
    """With pieces, a manifest, or neither."""
    assert LogObject.decode(one.encode(), one.sequence) == dataclasses.replace(one, pieces=list(one.pieces))


@given(st.lists(st.tuples(st.integers(0, 2**63), st.binary(max_size=50)), max_size=4))
def test_any_pieces(pieces: list[tuple[int, bytes]]):
    """Whatever they hold."""
    one = dataclasses.replace(FULL, pieces=pieces)
    assert LogObject.decode(one.encode(), 5).pieces == pieces


def test_an_object_cut_short():
    """At any byte it is told."""
    stored = FULL.encode()
    for length in range(len(stored)):
        with pytest.raises(CorruptLogError):
            LogObject.decode(stored[:length], 5)


def test_an_object_with_a_byte_flipped():
    """Each is told, but those of the version, which says that another reads it."""
    stored = FULL.encode()
    for at in range(len(stored)):
        flipped = stored[:at] + bytes([stored[at] ^ 1]) + stored[at + 1 :]
        with pytest.raises(UnknownVersionError if at in (8, 9) else CorruptLogError):
            LogObject.decode(flipped, 5)


def test_an_object_under_another_name():
    """It is not taken for the one of that name."""
    with pytest.raises(CorruptLogError, match="number 5"):
        LogObject.decode(FULL.encode(), 6)


def test_names():
    """They sort as their numbers do; a copy of the manifest has another one each time."""
    assert sorted(map(log_name, [10, 9, 100])) == [log_name(9), log_name(10), log_name(100)]
    names = [manifest_name(12, 3) for _ in range(2)]
    assert names[0] != names[1]
    assert [manifest_sequence(name) for name in (*names, "manifest/x", log_name(1))] == [12, 12, None, None]
