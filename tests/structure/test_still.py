"""Tests that read the files of a catalog keep it still: the guard that enforces this."""

from __future__ import annotations

import shutil

import pytest
from still import files_of, still

import aggregator


def test_walks_beside_the_background_are_refused(tmp_path):
    """Copying or walking a catalog with background work always fails, rather than once in a thousand runs."""
    root = tmp_path / "data"
    with aggregator.open(root) as catalog:
        for look in (
            lambda: shutil.copytree(root, tmp_path / "copy"),
            lambda: shutil.copy(root / "manifest.sqlite", tmp_path),
            lambda: list(tmp_path.rglob("*")),
        ):
            with pytest.raises(AssertionError, match="make it `still` before"):
                look()
        assert root / "manifest.sqlite" in files_of(root)
        still(catalog)
        shutil.copytree(root, tmp_path / "copy", dirs_exist_ok=True)
        assert root / "manifest.sqlite" in tmp_path.rglob("*")
    aggregator.open(tmp_path / "copy").close()


@pytest.mark.usefixtures("quiet")
def test_quiet_catalogs_do_what_they_are_told(tmp_path):
    """A still catalog seals nothing in the background; explicit calls seal and merge as usual."""
    with aggregator.open(tmp_path / "data") as catalog:
        topic = catalog.create_topic("t", roll={"rows": 1})
        for number in range(8):
            topic.append([{"space": "a", "timestamp": number}])
            assert topic.stats()["unsealed_rows"] == 1
            assert catalog.seal() == 1
        assert len(files_of(tmp_path / "data" / "segments")) == 8
        assert catalog.compact().made == 1
