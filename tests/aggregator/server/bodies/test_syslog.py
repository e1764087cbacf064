"""Syslog messages in both formats become records, others are kept whole; frames may arrive in any pieces."""

from __future__ import annotations

import datetime as dt
import time

import pytest
from effort import examples
from hypothesis import example, given
from hypothesis import strategies as st

from aggregator.server.bodies.syslog import read_message
from aggregator.server.bodies.syslog_framing import Framer

NOW = dt.datetime(2026, 3, 1, 12, tzinfo=dt.timezone(dt.timedelta(hours=1)))
PEER = {"host": "10.0.0.9"}


def utc(*parts: int) -> dt.datetime:
    return dt.datetime(*parts, tzinfo=dt.UTC)


MESSAGES = [
    (b"<34>1 2003-10-11T22:14:15.003Z mymachine.example.com su - ID47 - \xef\xbb\xbf'su root' failed",
     {"host": "mymachine.example.com", "app": "su"},
     {"ts": utc(2003, 10, 11, 22, 14, 15, 3000), "msg": "'su root' failed", "msgid": "ID47", "facility": "auth",
      "severity": "crit", "level": "fatal"}),
    (b'<165>1 2003-08-24T05:14:15.000003-07:00 192.0.2.1 p 8710 - [a@1 x="1" y="q\\"\\]\\\\z"][b n=""] text',
     {"host": "192.0.2.1", "app": "p"},
     {"ts": utc(2003, 8, 24, 12, 14, 15, 3), "msg": "text", "pid": "8710", "facility": "local4", "severity": "notice",
      "level": "info", "a@1.x": "1", "a@1.y": 'q"]\\z', "b.n": ""}),
    (b"<13>1 - - - - - -", PEER, {"ts": NOW, "msg": "", "facility": "user", "severity": "notice", "level": "info"}),
    (b"<34>Oct 11 22:14:15 mymachine su[12]: 'su root' failed\n", {"host": "mymachine", "app": "su"},
     {"ts": dt.datetime(2025, 10, 11, 22, 14, 15, tzinfo=NOW.tzinfo), "msg": "'su root' failed", "pid": "12",
      "facility": "auth", "severity": "crit", "level": "fatal"}),
    (b"<13>Mar  2 00:00:00 h no tag here", {"host": "h"},
     {"ts": dt.datetime(2026, 3, 2, tzinfo=NOW.tzinfo), "msg": "no tag here", "facility": "user",
      "severity": "notice", "level": "info"}),
    (b"<30>2026-03-01T08:00:00.25+01:00 web nginx: hi", {"host": "web", "app": "nginx"},
     {"ts": utc(2026, 3, 1, 7, 0, 0, 250_000), "msg": "hi", "facility": "daemon", "severity": "info", "level": "info"}),
    (b"<13>Feb 29 00:00:00 h a: no such day", PEER,
     {"ts": NOW, "msg": "Feb 29 00:00:00 h a: no such day", "facility": "user", "severity": "notice", "level": "info"}),
    (b"just text", PEER, {"ts": NOW, "msg": "just text"}), (b"<999>x", PEER, {"ts": NOW, "msg": "<999>x"}),
    (b"<13>\xff\xfe", PEER, {"ts": NOW, "msg": b"\xff\xfe", "facility": "user", "severity": "notice", "level": "info"}),
    (b"<13>1 yesterday h a - - - x", PEER,
     {"ts": NOW, "msg": "1 yesterday h a - - - x", "facility": "user", "severity": "notice", "level": "info"}),
]  # fmt: skip


@pytest.mark.parametrize(("message", "tags", "record"), MESSAGES)
def test_messages(message, tags, record):
    """Every part of a message is kept, in either format."""
    assert read_message(message, "10.0.0.9", NOW) == (tags, record)


@pytest.mark.parametrize(
    ("now", "date", "expected"),
    [
        (utc(2026, 11, 23), "Mar  1", utc(2026, 3, 1)),  # eight months ago, not in three months
        (utc(2026, 1, 2), "Dec 31", utc(2025, 12, 31)),
        (utc(2025, 12, 31, 23), "Jan  1", utc(2026, 1, 1)),  # from a clock that is ahead
        (utc(2025, 12, 31, 23), "Jan  3", utc(2025, 1, 3)),
    ],
)
def test_year_that_is_not_named(now, date, expected):
    """A time without a year is the latest one not in the future, as in the collector; one day ahead is tolerated."""
    _, record = read_message(f"<13>{date} 00:00:00 h a: x".encode(), "p", now)
    assert record["ts"] == expected


def test_leap_day():
    """29 February is in the last leap year."""
    _, record = read_message(b"<13>Feb 29 00:00:00 h a: x", "p", dt.datetime(2025, 1, 1, tzinfo=dt.UTC))
    assert record["ts"] == utc(2024, 2, 29)


def test_cut_messages_are_marked():
    """A message that was too long is marked as truncated."""
    assert read_message(b"x", "p", NOW, cut=True)[1]["truncated"] is True


@examples(200)
@given(st.binary(max_size=80) | st.sampled_from([message for message, _, _ in MESSAGES]), st.integers(0, 80),
       st.binary(max_size=3))  # fmt: skip
@example(b'<1>1 - - - - - [a b="' + b"\\" * 60_000, 0, b"")
@example(b"<1>1 - - - - - " + b"[a" * 30_000, 0, b"")
@example(b"<1>Jan  1 00:00:00 " + b"a" * 60_000, 0, b"")
def test_any_bytes(message, at, junk):
    """Any bytes become a record, quickly, with valid names and times."""
    tags, record = read_message(message[:at] + junk + message[at:], "p", NOW)
    assert tags["host"]
    assert record["ts"].tzinfo is not None
    assert all(isinstance(value, str | bytes | dt.datetime) for value in record.values())


LONG = b"<1>" + b"x" * 40
PARTS = [LONG[:20], LONG[20:40], LONG[40:]]
FRAMES = [
    (b"<1>a\n<1>b\r\n\n<1>c\0", [b"<1>a", b"<1>b\r", b"<1>c"]),
    (b"4 <1>a5 <1>\nb4 <1>c\n4 <1>d", [b"<1>a", b"<1>\nb", b"<1>c", b"<1>d"]),
    (b"2026 is no count\n12 neither\n", [b"2026 is no count", b"12 neither"]),
    (b"<1>a\n4 <1>b<1>c\n", [b"<1>a", b"<1>b", b"<1>c"]),
    (LONG + b"\n<1>a\n", [*PARTS, b"<1>a"]), (b"43 " + LONG + b"4 <1>a", [*PARTS, b"<1>a"]), (LONG, PARTS),
    (b"<1>no end", [b"<1>no end"]), (b"9 <1>half", [b"<1>half"]), (b"", []), (b"123456789012 x\n", [b"123456789012 x"]),
    (b"7 <1>d\xc3\xa9j\xc3\xa04 <1>b", [b"<1>d\xc3\xa9j", b"\xc3\xa04 <1>b"]),  # counted in characters
    ("<1>漢漢漢漢漢漢漢漢\n".encode(), ["<1>漢漢漢漢漢".encode(), "漢漢漢".encode()]),
]  # fmt: skip


@pytest.mark.parametrize(("stream", "messages"), FRAMES)
@pytest.mark.parametrize("step", [1, 2, 3, 7, 1000])
def test_frames(stream, messages, step):
    """Octet-counted and line-ended messages, in pieces of any size, are separated; long ones are split."""
    framer = Framer(max_bytes=20)
    found = [each for at in range(0, len(stream), step) for each in framer.feed(stream[at : at + step])]
    found += framer.finish()
    assert [message for message, _ in found] == messages
    cut = {*PARTS[:2], b"<1>half", "<1>漢漢漢漢漢".encode()}
    assert [was_cut for _, was_cut in found] == [message in cut for message in messages]


@examples(200)
@given(st.lists(st.binary(max_size=30) | st.sampled_from([b"5 <1>", b"\n", b"99999999 <1>x", b"\0"]), max_size=12))
def test_any_stream(pieces):
    """For any bytes, at most one message is buffered, and none exceeds the limit."""
    framer = Framer(max_bytes=20)
    for piece in pieces:
        assert all(len(message) <= 20 for message, _ in framer.feed(piece))
        assert len(framer._held) <= 20


def test_nothing_of_a_message_is_lost():
    """Repeated parameters become a list; bytes that are not UTF-8 in tags and fields are escaped."""
    now = dt.datetime(2026, 3, 1, tzinfo=dt.UTC)
    tags, record = read_message(b'<13>1 - h a - - [x ip="1" ip="2" ip="\xff"][y ip="3"] m\0n', "peer", now)
    assert tags == {"host": "h", "app": "a"}
    assert (record["x.ip"], record["y.ip"], record["msg"]) == (["1", "2", "\\xff"], "3", "m\0n")
    tags, _ = read_message(b"<13>Mar  1 10:00:00 h \xff\0app: text", "peer", now)
    assert tags == {"host": "h", "app": "\\xff\0app"}


@examples(200)
@given(st.lists(st.text("é漢🎉<1> 2", max_size=60) | st.binary(max_size=60), max_size=6), st.booleans())
def test_no_byte_of_a_stream_is_lost(texts, counted):
    """Only line ends are lost, whatever the length, also without line ends or with wrong counts."""
    pieces = [text.encode() if isinstance(text, str) else text for text in texts]
    stream = b"".join(b"%d " % (len(each) + 4) + b"<1> " + each if counted else each for each in pieces)
    framer = Framer(max_bytes=20)
    found = framer.feed(stream) + framer.finish()
    given = b"".join(message for message, _ in found)
    signs = b"\n\r\0"
    if counted:
        assert given == b"".join(b"<1> " + each for each in pieces)
    else:
        assert given.translate(None, signs + b"0123456789 ") == stream.translate(None, signs + b"0123456789 ")


@pytest.mark.parametrize("character", ["a", "é", "漢", "🎉"])
def test_a_connection_that_ends_within_a_character(character):
    """A message truncated within a character stays text, without the half character. rsyslog sent these."""
    whole = f"<13>1 - h a - - - {character * 5}".encode()
    for size in range(len(whole) - len(character.encode()) * 4, len(whole)):
        framer = Framer()
        assert framer.feed(b"%d " % len(whole) + whole[:size]) == []
        assert framer.finish() == [(whole[:size].decode(errors="ignore").encode(), True)]


def test_a_parameter_that_comes_thousands_of_times():
    """A parameter repeated thousands of times takes no longer than thousands of different ones."""

    def seconds(names):
        element = b"".join(b' %b="1"' % name for name in names)
        times = []
        for _ in range(3):
            began = time.thread_time()
            _, record = read_message(b"<13>1 - h a - - [x%b] hi" % element, "10.0.0.9", NOW)
            times.append(time.thread_time() - began)
        assert sum(len(value) for value in record.values() if isinstance(value, list | str)) >= len(names)
        return min(times)

    count = 60_000
    assert seconds([b"aaaaa"] * count) < 4 * seconds([b"%05d" % number for number in range(count)])
