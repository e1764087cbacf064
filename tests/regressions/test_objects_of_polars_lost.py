"""Columns of Objects, as which Polars keeps UUIDs, were silently stored as memory addresses in files and topics;
pandas periods became numbers, and the largest UHUGEINT of DuckDB became -1.
"""

from __future__ import annotations

import uuid

import duckdb
import pandas as pd
import polars as pl
import pytest

import aggregator
import esformat

EVENT = {"space": ["a"], "timestamp": [1]}
FRAMES = {
    "Object": pl.DataFrame({**EVENT, "id": pl.Series("id", [uuid.uuid4()])}),
    "Int128": pl.DataFrame({**EVENT, "id": pl.Series("id", [1], pl.Int128)}),
    r"period\[M\]": pd.DataFrame({**EVENT, "id": pd.period_range("2026-01", periods=1, freq="M")}),
    "UHUGEINT": duckdb.sql(f"SELECT 'a' AS space, 1 AS timestamp, {2**128 - 1}::UHUGEINT AS id"),
    "TIME WITH TIME ZONE": duckdb.sql("SELECT 'a' AS space, 1 AS timestamp, TIMETZ '12:00:00+02' AS id"),
    r"BIT\[\]": duckdb.sql("SELECT 'a' AS space, 1 AS timestamp, ['101'::BIT] AS id"),
    r"UHUGEINT\[\]": duckdb.sql("SELECT 'a' AS space, 1 AS timestamp, [1::UHUGEINT] AS id"),
}


@pytest.mark.parametrize("kind", FRAMES)
def test_they_are_refused(tmp_path, kind):
    """Columns without an Arrow type are refused by name, in files and topics."""
    reason = f"column 'id' is {kind}, which Arrow does not have; cast it first"
    with esformat.create(tmp_path / "a.esdb") as writer, pytest.raises(esformat.InvalidEventError, match=reason):
        writer.add_table(FRAMES[kind])
    with aggregator.open(tmp_path / "data") as catalog, pytest.raises(esformat.InvalidEventError, match=reason):
        catalog.create_topic("t").append(FRAMES[kind])
