"""With any byte changed and all checksums updated, both readers agree, and `verify` reports what they refuse.

Such bytes come from faulty writers and attackers; checksums do not detect them. A change that only checkers must detect
(the table of rules in section 6) may have another result; no other kind of error may occur.
"""

from __future__ import annotations

from collections.abc import Iterator

import make_damaged
import make_golden
import pytest
import read_esdb
from effort import share_of
from spec_questions import Sound, answers, decoded_once

import esformat

UNSAID = ("info", "absent")
"""Queries whose results depend on more than the events: on sizes of blocks, and on the filter."""
FRAME_LENGTH = range(8, 12)


def _changes(data: bytes, place: make_damaged.Place) -> Iterator[tuple[int, int]]:
    """The positions and new values of bytes to change in a block; the magic and the length of the frame stay."""
    for at in range(place.offset + 4, place.end - 8):
        if at - place.offset not in FRAME_LENGTH:
            for new in sorted({0, 1, 255, data[at] ^ 1, data[at] ^ 128} - {data[at]}):
                yield at, new


def _by_the_specification(data: bytes) -> list[str] | None:
    """All events and facts of a file according to the independent reader; None if it refuses the file."""
    try:
        file = decoded_once(data)
        indexes = [read_esdb.line(list(file.index(c["name"]))) for c in file.schema if c["indexed"]]
        return [*map(read_esdb.line, file.events()), *indexes, read_esdb.line(file.facts())]
    except (read_esdb.Corrupt, read_esdb.TooNew):
        return None


def _check(sound: Sound, forged: bytes, expected: list[str]) -> None:
    found = dict(answers(forged, sound.asked))  # any error except an EsdbError passes through
    refused = [answer for answer in found.values() if isinstance(answer, esformat.EsdbError)]
    others = [name for name, answer in found.items() if name not in UNSAID and answer != sound.expected.get(name)]
    by_specification = _by_the_specification(forged)
    if by_specification is None:
        assert not esformat.verify(esformat.BytesSource(forged)).ok
    elif by_specification == expected:
        assert not refused
        assert not others


CASES = [
    (name, number)
    for name, data in [("sound", make_damaged.one_event()), ("no-events", None), ("times", None), ("numbers", None)]
    for number in range(len(make_damaged.blocks(data or (make_golden.FOLDER / f"{name}.esdb").read_bytes())))
]


@pytest.mark.parametrize(("name", "number"), CASES)
def test_every_byte(name, number):
    """A block of each kind is changed byte by byte, with each of five other values."""
    data = make_damaged.one_event() if name == "sound" else (make_golden.FOLDER / f"{name}.esdb").read_bytes()
    sound = Sound(data)
    expected = _by_the_specification(data)
    assert expected is not None
    for at, new in share_of(_changes(data, make_damaged.blocks(data)[number]), 600):
        _check(sound, make_damaged.seal(data[:at] + bytes([new]) + data[at + 1 :], {}), expected)
