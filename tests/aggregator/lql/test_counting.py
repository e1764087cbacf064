"""COUNT and GROUP BY give the counts and keys of a plain dictionary."""

from __future__ import annotations

from collections import Counter as PlainCounter

import numpy as np
import pyarrow as pa
import pytest

from aggregator.lql import Columns, Counter, LqlError, parse_statement
from aggregator.lql.run import counting, groups

MINUTE = 60_000_000
BATCH = pa.record_batch(
    {
        "timestamp": pa.array([-1, 0, MINUTE - 1, MINUTE, None], pa.timestamp("us", "UTC")),
        "data": [b'{"u": {"id": 1}}', b'{"u": {"id": "1"}}', b"none", None, b'{"u": {"id": [1]}}'],
        "space": pa.array(["{app=web}", "{app=db}", "{app=web}", "{zone=eu}", "{app=Web}"]).dictionary_encode(),
        "status": pa.array([200, 200, 404, None, 200], pa.int16()),
        "who": pa.array(["a", "b", "a", "a", None]).dictionary_encode(),
        "more": pa.array([[("q", "x")], None, [("q", "x")], [], []], pa.map_(pa.string(), pa.string())),
    }
)
COLUMNS = Columns(BATCH.schema, extra="more")

GROUPS = [
    ("status", {(200,): 3, (404,): 1, (None,): 1}),
    ("app", {("web",): 2, ("db",): 1, ("Web",): 1, (None,): 1}),
    ("UPPER(app)", {("WEB",): 3, ("DB",): 1, (None,): 1}),
    ("fields:q", {("x",): 2, (None,): 3}),
    ("fields:app", {(None,): 5}),
    ("q", {("x",): 2, (None,): 3}),
    ("msg.u.id", {("1",): 2, ("[1]",): 1, (None,): 2}),
    ("who, status", {("a", 200): 1, ("b", 200): 1, ("a", 404): 1, ("a", None): 1, (None, 200): 1}),
    ("who, who", {("a", "a"): 3, ("b", "b"): 1, (None, None): 1}),
    ("ts EVERY '1m'", {(-MINUTE,): 1, (0,): 2, (MINUTE,): 1, (None,): 1}),
]


def counted(keys: str, *batches: pa.RecordBatch) -> dict[tuple[object, ...], int]:
    counter = Counter(parse_statement(f"SELECT COUNT GROUP BY {keys}").group_by, COLUMNS)
    for batch in batches:
        counter.add(batch)
    table = counter.table()
    columns = [
        (column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column).to_pylist()
        for column in table.columns
    ]
    rows = list(zip(*columns, strict=True))
    assert table.column_names[-1] == "count"
    assert len({row[:-1] for row in rows}) == len(rows)
    return {row[:-1]: row[-1] for row in rows}


@pytest.mark.parametrize(("keys", "expected"), GROUPS, ids=[keys for keys, _ in GROUPS])
def test_group_by(keys, expected):
    """There is one row per group, over one batch and over many small ones that are merged repeatedly."""
    assert counted(keys, BATCH) == expected
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(groups, "MERGE_ROWS", 3)
        assert counted(keys, *[BATCH.slice(i, 1) for i in range(5)] * 3) == {k: 3 * n for k, n in expected.items()}


def test_groups_ascend():
    """Groups are in key order, and columns have the keys' names."""
    counter = Counter(parse_statement("SELECT COUNT GROUP BY who, ts EVERY 60s").group_by, COLUMNS)
    counter.add(BATCH)
    assert counter.table().column_names == ["who", 'ts EVERY "1m"', "count"]
    assert counter.table()["who"].to_pylist() == ["a", "a", "a", "b", None]


def test_count_of_all():
    """Without keys there is a single count."""
    counter = Counter((), COLUMNS)
    assert counter.table().to_pylist() == [{"count": 0}]
    counter.add(BATCH)
    counter.add(BATCH.slice(2))
    assert counter.table().to_pylist() == [{"count": 8}]


def test_nothing_to_group():
    """Without rows there are no groups."""
    assert counted("app", BATCH.slice(0, 0)) == {}


def test_groups_are_bounded(monkeypatch):
    """Too many groups cause an error instead of filling the memory."""
    monkeypatch.setattr(counting, "MAX_GROUPS", 2)
    with pytest.raises(LqlError, match="more than 2 groups"):
        counted("app", BATCH)


def test_against_a_plain_counter():
    """Counts over many batches with many values equal a plain counter's."""
    chance = np.random.default_rng(5)
    batches, plain = [], PlainCounter()
    for _ in range(20):
        rows = chance.integers(0, 5, 500)
        batches.append(BATCH.take(pa.array(rows)))
        plain.update((BATCH["who"][int(row)].as_py(), BATCH["status"][int(row)].as_py()) for row in rows)
    assert counted("who, status", *batches) == dict(plain)


@pytest.mark.parametrize(("order", "sign"), [("DESC", -1), ("ASC", 1), ("", 1)])
def test_most_frequent_first(order, sign):
    """Groups are ordered by count, ties by key, as in a full sort."""
    statement = parse_statement(f"SELECT COUNT GROUP BY who, status ORDER BY count {order} LIMIT 3")
    chance, plain = np.random.default_rng(6), PlainCounter()
    schema = pa.schema([("timestamp", pa.int64()), ("who", pa.string()), ("status", pa.int64())])
    counter = Counter(statement.group_by, Columns(schema, tags=None))
    for _ in range(20):
        who = [f"w{n}" for n in chance.zipf(2.0, 300).clip(max=9)]
        status = chance.integers(0, 3, 300).tolist()
        plain.update(zip(who, status, strict=True))
        counter.add(pa.record_batch([pa.array([0] * 300), who, status], schema=schema))
    table = counter.table(statement.most_first)
    rows = list(zip(*(column.to_pylist() for column in table.columns), strict=True))
    assert rows == sorted(((*keys, n) for keys, n in plain.items()), key=lambda row: (sign * row[2], row[:2]))
