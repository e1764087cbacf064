"""SUM, AVG, MIN, MAX, percentiles and DISTINCT equal DuckDB and plain Python over the same rows."""

from __future__ import annotations

import math
from decimal import Decimal

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from effort import examples
from hypothesis import given
from hypothesis import strategies as st

from aggregator.lql import Columns, Counter, LqlError, parse_statement
from aggregator.lql.run import counting, groups

INT64 = (-(2**63), 2**63 - 1)
SCHEMA = pa.schema([
    ("timestamp", pa.timestamp("us", "UTC")), ("data", pa.binary()), ("space", pa.string()),
    ("key", pa.string()), ("whole", pa.int64()), ("small", pa.uint8()), ("real", pa.float64()),
    ("money", pa.decimal128(9, 2)), ("text", pa.string()), ("day", pa.date32()), ("flag", pa.bool_()),
    ("more", pa.map_(pa.string(), pa.string())),
])  # fmt: skip
COLUMNS = Columns(SCHEMA, extra="more")
ALL = (
    "COUNT, SUM(whole), AVG(whole), MIN(whole), MAX(whole), P50(whole), PERCENTILE(whole, 99.9), COUNT(DISTINCT whole)"
)
REAL = "COUNT(real), SUM(real), AVG(real), MIN(real), MAX(real), P1(real), P95(real)"


def answer(statement: str, table: pa.Table, rows: int = 7) -> pa.Table:
    """Run the statement over the table in batches of this many rows."""
    select = parse_statement(statement)
    counter = Counter(select.group_by, COLUMNS, select.measures, distinct=select.distinct)
    for batch in table.to_batches(max_chunksize=rows):
        counter.add(batch)
    return counter.table(select.most_first, select.order_by)


def table_of(rows: list[dict]) -> pa.Table:
    return pa.Table.from_pylist(
        [{"timestamp": n, "data": b"", "space": "{a=b}", **row} for n, row in enumerate(rows)], SCHEMA
    )


rows = st.fixed_dictionaries({
    "key": st.sampled_from(["a", "b", None]),
    "whole": st.one_of(st.none(), st.integers(*INT64), st.integers(-3, 3)),
    "real": st.one_of(st.none(), st.integers(-50, 50).map(lambda n: n / 4)),
})  # fmt: skip


@examples(60)
@given(st.lists(rows, max_size=40), st.integers(1, 9), st.booleans())
def test_against_duckdb(given_rows, batch_rows, often):
    """Results over 64-bit integers are exact, however batches are cut and partial results combined."""
    table = table_of(given_rows)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(groups, "MERGE_ROWS", 1 if often else 1000)
        mine = answer(f"SELECT {ALL} GROUP BY key", table, batch_rows)
        real = answer(f"SELECT {REAL} GROUP BY key", table, batch_rows)
        whole = answer(f"SELECT {REAL}", table, batch_rows)
    connection = duckdb.connect()
    connection.register("t", table.select(["key", "whole", "real"]))
    exact = connection.sql(
        "SELECT key, count(*), sum(whole), min(whole), max(whole), count(DISTINCT whole) FROM t GROUP BY key "
        "ORDER BY key NULLS LAST"
    ).fetchall()
    taken = mine.select([0, 1, 2, 4, 5, 8]).to_pydict()
    assert [
        tuple(None if v is None else v if isinstance(v, str) else int(v) for v in row)
        for row in zip(*taken.values(), strict=True)
    ] == exact
    floats = "count(real), sum(real), avg(real), min(real), max(real)"
    assert (
        list(zip(*real.select(range(6)).to_pydict().values(), strict=True))
        == connection.sql(f"SELECT key, {floats} FROM t GROUP BY key ORDER BY key NULLS LAST").fetchall()
    )
    assert [tuple(row.values()) for row in whole.select(range(5)).to_pylist()] == connection.sql(
        f"SELECT {floats} FROM t"
    ).fetchall()
    for keys, group in [(row["key"], row) for row in real.to_pylist()] + [((), whole.to_pylist()[0])]:
        values = [row["real"] for row in given_rows if row["real"] is not None and keys in ((), row["key"])]
        for percent in (1, 95):
            wanted = np.percentile(values, percent, method="inverted_cdf") if values else None
            assert group[f"P{percent}(real)"] == wanted


def test_sums_do_not_overflow():
    """A sum beyond int64 keeps all its digits."""
    table = table_of([{"whole": 2**63 - 1}] * 3)
    assert answer("SELECT SUM(whole), AVG(whole)", table).to_pylist() == [
        {"SUM(whole)": Decimal(3 * (2**63 - 1)), "AVG(whole)": float(2**63)}
    ]
    assert answer("SELECT SUM(whole)", table.slice(0, 1)).column(0).type == pa.int64()


MIXED = [
    {"text": "7", "real": 1.0, "more": [("took", "10")]},
    {"text": " 1e1 ", "real": math.nan, "more": [("took", "n/a")]},
    {"text": "n/a", "real": math.inf},
    {"text": None, "real": None, "more": [("took", "2.5")]},
    {"text": "NaN", "real": -1.0},
    {"text": "+3"},
]


@pytest.mark.parametrize(
    ("measures", "expected"),
    [
        ("SUM(text), AVG(text), MIN(text), MAX(text), COUNT(text)", (20.0, 20 / 3, 3.0, 10.0, 5)),
        ("SUM(fields:took), MAX(took), COUNT(took), COUNT(DISTINCT took)", (12.5, 10.0, 3, 3)),
        ("SUM(real), MIN(real), P50(real), COUNT(real)", (math.inf, -1.0, 1.0, 4)),
        ("COUNT(a), COUNT(DISTINCT a), SUM(a)", (6, 1, None)),
        ("MIN(day), MAX(day), SUM(money), COUNT(flag)", (None, None, None, 0)),
    ],
)  # fmt: skip
def test_mixed_values(measures, expected):
    """In text, numeric values count; among numbers, all but NaN; absent values never count."""
    assert tuple(answer(f"SELECT {measures}", table_of(MIXED), 2).to_pylist()[0].values()) == expected


def test_times_and_types():
    """MIN and MAX keep the column's type; sums of decimals are exact."""
    found = answer("SELECT MIN(ts), MAX(small), SUM(small), SUM(money)", table_of([
        {"small": 255, "money": Decimal("0.10")}, {"small": 255, "money": Decimal("0.20")}
    ])).to_pylist()  # fmt: skip
    assert found[0]["MIN(ts)"].year == 1970
    assert (found[0]["MAX(small)"], found[0]["SUM(small)"], found[0]["SUM(money)"]) == (255, 510, Decimal("0.30"))


@pytest.mark.parametrize(
    ("measure", "told"),
    [("SUM(flag)", "flag is of type bool"), ("SUM(ts)", "takes numbers; ts"), ("AVG(day)", "is of type date32")],
)  # fmt: skip
def test_what_has_no_sum(measure, told):
    """A sum over a non-numeric column is refused before any row is read."""
    with pytest.raises(LqlError, match=told):
        answer(f"SELECT {measure}", table_of([]))


def test_distinct_rows():
    """SELECT DISTINCT returns each combination once and nothing else."""
    table = table_of([{"key": "a", "small": 1}, {"key": "b", "small": 1}, {"key": "a", "small": 1}, {}])
    assert answer("SELECT DISTINCT key, small", table, 2).to_pylist() == [
        {"key": "a", "small": 1}, {"key": "b", "small": 1}, {"key": None, "small": None}
    ]  # fmt: skip


@pytest.mark.parametrize("bits", [16, 32, 64])
def test_floats_that_are_the_same(bits):
    """Both zeros are one value, as for `=`, and all NaN are one, as in DuckDB; floats of any width can be grouped."""
    unsigned, real = np.dtype(f"u{bits // 8}"), np.dtype(f"f{bits // 8}")
    nans = np.array([np.nan] * 2, real)
    nans.view(unsigned)[1] += 1
    values = np.concatenate([np.array([0.0, -0.0, 1.0], real), nans, -nans])
    table = pa.table({"real": pa.array(values), "timestamp": range(len(values))})
    columns = Columns(table.schema)
    for statement, expected in [
        ("SELECT COUNT GROUP BY real", [(0.0, 2), (1.0, 1), ("nan", 4)]),
        ("SELECT COUNT(DISTINCT real)", [(3,)]),
        ("SELECT DISTINCT real", [(0.0,), (1.0,), ("nan",)]),
    ]:
        select = parse_statement(statement)
        counter = Counter(select.group_by, columns, select.measures, distinct=select.distinct)
        for batch in table.to_batches(max_chunksize=1):
            counter.add(batch)
        rows = zip(*counter.table().to_pydict().values(), strict=True)
        assert [tuple("nan" if value != value else value for value in row) for row in rows] == expected


def test_order_by_a_measure():
    """The largest sums come first, groups without a sum last."""
    table = table_of([{"key": "a", "whole": 1}, {"key": "b", "whole": 5}, {"key": None}, {"key": "a", "whole": 2}])
    found = answer("SELECT SUM(whole), COUNT GROUP BY key ORDER BY SUM(whole) DESC", table)
    assert found.to_pydict() == {"key": ["b", "a", None], "SUM(whole)": [5, 3, None], "count": [1, 2, 1]}


def test_too_many_values(monkeypatch):
    """Beyond the limit, percentiles are approximate with a warning; counts of distinct values are refused."""
    monkeypatch.setattr(groups, "MERGE_ROWS", 100)
    monkeypatch.setattr(counting, "MAX_GROUPS", 8_000)
    values = np.random.default_rng(3).lognormal(3, 2, 30_000)
    table = pa.table({"real": values, "timestamp": [0] * len(values)}).select(["timestamp", "real"])
    select = parse_statement("SELECT P50(real), P99(real), PERCENTILE(real, 0)")
    counter = Counter((), COLUMNS, select.measures)
    for batch in table.to_batches(max_chunksize=1000):
        counter.add(batch)
    found = list(counter.table().to_pylist()[0].values())
    assert found == pytest.approx(np.percentile(values, [50, 99, 0], method="inverted_cdf"), rel=1e-3)
    assert found != np.percentile(values, [50, 99, 0], method="inverted_cdf").tolist()
    assert counter.warnings
    with pytest.raises(LqlError, match="more than 8000 different values"):
        answer("SELECT COUNT(DISTINCT real)", table, 1000)


REFUSED = [
    ("SELECT SUM(x, 3)", "SUM takes one operand"),
    ("SELECT PERCENTILE(x)", "PERCENTILE needs a number"),
    ("SELECT PERCENTILE(x, 101)", "from 0 to 100"),
    ("SELECT SUM(x), SUM(x)", "duplicate measure"),
    ("SELECT SUM(UPPER(x))", "UPPER returns text"),
    ("SELECT DISTINCT x GROUP BY y", "DISTINCT already groups"),
    ("SELECT SUM(x) GROUP BY y ORDER BY MAX(x)", "ORDER BY names a measure that SELECT does not list"),
    ("SELECT SUM(x) GROUP BY y ORDER BY x", "write ts, or with GROUP BY a selected measure, such as COUNT or SUM(x)"),
    ("SELECT COUNT(*)", "SELECT COUNT counts all records"),
    ("SELECT FROM a = b WHERE SUM(x) > 3", "was not expected here"),
]


@pytest.mark.parametrize(("text", "told"), REFUSED, ids=[text for text, _ in REFUSED])
def test_refused(text, told):
    """Invalid statements are refused with the place of the mistake."""
    with pytest.raises(LqlError) as caught:
        parse_statement(text)
    assert told in f"{caught.value.message}; {caught.value.hint}"
    assert caught.value.start < caught.value.end


def test_decimals_become_the_nearest_float():
    """A percentile is a value that occurs; Arrow's own cast makes -99.99000000000001 of -99.99."""
    (row,) = answer("SELECT P50(money), AVG(money)", table_of([{"money": Decimal("-99.99")}])).to_pylist()
    assert list(row.values()) == [-99.99, -99.99]
