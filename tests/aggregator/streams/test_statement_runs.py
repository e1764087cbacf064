"""Every kind of LQL statement over a small catalog: a table of statements and answers."""

from __future__ import annotations

import datetime as dt

import pyarrow as pa
import pytest

import aggregator

DAY = 86_400_000_000
RECORDS = {
    "{app=web,zone=eu}": [(1, "GET /a", "200"), (3, "GET /b", "404"), (5, '{"took": 12, "who": {"id": "7"}}', "200")],
    "{app=web,zone=us}": [(2, "POST /a", "500")],
    "{app=db}": [(4, "slow query", None), (DAY + 1, "Slow Query", None)],
}


@pytest.fixture(scope="module", params=["sealed", "unsealed"])
def catalog(request, tmp_path_factory):
    with aggregator.open(tmp_path_factory.mktemp("c") / "c") as opened:
        opened.create_topic("logs", pa.schema([("data", pa.binary()), ("size", pa.int64())]), indexes=["size"])
        for stream, records in RECORDS.items():
            tags = dict(pair.split("=") for pair in stream.strip("{}").split(","))
            rows = [
                {"ts": ts, "msg": msg, "size": len(msg)} | ({"code": code} if code else {}) for ts, msg, code in records
            ]
            opened.write(tags, rows)
        if request.param == "sealed":
            opened.seal()
        yield opened


SELECTS = [
    ("SELECT", [1, 2, 3, 4, 5, DAY + 1]),
    ("select from {app=web} limit 2;", [1, 2]),
    ("SELECT FROM {}", [1, 2, 3, 4, 5, DAY + 1]),
    ("SELECT FROM app = web AND NOT zone = us", [1, 3, 5]),
    ("SELECT FROM zone = ''", [4, DAY + 1]),
    ("SELECT FROM UPPER(app) LIKE 'W?B' OR app > x", [1, 2, 3, 5]),
    ("SELECT FROM app PREFIX d OR zone SUFFIX s", [2, 4, DAY + 1]),
    ("SELECT FROM zone MATCHES '^e'", [1, 3, 5]),
    ("SELECT FROM {app=nobody}", []),
    ("SELECT WHERE msg CONTAINS query", [4]),
    ("SELECT WHERE LOWER(msg) CONTAINS query", [4, DAY + 1]),
    ("SELECT WHERE msg PREFIX GET OR msg SUFFIX Query", [1, 3, DAY + 1]),
    ("SELECT WHERE msg = 'GET /a'", [1]),
    ("SELECT WHERE NOT (msg LIKE '*/?' OR msg MATCHES '(?i)slow')", [5]),
    ("SELECT WHERE fields:code >= 404", [2, 3]),
    ("SELECT WHERE fields:code = ''", [4, DAY + 1]),
    ("SELECT WHERE size = 7", [2]),
    ("SELECT WHERE size > 6 AND size <= 10", [2, 4, DAY + 1]),
    ("SELECT WHERE msg.took >= 12", [5]),
    ('SELECT WHERE msg["who"].id = 7', [5]),
    ("SELECT WHERE ts > 2000ns AND ts <= 4000ns", [3, 4]),
    ("SELECT WHERE ts = 3000ns OR ts != 3000ns AND ts < 2000ns", [1, 3]),
    ("SELECT RANGE 4000ns", [4, 5, DAY + 1]),
    ("SELECT RANGE [:4000ns]", [1, 2, 3, 4]),
    ("SELECT RANGE [:4999ns]", [1, 2, 3, 4]),
    ("SELECT RANGE ['4000ns':'4000ns']", [4]),
    ("SELECT RANGE ['4001ns':'4999ns']", []),
    ("SELECT RANGE ['1970-01-01T00:00:00.000002Z':5000ns]", [2, 3, 4, 5]),
    ("SELECT RANGE '1970-01-02'", [DAY + 1]),
    ("SELECT RANGE '-1h'", []),
    ("SELECT POSITION HEAD LIMIT 1", [1]),
    ("SELECT POSITION TAIL", []),
    ("SELECT POSITION TAIL OFFSET -2", [5, DAY + 1]),
    ("SELECT POSITION AT 4000ns LIMIT 1", [4]),
    ("SELECT POSITION AT 4000ns OFFSET -1 LIMIT 2", [3, 4]),
    ("SELECT OFFSET 4", [5, DAY + 1]),
    ("SELECT OFFSET -3", [1, 2, 3, 4, 5, DAY + 1]),
    ("SELECT LIMIT 0", []),
    ("SELECT LIMIT -1", [1, 2, 3, 4, 5, DAY + 1]),
    ("SELECT ORDER BY ts DESC LIMIT 2", [DAY + 1, 5]),
    ("SELECT ORDER BY ts ASC OFFSET 1 LIMIT 1", [2]),
    ("SELECT POSITION AT 3000ns ORDER BY ts DESC", [DAY + 1, 5, 4, 3]),
]


@pytest.mark.parametrize(("text", "times"), SELECTS, ids=[text for text, _ in SELECTS])
def test_select(catalog, text, times):
    """SELECT returns these records in this order."""
    assert [event.timestamp for event in catalog.query(text)] == times


LINES = [
    ("SELECT LIMIT 1", ["GET /a"]),
    ("SELECT '{ts} {vars:app}: {msg}' LIMIT 1", ["1970-01-01T00:00:00Z web: GET /a"]),
    ("SELECT '{msg.json()}|{vars:code}|{{{}' WHERE ts = 2000ns", ['"POST /a"|500|{}']),
    ("SELECT '{ts.format(%Y-%m-%d)} {ts.format(15:04)} {vars:none}.' WHERE ts = 4000ns", ["1970-01-01 00:00 ."]),
    ("SELECT '{vars}' WHERE ts = 2000ns", ["app=web,zone=us,size=7,code=500"]),
]


@pytest.mark.parametrize(("text", "lines"), LINES, ids=[text for text, _ in LINES])
def test_lines(catalog, text, lines):
    """Records print as the format string says."""
    assert list(catalog.query(text).lines()) == lines


TABLES = [
    ("SELECT COUNT", [{"count": 6}]),
    ("SELECT COUNT FROM app = web WHERE fields:code < 500", [{"count": 3}]),
    ("SELECT COUNT GROUP BY app", [{"app": "db", "count": 2}, {"app": "web", "count": 4}]),
    ("SELECT COUNT GROUP BY zone, UPPER(app) LIMIT 1", [{"zone": "eu", "UPPER(app)": "WEB", "count": 3}]),
    (
        "SELECT COUNT GROUP BY ts EVERY '1d' OFFSET 1",
        [{'ts EVERY "1d"': dt.datetime(1970, 1, 2, tzinfo=dt.UTC), "count": 1}],
    ),
    ("SELECT COUNT WHERE size = 10 GROUP BY size", [{"size": 10, "count": 2}]),
    ("SHOW PIPES", []),
    ("TRUNCATE", []),
    ("TRUNCATE DRYRUN BEFORE 2000ns", [("{app=web,zone=eu}", 1, 2)]),
    ("TRUNCATE DRYRUN {app=db} MAXSIZE 0", [("{app=db}", 2, 0)]),
    ("TRUNCATE DRYRUN app = db MAXSIZE 1t", []),
    ("TRUNCATE DRYRUN MINSIZE 1g MAXSIZE 0 BEFORE '-1h' MAXDBSIZE 1k", []),
    ("TRUNCATE DRYRUN MAXDBSIZE 0", [("{app=web,zone=eu}", 3, 0), ("{app=db}", 2, 0), ("{app=web,zone=us}", 1, 0)]),
]


@pytest.mark.parametrize(("text", "rows"), TABLES, ids=[text for text, _ in TABLES])
def test_table(catalog, text, rows):
    """A statement returns these rows; for TRUNCATE, each stream with its removed and remaining records."""
    found = catalog.query(text).to_pylist()
    if text.startswith("TRUNCATE"):
        found = [(row["tags"], row["removed records"], row["records"]) for row in found]
        found.sort(key=rows.index)
    assert found == rows


def test_show_describe_explain(catalog):
    """Answers that depend on how records are stored are right."""
    shown = {row["tags"]: row["records"] for row in catalog.query("SHOW PARTITIONS").to_pylist()}
    assert shown == {stream: len(records) for stream, records in RECORDS.items()}
    assert catalog.query("SHOW PARTITIONS zone = us OFFSET 0 LIMIT 5")["tags"].to_pylist() == ["{app=web,zone=us}"]
    assert catalog.query("SHOW PARTITIONS {app=web} LIMIT 0").schema.metadata[b"total records"] == b"4"
    described = catalog.query("DESCRIBE PARTITION {zone=eu,app=web}").to_pylist()
    assert [(row["records"], row["first"].microsecond, row["last"].microsecond) for row in described] == [(3, 1, 5)]
    (told,) = catalog.query("EXPLAIN SELECT FROM app = web WHERE size = 7").to_pylist()
    assert (told["topic"], told["streams"], told["indexes"]) == ("logs", 2, ["size"])


def test_pipes_and_truncation(tmp_path):
    """CREATE, SHOW, DESCRIBE and DELETE PIPE work, and so does TRUNCATE without DRYRUN."""
    with aggregator.open(tmp_path / "c") as catalog:
        catalog.write({"a": "1"}, [{"ts": 1}, {"ts": 2}])
        assert catalog.query("CREATE PIPE p FROM {a=1} WHERE ts > 1000ns BACKFILL")["name"].to_pylist() == ["p"]
        while catalog.query("DESCRIBE PIPE p")["lag"].to_pylist() != [0]:
            pass
        assert catalog.query("SHOW PIPES LIMIT 9")["copied"].to_pylist() == [1]
        assert catalog.query("TRUNCATE {a=1} BEFORE 2000ns")["removed records"].to_pylist() == [1]
        assert catalog.query("DELETE PIPE p")["copied"].to_pylist() == [1]
        assert [event.space for event in catalog.query("SELECT")] == ["{a=1}", "{logrange.pipe=p}"]
