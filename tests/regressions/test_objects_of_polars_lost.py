"""Of a column of Objects, as which Polars keeps UUIDs, files and topics had addresses in memory, without a word."""

from __future__ import annotations

import uuid

import polars as pl
import pytest

import aggregator
import esformat


@pytest.mark.parametrize(
    ("kind", "values"), [("Object", pl.Series("id", [uuid.uuid4()])), ("Int128", pl.Series("id", [1], pl.Int128))]
)
def test_they_are_refused(tmp_path, kind, values):
    """So is what Arrow has no type for: by the name of the column, in files and in topics."""
    frame = pl.DataFrame({"space": ["a"], "timestamp": [1], "id": values})
    reason = f"column 'id' is {kind}, which Arrow does not have; cast it first"
    with esformat.create(tmp_path / "a.esdb") as writer, pytest.raises(esformat.InvalidEventError, match=reason):
        writer.add_table(frame)
    with aggregator.open(tmp_path / "data") as catalog, pytest.raises(esformat.InvalidEventError, match=reason):
        catalog.create_topic("t").append(frame)
