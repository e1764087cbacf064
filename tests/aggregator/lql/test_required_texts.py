"""Texts that a condition requires in matching messages: no matching message lacks them."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest
from effort import examples
from hypothesis import given
from hypothesis import strategies as st

from aggregator.lql import Columns, Filter, parse_where
from aggregator.lql.run.required_texts import MOST_TEXTS, required_texts

BACKSLASH = b"\\"


@pytest.mark.parametrize(
    ("where", "required"),
    [
        ('msg CONTAINS "ERROR"', [[b"ERROR"]]),
        ('msg PREFIX "a" AND msg SUFFIX "b" AND msg CONTAINS "a"', [[b"a"], [b"b"]]),
        ('msg = "x y"', [[b"x y"]]),
        ("msg = 5", [[b"5"]]),
        ('msg LIKE "*disk ?full*"', [[b"disk "], [b"full"]]),
        ('msg LIKE "*[ab]*"', []),
        ('msg CONTAINS ""', []),
        ('msg != "x"', []),
        ('NOT msg CONTAINS "x"', []),
        ('UPPER(msg) CONTAINS "X"', []),
        ('msg MATCHES "x+"', []),
        ('msg CONTAINS "a" OR msg CONTAINS "b"', [[b"a", b"b"]]),
        ('msg CONTAINS "a" OR ts > 5', []),
        ('(msg CONTAINS "a" OR msg = "b") AND msg.k = "v"', [[b"a", b"b"], [b'"v"', BACKSLASH]]),
        ('msg.a.b = "/cart"', [[b'"/cart"', BACKSLASH]]),
        ('msg.a = "7.5"', []),
        ("msg.a = 7", []),
        ('msg.a = "true"', []),
        ('msg.a = "inf"', []),
        ('msg.a = ""', []),
        ('msg.a = "{}"', []),
        ("msg.a = 'say \"x\"'", []),
        ('msg.a CONTAINS "x"', []),
        ('msg CONTAINS "\ufffd"', []),
        (" OR ".join(f'msg CONTAINS "{n}"' for n in range(MOST_TEXTS + 1)), []),
    ],
)
def test_conditions(where, required):
    """Each condition has these texts, or none if it implies nothing."""
    assert [list(texts) for texts in required_texts(parse_where(where))] == required


@pytest.mark.parametrize(
    ("where", "enough"),
    [
        ('msg CONTAINS "a"', True),
        ('msg CONTAINS "a" AND msg CONTAINS "b"', True),
        ('msg CONTAINS "a" OR msg CONTAINS "b"', True),
        ('msg CONTAINS "c" AND (msg CONTAINS "a" OR msg CONTAINS "b")', True),
        ('msg CONTAINS "c" OR (msg CONTAINS "a" AND msg CONTAINS "b")', False),
        ('msg CONTAINS ""', False),
        ('msg CONTAINS "a" AND msg CONTAINS ""', False),
        ('msg CONTAINS "a" AND ts > 5', False),
        ('msg CONTAINS "a" AND fields:b CONTAINS "c"', False),
        ('LOWER(msg) CONTAINS "a"', False),
        ('NOT msg CONTAINS "a"', False),
        ('msg PREFIX "a"', False),
        ('msg LIKE "*a*"', False),
        ('msg = "a"', False),
        (" OR ".join(f'msg CONTAINS "{n}"' for n in range(MOST_TEXTS + 1)), False),
    ],
)
def test_texts_that_are_enough(where, enough):
    """A condition says whether containing the texts suffices for a match."""
    schema = pa.schema([("timestamp", pa.timestamp("us", "UTC")), ("data", pa.binary()), ("b", pa.string())])
    assert Filter.compile(parse_where(where), Columns(schema), 0).required_texts_suffice == enough


words = st.sampled_from(
    ["a", "b", "ab", "/cart", "é", '"', "\\", "5", "5.0", "1e2", "true", "nul", " ", "\ufffd", "{", "x"]
)
texts = st.lists(words, max_size=3).map("".join)
values = st.recursive(
    texts | st.none() | st.booleans() | st.integers(-5, 200) | st.floats(allow_nan=True),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("kab"), inner, max_size=2),
    max_leaves=4,
)
messages = st.one_of(
    st.binary(max_size=6), texts.map(str.encode),
    st.builds(lambda value, plain: json.dumps({"k": value}, ensure_ascii=plain).encode(), values, st.booleans()),
    values.map(lambda value: json.dumps({"k": value}).replace("/", "\\/").replace("a", "\\u0061").encode()),
)  # fmt: skip
conditions = st.builds(
    lambda operand, op, text: f"{operand} {op} {json.dumps(text, ensure_ascii=False)}",
    st.sampled_from(["msg", "msg.k", 'msg["k"]']), st.sampled_from(["=", "CONTAINS", "PREFIX", "SUFFIX"]), texts,
)  # fmt: skip
wheres = st.recursive(
    conditions,
    lambda inner: (
        st.lists(inner, min_size=2, max_size=3).map(" AND ".join)
        | st.lists(inner, min_size=2, max_size=3).map(lambda each: f"({' OR '.join(each)})")
    ),
    max_leaves=4,
)


@examples(400)
@given(wheres, st.lists(messages, min_size=1, max_size=8))
def test_messages_that_match_hold_them(where, given_messages):
    """Matching messages contain the texts, whether plain, JSON with or without escapes, or broken UTF-8."""
    batch = pa.record_batch({"timestamp": pa.array(range(len(given_messages)), pa.timestamp("us", "UTC")),
                             "data": pa.array(given_messages, pa.binary())})  # fmt: skip
    found = Filter.compile(parse_where(where), Columns(batch.schema), 0)
    for message, matches in zip(given_messages, found.mask(batch).to_pylist(), strict=True):
        for lists in found.required_texts.get("data", ()):
            assert not matches or any(text in message for text in lists)
        if found.required_texts_suffice:
            assert matches == all(any(text in message for text in lists) for lists in found.required_texts["data"])
