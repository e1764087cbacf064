"""Fields compared with numbers: numerically, wherever their values are stored."""

from __future__ import annotations

import operator
import time
from decimal import Decimal

import pyarrow as pa
import pytest
from effort import examples
from hypothesis import given
from hypothesis import strategies as st

import aggregator
from aggregator.lql import LqlError, parse_where
from aggregator.lql.text.number import number_test

COMPARE = {
    "=": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge
}  # fmt: skip
VALUES = ["99", "1000", "1e3", "1000.0", "5", "20000", "-1", "NaN", "inf", "abc", "", " 1000 ", "0x3e8", "1_000", "+7"]
# A comparison and the VALUES that satisfy it.
ASKED = [
    (">= 1000", {"1000", "1e3", "1000.0", "20000", " 1000 "}),
    ("= 1000", {"1000", "1e3", "1000.0", " 1000 "}),
    ("< 1000", {"99", "5", "-1", "+7"}),
    ("< 0", {"-1"}),
    ("> -1.5", {"99", "1000", "1e3", "1000.0", "5", "20000", "-1", " 1000 ", "+7"}),
    ("!= 1000", set(VALUES) - {"1000", "1e3", "1000.0", " 1000 "}),
    ('>= "1000"', {"99", "1000", "1e3", "1000.0", "5", "20000", "NaN", "inf", "abc", "1_000"}),
    ('= "1000"', {"1000"}),
]


def test_a_number_is_compared_as_a_number_everywhere(tmp_path):
    """An unquoted number compares as a number and quoted text as text: sealed or not, in the map, in a column of text
    or numbers, and in pipes.
    """
    topics = {"plain": None, "text": pa.string(), "whole": pa.int64(), "real": pa.float64()}
    with aggregator.open(tmp_path) as catalog:
        for topic, kind in topics.items():
            columns = [pa.field("data", pa.binary()), pa.field("fields", pa.map_(pa.string(), pa.string()))]
            catalog.create_topic(topic, pa.schema(columns + ([pa.field("n", kind)] if kind else [])))
        for number, (condition, _) in enumerate(ASKED):
            catalog.query(f"CREATE PIPE p{number} WHERE fields:n {condition}")
        for topic in topics:
            records = [{"ts": i, "msg": value, "n": value} for i, value in enumerate(VALUES)]
            catalog.write({"t": topic}, [*records, {"ts": 99, "msg": "absent"}], topic=topic)
        for sealed in (False, True):
            if sealed:
                catalog.seal()
            for condition, holds in ASKED:
                wanted = holds | ({"absent"} if condition.startswith("!=") else set())
                for topic in topics:
                    found = catalog.query(f"SELECT FROM t = {topic} WHERE fields:n {condition}")
                    assert {event.data.decode() for event in found} == wanted, (topic, condition, sealed)
        while set(catalog.query("SHOW PIPES")["lag"].to_pylist()) != {0}:
            time.sleep(0.005)
        for number, (condition, holds) in enumerate(ASKED):
            wanted = holds | ({"absent"} if condition.startswith("!=") else set())
            copies = catalog.query(f"SELECT FROM {{logrange.pipe=p{number}}}")
            assert {event.data.decode() for event in copies} == wanted, condition


def test_numbers_of_numbers(tmp_path):
    """Values written as numbers are found by value, whether the topic has a column for them or not."""
    with aggregator.open(tmp_path) as catalog:
        catalog.create_topic("typed", pa.schema([("data", pa.binary()), ("n", pa.int64())]))
        for topic in ("typed", "logs"):
            catalog.write({"t": topic}, [{"ts": i, "msg": str(i), "n": i} for i in range(2000)], topic=topic)
            for condition, count in [(">= 1000", 1000), ("< 10", 10), ("= 7", 1), ("!= 7", 1999), ("< 10.5", 11)]:
                asked = f"SELECT COUNT FROM t = {topic} WHERE fields:n {condition}"
                assert catalog.query(asked).to_pylist() == [{"count": count}], (topic, condition)


def test_a_column_of_text_with_an_index_finds_a_number_in_any_spelling(tmp_path):
    """A text index is not used for a number, which may be spelled in other ways."""
    with aggregator.open(tmp_path) as catalog:
        catalog.create_topic("t", pa.schema([("data", pa.binary()), ("code", pa.string())]), indexes=["code"])
        catalog.write({"a": "1"}, [{"msg": code, "code": code} for code in ("7", "7.0", "07", "8")], topic="t")
        catalog.seal()
        assert {event.data for event in catalog.query("SELECT WHERE code = 7")} == {b"7", b"7.0", b"07"}
        assert {event.data for event in catalog.query('SELECT WHERE code = "7"')} == {b"7"}


@pytest.mark.parametrize("value", ["1e999", "-1e99999999999"])
def test_numbers_out_of_reach_are_refused(value):
    """A number beyond comparison is refused."""
    with pytest.raises(LqlError, match="invalid number"):
        parse_where(f"fields:n > {value}")


digits = st.from_regex(r"\A[-+]?[0-9]{1,25}(\.[0-9]{0,20})?([eE][-+]?[0-9]{1,3})?\Z")
odd = st.sampled_from(["", "x", "1e400", "1e401", "1e-400", "0e500", "0." + "0" * 396 + "1", "0" * 401, "9" * 400, "٣"])


@examples(60)
@given(st.lists(digits | odd), digits, st.sampled_from(sorted(COMPARE)))
def test_texts_compare_like_decimals(texts, limit, op):
    """Comparisons equal those of exact decimals, also where floats would round."""
    exact = Decimal(limit)
    near = [*texts, limit, f"{limit}0" if "." in limit and "e" not in limit.lower() else limit]

    def holds(text: str) -> bool:
        try:
            number = Decimal(text) if text.isascii() and len(text) <= 400 else None
        except ArithmeticError:
            number = None
        if number is None or abs(number.adjusted()) > 400:
            return op == "!="
        return COMPARE[op](number, exact)

    if abs(exact.adjusted()) > 400:
        return
    assert number_test(op, limit)(pa.array(near, pa.large_string())).to_pylist() == [holds(text) for text in near]
