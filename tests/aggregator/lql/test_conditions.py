"""WHERE over batches: matches compared with a table and a plain Python evaluator, and which columns are read."""

from __future__ import annotations

import operator
import re
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction

import lql_strategies as strategies
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from effort import examples
from hypothesis import given
from hypothesis import strategies as st

from aggregator.lql import Columns, Filter, LqlError, equalities, parse_where, time_span
from aggregator.lql.parse.tree import SYMBOLS, And, Condition, Name, Not, Or, Value, all_of, any_of
from aggregator.lql.run.json_path import path_text
from aggregator.lql.run.pushdown import TimeSpan

NOW_NS = 1_000_000_000_000
TEXT_MAP = pa.map_(pa.string(), pa.string())
MESSAGES = [
    b'{"a": {"b": 5}, "l": [1, {"x": "y"}], "k": "v"}',
    b"ERROR disk full /dev/sda",
    None,
    "åäö Straße".encode(),
    b"\xff\xfebad",
    b'{"a": {"b": "7.5"}, "t": true, "f": 1E22, "n": null, "e\\u0073c": "\\u0041b"}',
]
BATCH = pa.record_batch(
    {
        "timestamp": pa.array([0, 1, 2, 3, 1_000_000_000, 5], pa.timestamp("us", "UTC")),
        "data": pa.array(MESSAGES, pa.binary()),
        "space": pa.array(["{a=1}"] * 6).dictionary_encode(),
        "status": pa.array([200, 404, None, 500, 200, 301], pa.int16()),
        "who": pa.array(["ada", None, "bob", "", "Ada", "x"]).dictionary_encode(),
        "ok": pa.array([True, False, None, True, True, False]),
        "took": pa.array([0.5, 1.0, None, float("nan"), 2.0, 3.0]),
        "far": pa.array([0.0, -0.0, None, 5e-324, float("inf"), float("-inf")]),
        "big": pa.array([2**64 - 1, 0, None, 1, 2, 3], pa.uint64()),
        "at": pa.array([0, 60, None, 120, 180, 240], pa.timestamp("s", "UTC")),
        "day": pa.array([0, 1, None, -1, 2_932_896, -719_162], pa.date32()),
        "none": pa.nulls(6),
        "list": pa.array([[1], [], None, [2], [3], [4]]),
        "more": pa.array([[("q", "x")], [("q", ""), ("z", "1")], None, [], [("q", "X")], []], TEXT_MAP),
    }
)  # fmt: skip
COLUMNS = Columns(BATCH.schema, extra="more")

# A condition and the rows it matches.
CONDITIONS = [
    # msg
    ("msg CONTAINS ERROR", [1]),
    ("msg CONTAINS ''", [0, 1, 2, 3, 4, 5]),
    ("msg CONTAINS '/dev/'", [1]),
    ("msg CONTAINS 'äö'", [3]),
    ('msg CONTAINS "bad"', [4]),
    ("msg PREFIX ERR", [1]),
    ("msg SUFFIX sda", [1]),
    ("msg SUFFIX bad", [4]),
    ("msg = ''", [2]),
    ("msg != ''", [0, 1, 3, 4, 5]),
    ("MSG = 'ERROR disk full /dev/sda'", [1]),
    ("msg LIKE '*disk*'", [1]),
    ("msg LIKE 'ERROR*'", [1]),
    ("msg LIKE '*sda'", [1]),
    ("msg LIKE 'ERROR*/*'", [1]),
    ("msg LIKE '[^E]*'", [0, 3, 5]),
    ("msg LIKE '[!E]*'", [1]),
    ("msg LIKE '?äö*'", [3]),
    ("msg LIKE '[a-zå]?ö *'", [3]),
    ("msg LIKE ''", [2]),
    ("msg LIKE '*b?d'", [4]),  # a wildcard also matches bytes that are not UTF-8
    ("msg LIKE '*'", [0, 1, 2, 3, 4, 5]),
    ("msg LIKE '\\\\{*'", [0, 5]),
    ("msg MATCHES '^E.*full'", [1]),
    ("msg MATCHES 'disk|bad'", [1, 4]),
    ("msg MATCHES '(?i)error'", [1]),
    ("UPPER(msg) CONTAINS 'ÅÄÖ STRAßE'", [3]),
    ("UPPER(msg) CONTAINS 'STRAẞE'", []),
    ("lower(msg) CONTAINS error", [1]),
    ("UPPER(LOWER(msg)) PREFIX ERR", [1]),
    # ts, in nanoseconds if it is a number
    ('ts = "1970-01-01T00:00:00.000002"', [2]),
    ('ts = "1970-01-01T00:00:00.0000025"', []),
    ('ts != "1970-01-01T00:00:00.000002"', [0, 1, 3, 4, 5]),
    ('ts != "1970-01-01T00:00:00.0000025"', [0, 1, 2, 3, 4, 5]),
    ('ts < "1970-01-01T00:00:00.000002"', [0, 1]),
    ('ts < "1970-01-01T00:00:00.000002001"', [0, 1, 2]),
    ('ts <= "1970-01-01T00:00:00.000002"', [0, 1, 2]),
    ('ts <= "1970-01-01T00:00:00.000001999"', [0, 1]),
    ('ts > "1970-01-01T00:00:00.000002"', [3, 4, 5]),
    ('ts > "1970-01-01T00:00:00.000001999"', [2, 3, 4, 5]),
    ('ts >= "1970-01-01T00:00:00.000002001"', [3, 4, 5]),
    ("ts > '1970-01-01T00:16:39Z'", [4]),
    ("ts >= '-1m'", [4]),
    ("ts < '9999-12-31'", [0, 1, 2, 3, 4, 5]),
    # fields and text columns; an absent value is empty
    ("who = ada", [0]),
    ("fields:who = ada", [0]),
    ("fields.who = ada", [0]),
    ("who = ''", [1, 3]),
    ("who != ada", [1, 2, 3, 4, 5]),
    ("UPPER(who) = ADA", [0, 4]),
    ("who < b", [0, 1, 3, 4]),
    ("who >= b", [2, 5]),
    ("who LIKE '[ab]*'", [0, 2]),
    ("who MATCHES '^.$'", [5]),
    ("fields:q = x", [0]),
    ("fields:q = ''", [1, 2, 3, 5]),
    ("LOWER(fields:q) = x", [0, 4]),
    ("fields:z > 0", [1]),
    ("fields:absent = ''", [0, 1, 2, 3, 4, 5]),
    ("fields:absent LIKE 'a*'", []),
    ("fields:data = ''", [0, 1, 2, 3, 4, 5]),  # the message is not a field
    # typed columns; an absent value is unequal to everything
    ("status = 404", [1]),
    ("status != 404", [0, 2, 3, 4, 5]),
    ("status >= 404", [1, 3]),
    ("status < 300.5", [0, 4]),
    ("status <= 301", [0, 4, 5]),
    ("status > 99999", []),
    ("status < 1e300", [0, 1, 3, 4, 5]),
    ("status != 99999", [0, 1, 2, 3, 4, 5]),
    ("status = 404.5", []),
    ("status = '404'", [1]),
    ("status CONTAINS 0", [0, 1, 3, 4, 5]),
    ("fields:status = 404", [1]),
    ("big = 18446744073709551615", [0]),
    ("big > -1", [0, 1, 3, 4, 5]),
    ("took > 1", [4, 5]),
    ("took != 2", [0, 1, 2, 3, 5]),
    ("far = 1e400", []),  # infinity is not equal to it
    ("far != 1e400", [0, 1, 2, 3, 4, 5]),
    ("far < 1e400", [0, 1, 3, 5]),
    ("far <= 1e400", [0, 1, 3, 5]),
    ("far > 1e400", [4]),
    ("far >= 1e400", [4]),
    ("far <= -1e400", [5]),
    ("far > -1e400", [0, 1, 3, 4]),
    ("far = 1e-400", []),  # 0 is not equal to it
    ("far < 1e-400", [0, 1, 5]),
    ("far >= 1e-400", [3, 4]),
    ("far > -1e-400", [0, 1, 3, 4]),
    ("far <= -1e-400", [5]),
    ("far = -0.0", [0, 1]),
    ("day = 1970-01-02", [1]),
    ("day != 1970-01-02", [0, 2, 3, 4, 5]),
    ("day < '1970-01-01 12:00'", [0, 3, 5]),
    ("day > '1970-01-01 12:00'", [1, 4]),
    ("day <= '-1d'", [3, 5]),
    ("fields:day >= 9999-12-31", [4]),
    ("ok = true", [0, 3, 4]),
    ("ok != TRUE", [1, 2, 5]),
    ("ok = false", [1, 5]),
    ("at >= '1970-01-01T00:02:00'", [3, 4, 5]),
    ("at = 60", [1]),
    ("none = x", []),
    ("none != x", [0, 1, 2, 3, 4, 5]),
    # paths into JSON
    ("msg.a.b = 5", [0]),
    ("msg.a.b > 6", [5]),
    ("msg.a.b != 5", [1, 2, 3, 4, 5]),
    ("msg.a.b = '7.5'", [5]),
    ("msg.k = v", [0]),
    ("msg.k != v", [1, 2, 3, 4, 5]),
    ("msg.k = ''", [1, 2, 3, 4, 5]),
    ("msg.l[0] = 1", [0]),
    ("msg.l[1].x = y", [0]),
    ("msg.l.1.x = y", [0]),
    ("msg.l[-1]['x'] = y", [0]),
    ("msg.l[7] = ''", [0, 1, 2, 3, 4, 5]),
    ("msg.t = true", [5]),
    ("msg.f = 1e22", [5]),
    ("msg.f = '1E22'", [5]),
    ("msg.n = ''", [0, 1, 2, 3, 4, 5]),
    ("msg.esc = Ab", [5]),
    ("msg.esc CONTAINS A", [5]),
    ("msg.a = '{\"b\": 5}'", [0]),
    ("msg.k LIKE 'v*'", [0]),
    ("msg.k MATCHES '^v$'", [0]),
    # AND, OR, NOT
    ("NOT msg CONTAINS ERROR", [0, 2, 3, 4, 5]),
    ("status >= 404 AND ok = true", [3]),
    ("status >= 404 OR ok = true", [0, 1, 3, 4]),
    ("NOT (status >= 404 OR ok = true)", [2, 5]),
    ("status >= 404 AND msg CONTAINS ERROR AND ts > 0", [1]),
    ("ok = true OR msg CONTAINS ERROR OR msg.a.b > 6", [0, 1, 3, 4, 5]),
    ("NOT status = 404 AND NOT status != 404", []),
]  # fmt: skip

REFUSED = [
    ("status = abc", "abc", "holds numbers"),
    ("ok > true", "true", "true or false"),
    ("ok = 1", "1", "true or false"),
    ("at > x", "x", "invalid time"),
    ("day = abc", "abc", "invalid time"),
    ("list = 1", "1", "cannot be compared; CONTAINS"),
    ("UPPER(msg.a) = X", "msg.a", "takes only msg"),
]


def matching(where: str, batch: pa.RecordBatch = BATCH) -> list[int]:
    mask = Filter.compile(parse_where(where), COLUMNS, NOW_NS).mask(batch)
    assert mask.null_count == 0
    return np.flatnonzero(mask).tolist()


@pytest.mark.parametrize(("where", "rows"), CONDITIONS, ids=[where for where, _ in CONDITIONS])
def test_condition_matches(where, rows):
    """A condition matches these rows and no others, also in another order and with repeated rows."""
    assert matching(where) == rows
    assert matching(where, BATCH.take(pa.array([5, 4, 3, 2, 1, 0]))) == sorted(5 - row for row in rows)
    often = BATCH.take(pa.array(np.repeat(np.arange(6), [1, 9, 1, 1, 30, 1])))
    origin = np.repeat(np.arange(6), [1, 9, 1, 1, 30, 1])
    assert matching(where, often) == [i for i, row in enumerate(origin) if row in rows]
    assert matching(where, BATCH.slice(0, 0)) == []


@pytest.mark.parametrize(
    "kind", [pa.binary(), pa.large_binary(), pa.binary_view(), pa.dictionary(pa.int32(), pa.binary())], ids=str
)
def test_paths_into_bytes_that_are_no_text(kind):
    """A message that is not UTF-8 is not JSON, as for fields of payloads."""
    messages = pa.array([b'{"k":"\xff"}', b'{"k":1,"x":"\xff"}', '{"k":"é"}'.encode()], kind)
    batch = pa.record_batch({"timestamp": pa.array([1, 2, 3]), "data": messages})
    for where, rows in (("msg.k = ''", [0, 1]), ("msg.k != ''", [2]), ("msg.k = 1", []), ("msg.k = é", [2])):
        mask = Filter.compile(parse_where(where), Columns(batch.schema), NOW_NS).mask(batch)
        assert np.flatnonzero(mask).tolist() == rows, where
    assert path_text(("k",), messages).to_pylist() == [None, None, "é"]


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("stats", "did you mean status"),
        ("quux", "fields:quux"),
        ("data", "did you mean msg"),
        ("Timestamp", "did you mean ts"),
    ],
)
def test_a_name_of_nothing(name, told):
    """Without a map of fields, a name must be that of a column or an existing tag."""
    columns = Columns(pa.schema([field for field in BATCH.schema if field.name != "more"]))
    with pytest.raises(LqlError) as caught:
        Filter.compile(parse_where(f"{name} = 5"), columns, NOW_NS)
    assert told in f"{caught.value.message}; {caught.value.hint}"
    Filter.compile(parse_where(f"{name} = 5"), replace(columns, tag_names=frozenset({name})), NOW_NS)


@pytest.mark.parametrize(("where", "underlined", "told"), REFUSED, ids=[where for where, *_ in REFUSED])
def test_condition_is_refused(where, underlined, told):
    """A condition that the columns do not allow is refused with its place."""
    with pytest.raises(LqlError) as caught:
        Filter.compile(parse_where(where), COLUMNS, NOW_NS)
    error = caught.value
    assert told in f"{error.message}; {error.hint}"
    assert where[error.start : error.end] == underlined


@pytest.mark.parametrize("type_", [pa.decimal128(20, 0), pa.decimal256(40, 4), pa.decimal128(5, -2)])
@pytest.mark.parametrize("op", SYMBOLS)
def test_decimals_are_compared_exactly(type_, op):
    """A topic's signed and unsigned numbers are read as decimals and compared exactly, not as floats."""
    most = 10 ** (type_.precision - max(type_.scale, 0)) * 10 ** max(-type_.scale, 0)
    held = [most - 10 ** max(-type_.scale, 0), 0, None]
    column = pa.array([None if value is None else Decimal(value) for value in held], type_)
    batch = pa.record_batch({"timestamp": pa.array([1, 2, 3]), "data": [b""] * 3, "n": column})
    names = {"=": "eq", "!=": "ne", "<": "lt", "<=": "le", ">": "gt", ">=": "ge"}
    compare = getattr(operator, names[op])
    for value in [held[0], held[0] - 1, held[0] + 1, most, -most, Decimal("-0.00001"), Decimal("0.5")]:
        found = (
            Filter.compile(parse_where(f"n {op} {Decimal(value):f}"), Columns(batch.schema), NOW_NS)
            .mask(batch)
            .to_pylist()
        )
        assert found == [op == "!=" if one is None else compare(Fraction(one), Fraction(value)) for one in held]


def test_fields_are_not_the_columns_with_a_meaning():
    """`fields:data` is an ordinary field, which no record has, even without a map of fields."""
    compiled = Filter.compile(parse_where("fields:data = '' AND fields:timestamp = ''"), Columns(BATCH.schema), NOW_NS)
    assert compiled.columns == {"timestamp"}  # any column, for the number of rows
    assert compiled.mask(BATCH).true_count == BATCH.num_rows


def test_broken_json_is_none():
    """An incomplete JSON document, or one followed by more text, has no values."""
    texts = ['{"k": "v"', '{"k": "v"} x', '{"k": "v"}{"k": "v"}', ' {"k": "v"}\n', "", "[]", '{"k": "w", "k": "v"}']
    batch = pa.record_batch({"timestamp": pa.nulls(len(texts), pa.int64()), "data": texts})
    mask = Filter.compile(parse_where("msg.k = v"), Columns(batch.schema, tags=None), 0).mask(batch)
    assert np.flatnonzero(mask).tolist() == [3, 6]


@pytest.mark.parametrize(
    ("where", "rows"),
    [
        ('msg["-0"] = minus', [0]),
        ('msg["-1"] = last', [0]),
        ('msg.l["-1"] = 2', []),
        ("msg.l[-1] = 2", [0]),
        ("msg.l[9223372036854775807] = 2", []),
        ("msg.l[-9223372036854775807] = 2", []),
        ("msg[9223372036854775807] = big", [0]),
    ],
)
def test_steps_that_look_like_numbers(where, rows):
    """A quoted step is a key; an unquoted number is a key or an array position."""
    texts = ['{"-0": "minus", "-1": "last", "9223372036854775807": "big", "l": [1, 2]}']
    batch = pa.record_batch({"timestamp": pa.nulls(len(texts), pa.int64()), "data": texts})
    mask = Filter.compile(parse_where(where), Columns(batch.schema, tags=None), 0).mask(batch)
    assert np.flatnonzero(mask).tolist() == rows


def test_columns_are_those_that_are_read():
    """A filter lists its columns and needs no others."""
    where = parse_where("status = 404 AND msg CONTAINS ERROR AND fields:absent = '' AND ts > 0")
    compiled = Filter.compile(where, COLUMNS, NOW_NS)
    assert compiled.columns == {"status", "data", "timestamp", "more"}
    only = BATCH.select(["more", "timestamp", "data", "status"])
    assert compiled.apply(only) == only.slice(1, 1)
    assert Filter.compile(None, COLUMNS, NOW_NS).columns == frozenset()
    assert Filter.compile(None, COLUMNS, NOW_NS).apply(only) == only


@pytest.mark.parametrize(
    "type_", [pa.string(), pa.large_string(), pa.large_binary(), pa.string_view(), pa.binary_view()]
)
def test_types_of_text(type_):
    """Messages and fields may have any text type."""
    texts = ["ERROR one", None, "fine", "åäö"]
    values = [None if t is None else t.encode() for t in texts] if "binary" in str(type_) else texts
    batch = pa.record_batch(
        {"timestamp": pa.array([1, 2, 3, 4]), "data": pa.array(values, type_), "f": pa.array(values, type_)}
    )
    columns = Columns(batch.schema, tags=None)
    for where, rows in [
        ("msg CONTAINS ERROR", [0]),
        ("f LIKE '?äö'", [3]),
        ("UPPER(f) = FINE", [2]),
        ("f = ''", [1]),
        ("f < f", [0, 1]),
    ]:
        mask = Filter.compile(parse_where(where), columns, 0).mask(batch)
        assert np.flatnonzero(mask).tolist() == rows, where


# ---------------------------------------------------------------- against plain Python

letters = st.text("aAbß\0é*é\n", max_size=5)


def plainly(op: str, text: str, value: str) -> bool:
    left, right = text.encode(), value.encode()
    return {
        "=": left == right, "!=": left != right, "<": left < right, "<=": left <= right, ">": left > right,
        ">=": left >= right, "CONTAINS": right in left,
        "PREFIX": left.startswith(right), "SUFFIX": left.endswith(right),
        "LIKE": re.fullmatch("".join(".*" if c == "*" else re.escape(c) for c in value), text, re.DOTALL) is not None,
    }[op]  # fmt: skip


def holds(expression, row: dict[str, str | None]) -> bool:
    match expression:
        case Condition(Name(name), op, value):
            return plainly(op, row[name] or "", value.text)
        case Not(term):
            return not holds(term, row)
        case And(terms):
            return all(holds(term, row) for term in terms)
        case Or(terms):
            return any(holds(term, row) for term in terms)


operators = st.sampled_from([*SYMBOLS, "CONTAINS", "PREFIX", "SUFFIX", "LIKE"])
comparisons = st.builds(Condition, st.sampled_from([Name("x"), Name("y")]), operators, letters.map(Value))
expressions = st.recursive(
    comparisons,
    lambda terms: st.one_of(
        terms.map(Not),
        st.lists(terms, min_size=2, max_size=3).map(all_of),
        st.lists(terms, min_size=2, max_size=3).map(any_of),
    ),
    max_leaves=6,
)
maybe_letters = st.one_of(st.none(), letters)
rows_of = st.lists(st.fixed_dictionaries({"x": maybe_letters, "y": maybe_letters}), min_size=1, max_size=40)


@examples(300)
@given(expressions, rows_of, st.booleans())
def test_against_plain_python(expression, rows, in_dictionary):
    """The vectorised mask equals a plain evaluator for every row."""
    x = pa.array([row["x"] for row in rows], pa.string())
    y = pa.array([None if row["y"] is None else row["y"].encode() for row in rows], pa.binary())
    batch = pa.record_batch(
        {
            "timestamp": pa.nulls(len(rows), pa.int64()),
            "data": y,
            "x": x.dictionary_encode() if in_dictionary else x,
            "y": y,
        }
    )
    mask = Filter.compile(expression, Columns(batch.schema, tags=None), 0).mask(batch)
    assert mask.to_pylist() == [holds(expression, row) for row in rows]


@examples(200)
@given(strategies.event_expressions)
def test_any_expression_evaluates_or_is_refused(expression):
    """Any condition that parses is evaluated, or refused for its columns; time span and equalities exclude no match."""
    batch = BATCH.set_column(BATCH.schema.get_field_index("who"), "who", BATCH["who"].dictionary_decode())
    try:
        mask = Filter.compile(expression, Columns(batch.schema, extra="more"), NOW_NS).mask(batch)
    except LqlError:
        return
    assert mask.null_count == 0
    found = batch.filter(mask)
    span = time_span(expression, NOW_NS)
    stamps = found["timestamp"].cast(pa.int64()).to_pylist()
    assert all(span.start_us is None or span.start_us <= stamp for stamp in stamps)
    assert all(span.end_us is None or stamp < span.end_us for stamp in stamps)
    for name, values in equalities(expression).items():
        if name == "who":
            numbers = {value for value in values if value.number}
            assert numbers or set(found[name].to_pylist()) <= {value.text for value in values}


SPANS = [
    ("msg CONTAINS x", TimeSpan()),
    ('ts >= "1970-01-01T00:00:00.000005"', TimeSpan(5)),
    ('ts > "1970-01-01T00:00:00.000005"', TimeSpan(6)),
    ('ts > "1970-01-01T00:00:00.000005001"', TimeSpan(6)),
    ('ts < "1970-01-01T00:00:00.000005"', TimeSpan(None, 5)),
    ('ts < "1970-01-01T00:00:00.000005001"', TimeSpan(None, 6)),
    ('ts <= "1970-01-01T00:00:00.000005"', TimeSpan(None, 6)),
    ('ts = "1970-01-01T00:00:00.000005"', TimeSpan(5, 6)),
    ('ts != "1970-01-01T00:00:00.000005"', TimeSpan()),
    ('NOT ts != "1970-01-01T00:00:00.000005"', TimeSpan(5, 6)),
    ('NOT ts < "1970-01-01T00:00:00.000005"', TimeSpan(5)),
    ('ts >= "1970-01-01T00:00:00.000005" AND ts < "1970-01-01T00:00:00.000009" AND msg CONTAINS x', TimeSpan(5, 9)),
    ('ts >= "1970-01-01T00:00:00.000005" OR msg CONTAINS x', TimeSpan()),
    ('ts = "1970-01-01T00:00:00.000005" OR ts = "1970-01-01T00:00:00.000009"', TimeSpan(5, 10)),
    (
        'ts > "1970-01-01T00:00:00.000009" AND ts < "1970-01-01T00:00:00.000005" OR ts = "1970-01-01T00:00:00.000003"',
        TimeSpan(3, 4),
    ),
    ('NOT (ts < "1970-01-01T00:00:00.000005" OR ts > "1970-01-01T00:00:00.000009")', TimeSpan(5, 10)),
    ("ts >= '-1m'", TimeSpan(940_000_000)),
]


@pytest.mark.parametrize(("where", "span"), SPANS, ids=[where for where, _ in SPANS])
def test_time_span(where, span):
    """The time span contains all times that can match."""
    assert time_span(parse_where(where), NOW_NS) == span


ADA, FIVE = Value("ada"), Value("5", number=True)
EQUALITIES = [
    ("who = ada", {"who": {ADA}}),
    ("fields:who = ada", {"who": {ADA}}),
    ("who != ada", {}),
    ("NOT who != ada", {"who": {ADA}}),
    ("who = ''", {}),
    ("who = ada OR who = bob", {"who": {ADA, Value("bob")}}),
    ("who = ada OR status = 5", {}),
    ("who = ada AND status = 5", {"who": {ADA}, "status": {FIVE}}),
    ("who = ada AND who = bob", {"who": set()}),
    ("(who = ada OR who = '') AND status = 5", {"status": {FIVE}}),
    ("UPPER(who) = ADA", {}),
    ("msg = x AND ts = 5 AND msg.a = 1", {}),
    ("NOT (who != ada OR status != 5)", {"who": {ADA}, "status": {FIVE}}),
]


@pytest.mark.parametrize(("where", "expected"), EQUALITIES, ids=[where for where, _ in EQUALITIES])
def test_equalities(where, expected):
    """The equalities are the values to look up in indexes."""
    assert equalities(parse_where(where)) == expected


def test_work_is_bounded():
    """Patterns that hang backtracking engines take linear time over long texts."""
    texts = pa.array(["a" * 2000] * 200)
    batch = pa.record_batch({"timestamp": pa.nulls(200, pa.int64()), "data": texts})
    for where in ["msg MATCHES '(a+)+$b'", "msg MATCHES '(a|aa)*c'", "msg LIKE '" + "*a" * 200 + "*b'", "msg.a.b = 1"]:
        assert not pc.any(Filter.compile(parse_where(where), Columns(batch.schema), 0).mask(batch)).as_py()
    deep = pa.record_batch({"timestamp": pa.nulls(1, pa.int64()), "data": pa.array(["[" * 100_000 + "]" * 100_000])})
    assert not Filter.compile(parse_where("msg[0][0] = 1"), Columns(deep.schema), 0).mask(deep)[0].as_py()
