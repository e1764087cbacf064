"""Files of segments that were taken out go, each as soon as it can."""

from __future__ import annotations

from pathlib import Path

import pytest

import aggregator


@pytest.mark.usefixtures("quiet")
def test_a_file_that_cannot_be_deleted(tmp_path, monkeypatch):
    """It keeps none of the others, and goes when it can."""
    with aggregator.open(tmp_path / "data") as catalog:
        topic = catalog.create_topic("t", retention={"segments": 1})
        for number in range(4):
            topic.append([{"space": "a", "timestamp": number}])
            catalog.seal()
        removal = catalog._backend.housekeeping.removal
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
