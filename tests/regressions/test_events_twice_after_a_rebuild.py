"""Events of a batch whose last ones were erased before it was sealed appeared twice after a manifest rebuild."""

from __future__ import annotations

import pytest

import aggregator


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("old", [False, True])
def test_the_end_of_a_batch_is_erased(tmp_path, old):
    """If the segment ends before the batch, which is still in the log, the segment's events are not read from there."""
    root = tmp_path / "data"
    manifest = root / "manifest.sqlite"
    with aggregator.open(root) as catalog:
        catalog.create_topic("t").append([{"space": "kept", "timestamp": 1}])
        catalog.seal()
    before = manifest.read_bytes()
    with aggregator.open(root) as catalog:
        topic = catalog.topic("t")
        topic.append([{"space": space, "timestamp": 2} for space in ("kept", "gone", "kept", "gone")])
        topic.erase("gone")
        catalog.seal()
    if old:
        manifest.write_bytes(before)
    else:
        manifest.unlink()
        aggregator.rebuild_manifest(root)
    for begun in range(2):
        with aggregator.open(root) as catalog:
            topic = catalog.topic("t")
            assert [event.columns["record_index"] for event in topic.read()] == [0, 1, 3]
            assert topic.spaces() == {"kept": 3}
            assert topic.append([{"space": "gone", "timestamp": 3}]).first == 5 + begun
            topic.erase("gone")
            catalog.compact()
            assert topic.traces("gone").gone
