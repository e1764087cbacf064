"""After a manifest rebuild, positions after events that only the log had were refused, and pipes stopped."""

from __future__ import annotations

import pytest
from waiting import until

import aggregator


def caught_up(catalog) -> bool:
    return catalog.query("DESCRIBE PIPE errors")["lag"].to_pylist() == [0]


def write(catalog, text: str, topic: str = "logs") -> None:
    catalog.write({"app": "web"}, [{"ts": 1, "msg": text}], topic)


@pytest.mark.parametrize("sealed", [False, True])
@pytest.mark.parametrize("times", [1, 2])
def test_positions_and_pipes_go_on(tmp_path, sealed, times):
    """Positions and pipes continue: nothing is lost, and nothing is read twice."""
    root = tmp_path / "data"
    with aggregator.open(root) as catalog:
        write(catalog, "one")
        if sealed:
            catalog.seal()
        catalog.query("CREATE PIPE errors FROM app = web BACKFILL")
        write(catalog, "two", "other")
        until(lambda: caught_up(catalog))
        answer = catalog.query("SELECT FROM app = web")
        assert len(list(answer)) == 2
    for _ in range(times):
        for path in root.glob("manifest.sqlite*"):
            path.unlink()
        assert aggregator.rebuild_manifest(root).missing == ()
    with aggregator.open(root) as catalog:
        write(catalog, "three", "other")
        later = catalog.query(f"SELECT FROM app = web POSITION {answer.position}")
        assert [event.data for event in later] == [b"three"]
        until(lambda: caught_up(catalog))
        copies = catalog.query("SELECT FROM {logrange.pipe=errors}")
        assert sorted(event.data for event in copies) == [b"one", b"three", b"two"]


def test_positions_in_deleted_topics(tmp_path):
    """So do those that have passed events of a topic deleted since."""
    root = tmp_path / "data"
    with aggregator.open(root) as catalog:
        write(catalog, "one")
        catalog.query("CREATE PIPE errors FROM app = web BACKFILL")
        write(catalog, "two", "other")
        until(lambda: caught_up(catalog))
        catalog.seal()
        answer = catalog.query("SELECT FROM app = web")
        assert len(list(answer)) == 2
        catalog.delete_topic("other")
    for path in root.glob("manifest.sqlite*"):
        path.unlink()
    assert aggregator.rebuild_manifest(root).missing == ()
    with aggregator.open(root) as catalog:
        write(catalog, "three")
        later = catalog.query(f"SELECT FROM app = web POSITION {answer.position}")
        assert [event.data for event in later] == [b"three"]
        until(lambda: caught_up(catalog))
        assert catalog.query("SELECT COUNT FROM {logrange.pipe=errors}").to_pylist() == [{"count": 3}]
