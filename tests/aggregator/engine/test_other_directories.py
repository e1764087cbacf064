"""Directories of other programs are refused by name and never changed."""

from __future__ import annotations

import sqlite3

import pytest

import aggregator

TABLE = "CREATE TABLE segments (topic STRING NOT NULL, partition STRING NOT NULL)"


def everything(root):
    return {path: path.read_bytes() if path.is_file() else None for path in root.rglob("*")}


@pytest.fixture
def plateaus(tmp_path):
    """A data directory of plateau whose tables are still in SQLite's WAL, as while it runs or after a crash."""
    root = tmp_path / "data"
    (root / "topics" / "clicks").mkdir(parents=True)
    database = sqlite3.connect(root / "manifest.sqlite", isolation_level=None)
    database.execute("PRAGMA journal_mode = WAL")
    database.execute("PRAGMA wal_autocheckpoint = 0")
    database.execute(TABLE)
    yield root
    database.close()


@pytest.mark.parametrize("how", [{}, {"read_only": True}, {"file_mode": 0o640}])
def test_a_directory_of_plateaus(plateaus, how):
    """A directory of plateau is not taken for a damaged catalog: rebuilding the manifest would remove plateau's."""
    before = everything(plateaus)
    with pytest.raises(aggregator.CatalogNotFoundError, match="plateau") as refused:
        aggregator.open(plateaus, **how)
    assert "rebuild-manifest" not in str(refused.value)
    assert everything(plateaus) == before


@pytest.mark.parametrize("how", [{}, {"read_only": True}])
def test_a_directory_of_another_program(tmp_path, how):
    """Another program's `manifest.sqlite` is not taken for a damaged catalog either."""
    with sqlite3.connect(tmp_path / "manifest.sqlite") as database:
        database.execute(TABLE)
    database.close()
    before = everything(tmp_path)
    with pytest.raises(aggregator.CatalogNotFoundError, match="another program"):
        aggregator.open(tmp_path, **how)
    assert everything(tmp_path) == before


def test_a_catalog_with_a_directory_of_that_name(tmp_path):
    """A directory `topics` in a catalog changes nothing."""
    with aggregator.open(tmp_path) as catalog:
        catalog.create_topic("t").append([{"space": "a", "timestamp": 1}])
    (tmp_path / "topics").mkdir()
    for how in ({"read_only": True}, {}):
        with aggregator.open(tmp_path, **how) as catalog:
            assert list(catalog.topics()) == ["t"]
            assert catalog.topic("t").scan().count() == 1
    assert list((tmp_path / "topics").iterdir()) == []
