"""`aggregator restore`."""

from __future__ import annotations

import json
import time
from pathlib import Path

from shipped_catalogs import SOON, events

import aggregator
from aggregator.storage.store.client import Store


def _stored(tmp_path: Path) -> str:
    address = (tmp_path / "store").as_uri()
    with aggregator.open(tmp_path / "a", store=address, durability="store", **SOON) as catalog:
        topic = catalog.create_topic("t")
        topic.append(events(0))
        catalog.seal("t")
        topic.append(events(10))
    return address


def test_restore(command, tmp_path: Path):
    """`restore` reports what it restored, also as JSON; a time that the store does not cover is an error."""
    address = _stored(tmp_path)
    done = command("restore", address, str(tmp_path / "back"))
    assert (done.status, done.err) == (0, "")
    assert "1 segment of" in done.text
    assert "a log of" in done.text
    assert command("scan", str(tmp_path / "back"), "t", "--limit", "1").status == 0
    assert command("scan", address, "t", "--limit", "1").status == 0
    at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 5))
    done = command("restore", address, str(tmp_path / "json"), "--at", at, "--json")
    found = json.loads(done.text)
    assert (found["segments"], found["log_bytes"] > 0) == (1, True)
    done = command("restore", address, str(tmp_path / "early"), "--at", "2020-01-01")
    assert (done.status, "did not exist at that time" in done.err) == (2, True)


def test_restore_of_a_damaged_store(command, tmp_path: Path):
    """Each missing object is named, and the exit status is set."""
    address = _stored(tmp_path)
    store = Store(address)
    (name,) = (each.name for each in store.list("segments"))
    store.delete([name])
    done = command("restore", address, str(tmp_path / "back"))
    assert done.status == 1
    assert name in done.err


def test_restore_into_a_full_directory(command, tmp_path: Path):
    """A directory with contents is left alone."""
    address = _stored(tmp_path)
    done = command("restore", address, str(tmp_path / "a"))
    assert (done.status, "not empty" in done.err) == (2, True)


def test_restore_after_a_mistyped_address(command, tmp_path: Path):
    """A store without a catalog leaves the directory empty, so that the right address can follow."""
    address = _stored(tmp_path)
    done = command("restore", f"{address}s", str(tmp_path / "back"))
    assert (done.status, "no catalog found" in done.err) == (2, True)
    assert not list((tmp_path / "back").iterdir())
    assert command("restore", address, str(tmp_path / "back")).status == 0
