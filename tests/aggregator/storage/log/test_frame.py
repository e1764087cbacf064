"""Frames of the log: the tables and examples of `spec/log.md`, and damage."""

from __future__ import annotations

import pytest
from damage import cuts, flips
from hypothesis import given
from hypothesis import strategies as st
from spec_document import ROOT, examples, struct_format, tables

from aggregator.errors import CorruptLogError, UnknownVersionError
from aggregator.storage.log import frame as log_frame
from aggregator.storage.log.file import decode_mark, encode_mark
from aggregator.storage.log.frame import EventsPrefix, FrameHead, FrameKind, decode_file_header, encode_file_header

TEXT = (ROOT / "spec" / "log.md").read_text("utf-8")
REFUSALS = (CorruptLogError, UnknownVersionError)
HEAD = FrameHead(1, 5, 2, 4096, 3, 100, 7)


@pytest.mark.parametrize(
    ("name", "formats"),
    [
        ("log file", [log_frame._FILE.format]),
        ("log frame", [log_frame._HEAD.format, log_frame._CHECK.format[1:]]),
        ("log events", [log_frame._EVENTS.format]),
    ],
)
def test_fields(name, formats):
    """The code's fields have the order, types and offsets of the specification's table."""
    assert "".join(formats) == struct_format(name, TEXT)
    at = 0
    for row in tables(TEXT)[name]:
        assert int(row["offset"]) == at
        at += int(row["size"])


def test_every_table_and_example_is_compared():
    """Every table and example has a test here."""
    assert set(tables(TEXT)) == {"log file", "log frame", "log events"}
    assert {name for name, _, _ in examples(TEXT)} == {"log file", "log frame"}


def test_file_header_bytes():
    """A file header encodes to the specification's bytes and decodes from them."""
    ((facts, stored),) = [(facts, stored) for name, facts, stored in examples(TEXT) if name == "log file"]
    assert encode_file_header(int(facts["position"])) == stored
    assert decode_file_header(stored) == int(facts["position"])


def test_frame_head_bytes():
    """A frame's head encodes to the specification's bytes and decodes from them."""
    ((facts, stored),) = [(facts, stored) for name, facts, stored in examples(TEXT) if name == "log frame"]
    numbers = {name: int(value) for name, value in facts.items()}
    position = numbers.pop("position")
    assert FrameHead(**numbers).encode(position) == stored
    assert FrameHead.decode(stored, 0, position) == FrameHead(**numbers)


def test_kinds():
    """Kinds have the numbers in the table."""
    rule = next(row["rule"] for row in tables(TEXT)["log frame"] if row["field"] == "kind")
    assert rule == ", ".join(f"{kind.value} {kind.name.lower()}" for kind in FrameKind)


@pytest.mark.parametrize(
    ("stored", "read"),
    [
        (encode_file_header(4096), decode_file_header),
        (HEAD.encode(4096), lambda stored: FrameHead.decode(stored, 0, 4096)),
    ],
)
def test_damage_is_refused(stored, read):
    """Frames cut at any length or with any bit flipped are refused."""
    for damaged in (*cuts(stored), *flips(stored)):
        with pytest.raises(REFUSALS):
            read(damaged)


def test_frame_elsewhere_is_refused():
    """A head is valid only at its own position."""
    with pytest.raises(CorruptLogError, match="checksum"):
        FrameHead.decode(HEAD.encode(4096), 0, 4104)


def test_body_longer_than_allowed():
    """A length is checked before allocation, even if the checksum is right."""
    stored = FrameHead(1, (1 << 30) + 1, 1, 0, 0, 0, 0).encode(32)
    with pytest.raises(CorruptLogError, match="breaks the format"):
        FrameHead.decode(stored, 0, 32)


@given(
    st.integers(0, 2**32 - 1), st.text(max_size=20), st.integers(-(2**63), 2**63 - 1), st.integers(0, 2**64 - 1),
    st.text(max_size=20),
)  # fmt: skip
def test_prefix_round_trip(schema, producer, sequence, fingerprint, note):
    """The prefix of events decodes to itself, and the events start at a multiple of eight."""
    prefix = EventsPrefix(schema, producer, sequence, fingerprint, note)
    stored = prefix.encode()
    assert EventsPrefix.decode(stored + b"events") == (prefix, len(stored))
    assert len(stored) % 8 == 0


def test_prefix_cut_short():
    """A prefix that does not fit its body is refused."""
    for note in ("", "at 17"):
        for cut in cuts(EventsPrefix(1, "web-1", 17, 5, note).encode()):
            with pytest.raises(CorruptLogError):
                EventsPrefix.decode(cut)
    with pytest.raises(CorruptLogError, match="note is not UTF-8"):
        EventsPrefix.decode(EventsPrefix(1, "p", 1, 1, "note").encode().replace(b"note", b"n\xffte"))


def test_mark():
    """An incomplete mark is ignored."""
    stored = encode_mark(123456)
    assert decode_mark(stored) == 123456
    assert all(decode_mark(damaged) is None for damaged in (*cuts(stored), *flips(stored)))
