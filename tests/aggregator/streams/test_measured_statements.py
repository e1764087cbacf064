"""Statements over a catalog with measures, DISTINCT, and tags in WHERE."""

from __future__ import annotations

import pytest
from effort import share_of

import aggregator


@pytest.fixture(params=["sealed", "fresh"])
def catalog(request, tmp_path):
    """Two streams and an ordinary topic, sealed or not."""
    with aggregator.open(tmp_path / "data") as opened:
        for zone in ("eu", "us"):
            lines = [{"ts": n + 1, "msg": f"GET {n}", "took": 10 * n, "user": f"u{n % 2}"} for n in range(4)]
            opened.write({"app": "web", "zone": zone}, lines)
        shop = opened.create_topic("sales", indexes=["kind"])
        shop.append(
            [{"space": f"c{n % 3}", "timestamp": n + 1, "kind": "buy", "price": n / 2, "count": n} for n in range(6)]
        )
        if request.param == "sealed":
            opened.seal()
        yield opened


def rows(catalog, statement: str) -> list[tuple]:
    return [tuple(row.values()) for row in catalog.query(statement).to_pylist()]


def test_measures(catalog):
    """Measures work over columns of a topic and fields of streams."""
    statement = "SELECT COUNT, SUM(price), MAX(price), P50(price) FROM topic = sales GROUP BY space"
    assert rows(catalog, statement) == [("c0", 2, 1.5, 1.5, 0.0), ("c1", 2, 2.5, 2.0, 0.5), ("c2", 2, 3.5, 2.5, 1.0)]
    assert rows(catalog, "SELECT SUM(fields:took), AVG(took), COUNT(DISTINCT user) FROM app = web") == [(120, 15, 2)]


def test_distinct(catalog):
    """DISTINCT returns each combination of columns and tags once."""
    assert rows(catalog, "SELECT DISTINCT zone, user FROM app = web") == [
        ("eu", "u0"), ("eu", "u1"), ("us", "u0"), ("us", "u1")
    ]  # fmt: skip
    assert rows(catalog, "SELECT DISTINCT topic, kind FROM topic = sales LIMIT 1") == [("sales", "buy")]


@pytest.mark.parametrize(
    ("where", "count"),
    share_of([
        ("zone = eu", 4),
        ("zone = eu OR kind = buy", 10),
        ("NOT zone = eu", 10),
        ("zone LIKE 'e*' AND fields:took >= 20", 2),
        ("UPPER(app) = WEB AND user = u1", 4),
        ("topic = sales AND space = c1", 2),
        ("space > c1 AND price > 1", 1),
        ("partition = 0", 6),
    ], 2),
)  # fmt: skip
def test_tags_in_conditions(catalog, where, count):
    """WHERE accepts the same names as GROUP BY, alone, combined and negated, for reading and counting."""
    where = where.replace("partition =", "`partition` =")
    assert rows(catalog, f"SELECT COUNT WHERE {where}") == [(count,)]
    answer = catalog.query(f"SELECT WHERE {where}")
    assert answer.count() == count
    assert sum(batch.num_rows for batch in answer.batches()) == count


def test_a_mistyped_name_is_told(catalog):
    """A name that is almost a column's causes a warning, although it could be a field of a record."""
    assert catalog.query("SELECT WHERE prices = 1").warnings == [
        "no topic that is read has a column 'prices': did you mean price?"
    ]
    assert catalog.query("SELECT WHERE zone = eu").warnings == []


@pytest.mark.parametrize(
    ("measures", "found"),
    [
        ("COUNT", {"count": 5}),
        ("COUNT, COUNT(ts)", {"count": 5, "COUNT(ts)": 5}),
        ("COUNT(fields:none)", {"COUNT(fields:none)": 0}),
        ("COUNT, AVG(fields:none)", {"count": 5, "AVG(fields:none)": None}),
        ("MAX(fields:none)", {"MAX(fields:none)": None}),
        ("COUNT(DISTINCT fields:none)", {"COUNT(DISTINCT fields:none)": 0}),
        ("P50(fields:none)", {"P50(fields:none)": None}),
    ],
)
def test_measures_that_read_no_column(tmp_path, measures, found):
    """Rows can be counted without a column; measures of a field that no record has are null or 0."""
    with aggregator.open(tmp_path / "plain") as catalog:
        topic = catalog.create_topic("t")
        topic.append([{"space": "a", "timestamp": n} for n in range(3)])
        catalog.seal()
        topic.append([{"space": "b", "timestamp": n} for n in range(2)])
        assert catalog.query(f"SELECT {measures}").to_pylist() == [found]
