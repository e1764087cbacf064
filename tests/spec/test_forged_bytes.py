"""Every byte of a file changed, all checksums mended: both readers agree, and what either refuses `verify` reports.

Such bytes come from writers with faults and from people with intentions; checksums say nothing about them. A change in
what only checkers must see (the table of rules in section 6) may give another answer; nothing may end in another error.
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
"""Answers that depend on more than the events: sizes of blocks, and whether there is a filter."""
FRAME_LENGTH = range(8, 12)


def _changes(data: bytes, place: make_damaged.Place) -> Iterator[tuple[int, int]]:
    """Where a byte of a block changes, and to what; the magic and the length of the frame stay."""
    for at in range(place.offset + 4, place.end - 8):
        if at - place.offset not in FRAME_LENGTH:
            for new in sorted({0, 1, 255, data[at] ^ 1, data[at] ^ 128} - {data[at]}):
                yield at, new


def _by_the_specification(data: bytes) -> list[str] | None:
    """All events and what the file says of itself, as the independent reader has them; None where it refuses."""
    try:
        file = decoded_once(data)
        indexes = [read_esdb.line(list(file.index(c["name"]))) for c in file.schema if c["indexed"]]
        return [*map(read_esdb.line, file.events()), *indexes, read_esdb.line(file.facts())]
    except (read_esdb.Corrupt, read_esdb.TooNew):
        return None


def _check(sound: Sound, forged: bytes, expected: list[str]) -> None:
    found = dict(answers(forged, sound.asked))  # any error but an EsdbError comes through
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
    """A block of each kind, byte by byte, with each of five other values."""
    data = make_damaged.one_event() if name == "sound" else (make_golden.FOLDER / f"{name}.esdb").read_bytes()
    sound = Sound(data)
    expected = _by_the_specification(data)
    assert expected is not None
    for at, new in share_of(_changes(data, make_damaged.blocks(data)[number]), 600):
        _check(sound, make_damaged.seal(data[:at] + bytes([new]) + data[at + 1 :], {}), expected)
