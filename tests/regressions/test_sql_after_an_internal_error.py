"""After an internal error of DuckDB, each later statement failed, of every client of a server until it was restarted.

DuckDB then refuses to use the database any more. The error's message had a stack trace with paths of the server.
"""

from __future__ import annotations

import duckdb
import httpx
import pyarrow as pa
import pytest
from served import served

import aggregator
import esformat
from esformat.sql import errors
from esformat.sql.watch import Watch

TABLE = pa.table(
    {"space": ["a"], "timestamp": [1], "late": pa.array([2**63 - 2], pa.int64()).cast(pa.timestamp("ms"))}
)  # fmt: skip
FAILING = "SELECT late::VARCHAR FROM "
"""An internal error in DuckDB 2.0, because of a time far beyond its microseconds."""


def ask_failing(ask):
    with pytest.raises(esformat.UsageError) as failed:
        ask()
    assert "Trace" not in str(failed.value)


def test_a_file(tmp_path):
    """Statements that were asked before, and others, are answered after the error."""
    with esformat.create(tmp_path / "a.esdb") as writer:
        writer.add_table(TABLE)
    with esformat.open(tmp_path / "a.esdb") as segment:
        for _ in range(3):
            assert segment.sql("SELECT space FROM events").fetchall() == [("a",)]
            ask_failing(segment.sql(FAILING + "events").fetchall)
        assert segment.sql("SELECT 1").fetchall() == [(1,)]
        ask_failing(lambda: segment.sql(FAILING + "events").to_table())
        assert segment.sql("SELECT 2").to_table().num_rows == 1


def test_a_server(tmp_path):
    """Later requests are answered."""
    with aggregator.open(tmp_path / "data") as catalog:
        catalog.create_topic("t").append(TABLE)
    with served(tmp_path / "data") as server, httpx.Client(base_url=server.url, timeout=60) as web:
        failed = web.post("/v1/sql", json={"query": FAILING + "t"})
        assert failed.status_code == 400
        assert "Trace" not in failed.text
        assert web.post("/v1/sql", json={"query": "SELECT count(*) AS n FROM t"}).json() == {"n": 1}


def test_a_statement_beside_it():
    """A statement that ends because of another one's error does not show that error, which may have its values."""
    broken = []
    with (
        pytest.raises(esformat.ClosedError, match="DuckDB closed its database after an error; run the statement again"),
        errors.translated_errors(Watch(broken=lambda: broken.append(True))),
    ):
        raise duckdb.FatalException('FATAL Error: database has been invalidated; Original error: "secret"')
    assert broken
