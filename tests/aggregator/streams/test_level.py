"""One level for the records of all senders: words, numbers, and levels within messages."""

from __future__ import annotations

import math
import time

import pyarrow as pa
import pytest
from effort import examples
from hypothesis import given
from hypothesis import strategies as st

from aggregator.streams.level import add_level, add_level_of_all, level_in, level_of, with_levels

VALUES = [
    ("level", "ERROR", "error"), ("level", "Warning", "warn"), ("level", "critical", "fatal"), ("level", "odd", None),
    ("level", " err ", "error"), ("lvl", "dbug", "debug"), ("level", "E", "error"), ("level", "", None),
    ("level", 30, "info"), ("level", "50", "error"), ("level", 3, "error"), ("level", 8, None), ("level", -1, None),
    ("level", True, None), ("level", math.nan, None), ("level", math.inf, None), ("level", 2**70, None),
    ("level", ["error"], None), ("level", 1.5, None), ("level", "²", None), ("level", "x" * 100_000, None),
    ("PRIORITY", "3", "error"), ("PRIORITY", 0, "fatal"), ("PRIORITY", 30, None), ("severity", "alert", "fatal"),
    ("severity_number", 1, "trace"), ("severity_number", 8, "debug"), ("severity_number", "17", "error"),
    ("severity_number", 24, "fatal"), ("severity_number", 0, None), ("severity_number", 25, None),
    ("severity_text", "ERROR2", "error"), ("levelno", 30, "warn"), ("levelno", 50, "fatal"), ("levelno", 5, "trace"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "value", "level"), VALUES)
def test_values(name, value, level):
    """A word means the same from every sender; the meaning of a number depends on its field's name."""
    assert level_of(value, name) == level


RECORDS = [
    ({"level": "error"}, {}), ({"level": "ERROR"}, {"level": "error", "level_text": "ERROR"}),
    ({"level": 30}, {"level": "info", "level_text": 30}), ({"level": "hard", "a": 1}, {}), ({}, {}),
    ({"severity": "Error"}, {"level": "error"}), ({"log.level": "warning"}, {"level": "warn"}),
    ({"log": {"level": "warning"}}, {"level": "warn"}), ({"PRIORITY": "6"}, {"level": "info"}),
    ({"level": "hard", "severity": "error"}, {"level": "error", "level_text": "hard"}),
    ({"level": "warn", "severity_number": 17}, {"level": "error", "level_text": "warn"}),
    ({"severity": "", "lvl": "info"}, {"level": "info"}), ({"level": None, "lvl": "info"}, {"level": "info"}),
    ({"level": "ERROR", "level_text": "mine"}, {"level": "error"}),
]  # fmt: skip


@pytest.mark.parametrize(("record", "more"), RECORDS)
def test_records(record, more):
    """The sender's own field is kept; one called level is kept as level_text."""
    given = dict(record)
    add_level(given)
    assert given == {**record, **more}


def test_numbers_without_a_meaning():
    """Numbers in fields of unrelated records, such as a game's `level`, are not log levels."""
    for record in ({"level": 3}, {"severity": 40, "level": 12}):
        given = dict(record)
        assert not add_level(given, words=True)
        assert given == record
    assert add_level(given := {"PRIORITY": 3}, words=True)
    assert given["level"] == "error"


MESSAGES = [
    (b'{"level": "ERROR", "msg": "x"}', "error"), (b' {"a": 1, "lvl":"warn"}', "warn"), (b'{"level":50}', "error"),
    (b'{"user": {"level": "error"}, "b": 1}', None), (b'{"user": {"level": "error"}, "level": "info"}', "info"),
    (b'{"msg": "\\"level\\": \\"error\\", x"}', None), (b'{"msg": "level", "x": "error"}', None),
    (b'{"level": "hard", "severity": "error"}', "error"), (b'{"level": "error"', None), (b'["level"]', None),
    (b'{"msg": "say {x}", "level": "error"}', "error"), (b'{"@l":"Warning","@m":"x"}', "warn"),
    (b'{"a": "\n", "level":\n"error"}', "error"), (b'{"level": {"a": 1}}', None), (b'{"levels": "error"}', None),
    (b'time=x level=error msg="a b"', "error"), (b'msg="a level=error b" lvl="warn"', "warn"),
    (b'lvl="warn" a=b', "warn"),
    (b"a\x0blevel=error\x0bb", "error"), (b'\x0b{"b": 1} lvl="warn"', None), (b"a\x1flevel=error", None),
    (b"level=ERROR", "error"), (b"@l=error x", "error"),
    (b"compression level=9 done", None), (b"mylevel=error x", None), (b"level=hard", None),
    (b"E0102 15:04:05.123456    1234 file.go:12] msg", "error"), (b"I1131 00:00:00.0 x level=error", "info"),
    (b"E0102 is no klog", None), (b"W0102 15:04", None), (b"an error level was seen", None), (b"", None),
    (b'{"a": {"level": "x"}} level=error', None), (b' {a} level=error', None), (b'{"b": 1} lvl="warn"', None),
    (b"\xff level=error \xff", "error"), (b'{"level": "error", "x": "\xff"}', "error"),
    (b"level=" * 20_000, None), (b'{"level":' * 5_000, None), (b'{"' * 20_000 + b'level"', None),
]  # fmt: skip


@pytest.mark.parametrize(("message", "level"), MESSAGES, ids=[str(place) for place in range(len(MESSAGES))])
def test_messages(message, level):
    """A level is taken from a message in a known format, not from sentences or inner objects, and quickly."""
    began = time.thread_time()
    assert level_in(message) == level
    assert time.thread_time() - began < 0.5


def test_messages_at_once():
    """The levels of all these messages together are the same."""
    messages = [(message, level) for message, level in MESSAGES if len(message) < 1_000]
    made = with_levels(pa.array([message for message, _ in messages], pa.binary()), {})
    assert made["level"].to_pylist() == [level for _, level in messages]


PARTS = st.sampled_from([None, "error", "WARN", "hard", "3", "30", ""])
ROWS = st.tuples(st.sampled_from([message for message, _ in MESSAGES if len(message) < 1_000]), PARTS, PARTS, PARTS)


@examples(100)
@given(st.lists(ROWS, max_size=8), st.sets(st.sampled_from(["level", "severity", "PRIORITY"])))
def test_many_at_once(rows, names):
    """A block of records gets the same levels as its records one by one."""
    names = sorted(names)
    parts = {name: pa.array([row[1 + place] for row in rows], pa.string()) for place, name in enumerate(names)}
    made = with_levels(pa.array([row[0] for row in rows], pa.binary()), parts)
    columns = {name: column.to_pylist() for name, column in made.items()}
    for place, (message, *own) in enumerate(rows):
        record = {name: value for name, value in zip(names, own, strict=False) if value is not None}
        add_level_of_all(alone := {"msg": message, **record}, {})
        del alone["msg"]
        assert {name: values[place] for name, values in columns.items() if values[place] is not None} == alone
