"""A crash during a seal of several schema families loses no event, wherever it happens."""

from __future__ import annotations

import pytest
from crash_image import crash_image
from effort import share_of

import aggregator
from aggregator.engine.seal import sealer as sealing

pytestmark = pytest.mark.usefixtures("quiet")

FAMILIES = ({"n": 1}, {"n": "text"})  # values that do not fit in one column
THREE = (*FAMILIES, {"n": [1]})


def append(topic, first, batches, families=FAMILIES):
    """Append batches of three events, cycling through the families."""
    for number in range(first, first + batches):
        rows = [{"space": f"s{number}", "timestamp": number * 10 + place} for place in range(3)]
        topic.append([row | families[number % len(families)] for row in rows], producer="p", sequence=number)


def times(first, batches):
    return [number * 10 + place for number in range(first, first + batches) for place in range(3)]


def killed_in_a_seal(catalog, image, monkeypatch, files=1):
    """Seal, and return what a crash after this many segment files would leave."""
    real, written = sealing.write_segment, []

    def write(*arguments, **options):
        written.append(real(*arguments, **options))
        if len(written) == files:
            crash_image(catalog.path, image)
        return written[-1]

    monkeypatch.setattr(sealing, "write_segment", write)
    catalog.seal()
    monkeypatch.undo()
    return image


def check(root, expected, families=FAMILIES, files=1):
    """Open twice, sealing everything once: all events are there once, without problems, and retries are recognised."""
    for swept in (files, 0):
        with aggregator.open(root) as catalog:
            topic = catalog.topic("t")
            assert [event.timestamp for event in topic.scan()] == expected
            assert len(topic.read("0").to_table()) == len(expected)
            assert catalog.problems() == []
            assert len(catalog.stats()["swept"]) == swept
            again = topic.append(
                [{"space": "s7", "timestamp": 70 + place} | families[7 % len(families)] for place in range(3)],
                producer="p",
                sequence=7,
            )
            assert again.duplicate
            catalog.seal()


@pytest.mark.parametrize("families", [FAMILIES, FAMILIES[:1] * 2], ids=["two families", "one family"])
@pytest.mark.parametrize("before", ["fsync", "interval", "none"])
def test_killed_in_a_seal(tmp_path, monkeypatch, before, families):
    """No event is lost, also if an earlier crash without syncs skipped record indexes in the middle of the seal."""
    with aggregator.open(tmp_path / "first", durability=before) as catalog:
        append(catalog.create_topic("t"), 0, 5, families)
        root = crash_image(tmp_path / "first", tmp_path / "second")
    with aggregator.open(root) as catalog:
        append(catalog.topic("t"), 5, 5, families)
        image = killed_in_a_seal(catalog, tmp_path / "third", monkeypatch)
    check(image, times(0, 10), families)


@pytest.mark.parametrize("facts", ["kept", "lost"])
@pytest.mark.parametrize("files", [1, 2])
@pytest.mark.parametrize("durability", share_of(["fsync", "interval"], 2))
def test_killed_in_a_seal_and_the_manifest_lost(tmp_path, monkeypatch, durability, files, facts):
    """A segment of one family does not hide events of another that are only in the log."""
    with aggregator.open(tmp_path / "first", durability=durability) as catalog:
        append(catalog.create_topic("t"), 0, 10, THREE)
        image = killed_in_a_seal(catalog, tmp_path / "second", monkeypatch, files)
    for path in image.glob("manifest.sqlite*"):
        path.unlink()
    if facts == "lost":
        (image / "catalog.facts").unlink()
    report = aggregator.rebuild_manifest(image)
    assert report.segments == 0
    check(image, times(0, 10), THREE, files)


def test_killed_in_a_seal_and_the_log_has_lost_its_end(tmp_path, monkeypatch):
    """The log counts, even if a file of one family has more events; that file is quarantined and reported."""
    with aggregator.open(tmp_path / "first", durability="none") as catalog:
        append(catalog.create_topic("t"), 0, 10)
        image = killed_in_a_seal(catalog, tmp_path / "second", monkeypatch)
    path = max((image / "log").glob("*.log"))
    frames = path.read_bytes().split(b"LFRM")
    path.write_bytes(b"LFRM".join(frames[:-2]))
    for _ in range(2):
        with aggregator.open(image) as catalog:
            assert [event.timestamp for event in catalog.topic("t").scan()] == times(0, 8)
            aside, lost = catalog.problems()
            assert aside.action.startswith("set aside in quarantine")
            assert "bytes of acknowledged batches are missing" in lost.message
            catalog.seal()
