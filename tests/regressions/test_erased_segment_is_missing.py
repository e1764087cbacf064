"""After an old manifest was restored, a segment emptied by an erasure was missing, and scans failed."""

from __future__ import annotations

from waiting import until

import aggregator


def test_an_old_manifest_names_what_was_erased(tmp_path):
    """A segment of which an erasure took every event is not missing as long as the erasure is known."""
    root = tmp_path / "data"
    with aggregator.open(root) as catalog:
        catalog.create_topic("other").append([{"space": "a", "timestamp": 1}])  # keeps the log, and with it the erasure
        topic = catalog.create_topic("t")
        for space in "ab":
            topic.append([{"space": space, "timestamp": 1}])
            catalog.seal("t")
    older = (root / "manifest.sqlite").read_bytes()
    with aggregator.open(root) as catalog:
        catalog.topic("t").erase("a")
        until(lambda: len(list(root.glob("segments/*/*"))) == 1)
    for path in root.glob("manifest.sqlite*"):
        path.unlink()
    (root / "manifest.sqlite").write_bytes(older)
    with aggregator.open(root) as catalog:
        assert [event.space for event in catalog.topic("t").scan()] == ["b"]
        assert not [problem for problem in catalog.problems() if "missing" in problem.message]
        catalog.seal()
        until(lambda: not catalog.topic("t").erasures())
