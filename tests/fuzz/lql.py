"""Any text as a statement is parsed or refused with a position; parsed ones are written, parsed again and evaluated."""

from __future__ import annotations

from contextlib import suppress

import pyarrow as pa

from aggregator.lql import (
    Columns,
    Filter,
    LqlError,
    TagSet,
    TagTable,
    Template,
    equalities,
    parse_statement,
    range_span,
    time_span,
    to_text,
)
from aggregator.lql.parse.tree import CreatePipe, Explain, Select, Statement

NOW_NS = 1_700_000_000_000_000_000
_BATCH = pa.record_batch(
    {
        "timestamp": pa.array([0, 1_700_000_000_000_000, None, 3], pa.timestamp("us", "UTC")),
        "data": pa.array([b'{"a": {"b": [1, "x"]}}', b"ERROR \xff\xfe", None, "åäö".encode()]),
        "space": pa.array(["{a=1}", "{a=2,b=x}", "{a=1}", "{}"]).dictionary_encode(),
        "status": pa.array([200, None, 404, 500], pa.int16()),
        "who": pa.array(["ada", "", None, "bob"]),
        "took": pa.array([0.5, None, float("nan"), 2.0]),
        "ok": pa.array([True, False, None, True]),
    }
)
_COLUMNS = Columns(_BATCH.schema)
_TABLE = TagTable(TagSet.parse(name) for name in _BATCH["space"].to_pylist())


def seeds() -> list[bytes]:
    """Statements that together contain every keyword and form."""
    return [
        text.encode()
        for text in (
            "SELECT '{ts.format(2006-01-02 15:04:05.000)} {vars:a} {msg.json()} {{' FROM {a=1,b=\"x\"} LIMIT 5",
            "SELECT FROM a LIKE 'x*[a-z]?' AND NOT (b PREFIX x OR UPPER(c) != '') RANGE [\"-1h\":\"now\"] OFFSET -5",
            "SELECT WHERE ts > '2026-03-01T08:00:00.5+01:00' AND msg CONTAINS \"E\\x52\\u0052\" POSITION TAIL",
            "SELECT WHERE msg.a.b[0] = 1 OR msg['a'] MATCHES '^(x|y)+$' OR fields:who SUFFIX a ORDER BY ts DESC",
            "SELECT COUNT WHERE status >= 404.5 AND took < 1e3 AND ok = true GROUP BY who, ts EVERY '5m'",
            "EXPLAIN SELECT POSITION AT 'Mon, 02 Jan 2006 15:04:05 MST'",
            "TRUNCATE DRYRUN {a=1} MINSIZE 1kb MAXSIZE 1.5GiB BEFORE '-7d' MAXDBSIZE 10g;",
            "CREATE PIPE `p q` FROM a = '1' WHERE LOWER(msg) LIKE '*err*' BACKFILL",
            "SHOW PARTITIONS a >= 1 OFFSET 1 LIMIT 2",
            "DESCRIBE PARTITION {\"odd name\"='x'}",
            "SHOW PIPES LIMIT 1",
            "DELETE PIPE limit",
        )
    ]


def one_input(data: bytes) -> None:
    """Parse the bytes, including lone surrogates in UTF-8, and use the results."""
    try:
        text = data.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        text = data.decode("latin-1")
    with suppress(LqlError):
        TagSet.parse(text)
    with suppress(LqlError):
        Template.compile(text)
    statement = _parsed(text)
    if statement is None:
        return
    assert parse_statement(to_text(statement)) == statement
    with suppress(LqlError):  # an unknown column or one of another type; a day that does not exist this year
        _use(statement)


def _parsed(text: str) -> Statement | None:
    refusal = None
    try:
        return parse_statement(text)
    except LqlError as error:
        refusal = error
    assert refusal.message in str(refusal)
    assert 0 <= refusal.start <= len(text)
    return None


def _use(statement: Statement) -> None:
    if isinstance(statement, Explain):
        statement = statement.select
    if isinstance(statement, Select):
        range_span(statement.range, NOW_NS)
        if statement.format is not None:
            texts = Template.compile(statement.format).render(_BATCH, _COLUMNS)
            assert len(texts) == _BATCH.num_rows
            assert texts.null_count == 0
    if isinstance(statement, Select | CreatePipe):
        selected = _TABLE.select(statement.source)
        assert len(selected) <= len(_TABLE)
        time_span(statement.where, NOW_NS)
        equalities(statement.where)
        mask = Filter.compile(statement.where, _COLUMNS, NOW_NS).mask(_BATCH)
        assert mask.null_count == 0
        assert len(mask) == _BATCH.num_rows
