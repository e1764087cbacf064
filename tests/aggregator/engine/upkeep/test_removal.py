"""Files of removed segments are deleted, each as soon as possible."""

from __future__ import annotations

from pathlib import Path

import pytest

import aggregator


@pytest.mark.usefixtures("quiet")
def test_a_file_that_cannot_be_deleted(tmp_path, monkeypatch):
    """A file that cannot be deleted does not delay others and is deleted once that is possible."""
    with aggregator.open(tmp_path / "data") as catalog:
        topic = catalog.create_topic("t", retention={"segments": 1})
        for number in range(4):
            topic.append([{"space": "a", "timestamp": number}])
            catalog.seal()
        removal = catalog._backend.upkeep.removal
        infos = list(topic._topic.segments.view())
        stuck = catalog._backend.layout.segment(infos[0].number)
        unlink = Path.unlink

        def fail(path, **options):
            if path == stuck:
                raise PermissionError(13, "Permission denied")
            unlink(path, **options)

        with monkeypatch.context() as broken:
            broken.setattr(Path, "unlink", fail)
            with pytest.raises(PermissionError):
                topic.retain()
            assert [number for number, _, _ in removal.waiting()] == [infos[0].number]
        removal.sweep()
        assert removal.waiting() == []
        assert not stuck.exists()


@pytest.mark.usefixtures("quiet")
def test_a_scan_that_begins_before_the_view_shows_a_removal(tmp_path, monkeypatch):
    """Between the manifest's removal of a segment and the view's, its file stays for scans that begin now."""
    with aggregator.open(tmp_path / "data") as catalog:
        topic = catalog.create_topic("t")
        for number in range(2):
            topic.append([{"space": "a", "timestamp": number}])
            catalog.seal()
        state, removal = catalog._backend.state, catalog._backend.upkeep.removal
        show, read = state.change_segments, []

        def sweep_first(*change):
            removal.sweep()
            read.append(topic.scan().to_table().num_rows)
            show(*change)

        with monkeypatch.context() as slowly:
            slowly.setattr(state, "change_segments", sweep_first)
            catalog.compact()
        assert read == [2]
        removal.sweep()
        assert removal.waiting() == []
        assert topic.scan().to_table().num_rows == 2
