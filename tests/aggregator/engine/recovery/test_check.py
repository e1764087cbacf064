"""What opening a catalog does with files that contradict the manifest, and with rebuilt manifests."""

from __future__ import annotations

import copy
import errno
import json
import os
import shutil
from itertools import product
from pathlib import Path
from unittest import mock

import pytest
from crash_image import crash_image
from effort import share_of
from still import no_background

import aggregator
import esformat
from aggregator.engine.upkeep.scheduler import Scheduler
from aggregator.storage.manifest import Manifest
from aggregator.storage.state.streams import StreamIndex

pytestmark = pytest.mark.usefixtures("quiet")

ROWS = 40
MANIFESTS = ["deleted", "empty", "cut short", "noise"]
SEGMENTS = ["whole", "orphan", "missing", "empty", "partial"]


class Data:
    """A catalog on disk: four segments of two partitions, two of them merged, and ten unsealed events."""

    def __init__(self, root):
        self.root = root
        self.old = root.with_name("old-manifest.sqlite")
        with aggregator.open(root) as catalog:
            topic = catalog.create_topic("t", indexes=["type"], roll={"rows": 1000})
            self.append(topic, 0, "1", ROWS)
            catalog.seal()
        shutil.copy(root / "manifest.sqlite", self.old)
        with aggregator.open(root) as catalog:
            topic = catalog.topic("t")
            for first in (100, 200):
                self.append(topic, first, "0", ROWS)
                catalog.seal()
            topic.compact()
            for first in (300, 400):
                self.append(topic, first, "0", ROWS)
                catalog._backend.log.roll()
                catalog.seal()
            self.append(topic, 500, "0", 10)
        self.sealed = [*range(ROWS), *(n for first in (100, 200, 300, 400) for n in range(first, first + ROWS))]
        self.all = [*self.sealed, *range(500, 510)]

    @staticmethod
    def append(topic, first, partition, count):
        rows = [{"space": f"s{n % 5}", "timestamp": n, "type": f"k{n % 3}"} for n in range(first, first + count)]
        topic.append(rows, partition, producer="p", sequence=first)

    def segments(self):
        return sorted(self.root.glob("segments/*/*.esdb"))

    def segment_with(self, timestamp):
        """The file that contains an event."""
        for path in self.segments():
            with esformat.open(path) as segment:
                if segment.min_timestamp <= timestamp <= segment.max_timestamp:
                    return path
        raise AssertionError(timestamp)

    def check(self, expected, problems=0, actions=()):
        """Check that every read finds these events once, and that a second opening reports nothing new."""
        for _ in range(2):
            with aggregator.open(self.root) as catalog:
                topic = catalog.topic("t")
                assert [event.timestamp for event in topic.scan()] == sorted(expected)
                by_index = [event for name in topic.partitions for event in topic.read(name)]
                assert sorted(event.timestamp for event in by_index) == sorted(expected)
                assert topic.scan(space="s1").count() == sum(n % 5 == 1 for n in expected)
                found = catalog.problems()
                assert len(found) == problems, found
                assert {problem.action.split(":")[0] for problem in found} == set(actions)
        with aggregator.open(self.root) as catalog:  # writing works: no index is reused, retries are known
            topic = catalog.topic("t")
            known = {event.columns["record_index"] for event in topic.read("0")}
            self.append(topic, 10_000, "0", 3)
            assert known.isdisjoint(event.columns["record_index"] for event in topic.read("0", max(known) + 1))
            assert topic.scan(start=10_000).count() == 3


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    with no_background():
        return Data(tmp_path_factory.mktemp("original") / "data")


@pytest.fixture
def data(original, tmp_path):
    """A copy of the catalog."""
    copied = copy.copy(original)
    copied.root, copied.old = tmp_path / "data", original.old
    shutil.copytree(original.root, copied.root)
    return copied


def lose_manifest(data, how):
    path = data.root / "manifest.sqlite"
    for extra in ("-wal", "-shm"):
        path.with_name(path.name + extra).unlink(missing_ok=True)
    if how == "deleted":
        path.unlink()
    elif how == "empty":
        path.write_bytes(b"")
    elif how == "cut short":
        os.truncate(path, path.stat().st_size // 2)
    elif how == "noise":
        path.write_bytes(os.urandom(20_000))
    elif how == "one version old":
        shutil.copy(data.old, path)


def change_segments(data, how):
    """Change segment files and return the events that this loses."""
    newest, oldest = data.segment_with(400), data.segment_with(0)
    number = 1 + max(int(path.stem) for path in data.segments())
    if how == "orphan":
        (newest.parent / f"{number:012}.esdb").write_bytes(b"no segment")
    elif how == "partial":
        (newest.parent / f".{number:012}.esdb.abc.partial").write_bytes(b"a part")
    elif how == "missing":
        newest.unlink()
        return range(400, 400 + ROWS)
    elif how == "empty":
        oldest.write_bytes(b"")
        return range(ROWS)
    return ()


@pytest.mark.parametrize(("manifest", "segments"), share_of(product(MANIFESTS, SEGMENTS), 4))
def test_a_lost_manifest_is_rebuilt(data, manifest, segments):
    """Without its manifest, a catalog is refused with a hint; once rebuilt, all sealed events with a file are there."""
    lost = change_segments(data, segments)
    lose_manifest(data, manifest)
    with pytest.raises(aggregator.CorruptManifestError, match="rebuild-manifest"):
        aggregator.open(data.root)
    report = aggregator.rebuild_manifest(data.root)
    damaged = segments in ("orphan", "empty")
    assert (report.topics, report.segments, len(report.quarantined)) == (1, 4 - bool(lost), damaged)
    assert report.rows == len(data.sealed) - len(lost)
    actions = ["set aside in quarantine"] * damaged + ["reported"] * (
        segments == "missing"
    )  # the log continues after it
    data.check([n for n in data.all if n not in lost], problems=len(actions), actions=actions)
    with aggregator.open(data.root) as catalog:
        assert catalog.topic("t").roll.rows == 1000
    assert (data.root / "quarantine" / "manifest.sqlite").exists() == (manifest != "deleted")


@pytest.mark.parametrize("segments", ["whole", "orphan", "partial"])
def test_an_old_copy_of_the_manifest(data, segments):
    """Segments that an old manifest does not know are taken in and reported; merged ones count once."""
    change_segments(data, segments)
    lose_manifest(data, "one version old")
    orphan = segments == "orphan"
    data.check(data.all, problems=5 + orphan, actions=["taken in", *["set aside in quarantine"] * orphan])


@pytest.mark.parametrize("segments", ["missing", "empty", "cut short", "flipped"])
def test_missing_and_damaged_segments(data, segments):
    """A missing or damaged segment is reported; only scans that need it raise; the loss can be accepted or repaired."""
    path = data.segment_with(0)
    stored = path.read_bytes()
    if segments == "missing":
        path.unlink()
    elif segments == "flipped":
        path.write_bytes(stored[:100] + bytes([stored[100] ^ 1]) + stored[101:])
    else:
        path.write_bytes(stored[: len(stored) // 2 * (segments == "cut short")])
    with aggregator.open(data.root) as catalog:
        topic = catalog.topic("t")
        if segments == "flipped":
            assert catalog.problems() == []
            assert len(catalog.verify()) == 1
        (problem,) = catalog.problems()
        assert problem.subject == str(path.relative_to(data.root))
        assert "record indexes 0 to 39" in problem.message
        assert path.name in problem.action or segments == "missing"
        assert not path.exists()
        with pytest.raises(aggregator.SegmentMissingError, match="record indexes 0 to 39"):
            topic.scan().to_table()
        assert topic.scan(start=100).count() == len(data.all) - ROWS
        assert len(topic.read("0").to_table()) == len(data.all) - ROWS
    with aggregator.open(data.root) as catalog:  # nothing is reported twice
        assert catalog.verify() == [problem]
    path.write_bytes(stored)
    with aggregator.open(data.root) as catalog:
        assert catalog.topic("t").scan().count() == len(data.all)
        assert catalog.problems() == [problem]
        assert catalog.verify() == []  # it is resolved
    path.unlink()
    with aggregator.open(data.root) as catalog:
        assert len(catalog.accept_losses()) == 1
        assert catalog.accept_losses() == []
    with aggregator.open(data.root) as catalog:
        assert [event.timestamp for event in catalog.topic("t").scan()] == [n for n in data.all if n >= ROWS]
        known = catalog.verify()
        assert any("given up" in problem.action for problem in known)
        assert catalog.forget_problems() == known
        assert catalog.verify() == []


def test_a_repaired_segment_is_taken_in(data):
    """An intact file made from the old segment, with fewer events, replaces it, and that is reported."""
    path = data.segment_with(0)
    less = path.with_name("less")
    esformat.tools.erase(path, less, ["s1"])
    less.replace(path)
    data.check([n for n in data.all if n >= ROWS or n % 5 != 1], problems=1, actions=["taken in"])


def test_foreign_segments_are_set_aside(data):
    """Segments of another catalog or another program are quarantined rather than taken for unknown segments."""
    folder = data.segments()[0].parent
    with esformat.create(folder / "000000000999.esdb") as writer:
        writer.add("s1", b"x", timestamp=1)
    shutil.copy(data.segment_with(0), folder / "000000000998.esdb")
    data.check(data.all, problems=2, actions=["set aside in quarantine"])
    assert len(list((data.root / "quarantine").iterdir())) == 2


def test_crash_between_file_and_manifest(data, tmp_path, monkeypatch):
    """Files that a crash leaves during a seal or merge are removed: nothing is lost, duplicated or reported."""
    images = [tmp_path / "sealing", tmp_path / "merging"]
    apply = aggregator.storage.manifest.Manifest.apply

    def copying(manifest, edit):
        if edit.added:
            crash_image(data.root, images[bool(edit.retired)])
        return apply(manifest, edit)

    with monkeypatch.context() as patched:
        patched.setattr(aggregator.storage.manifest.Manifest, "apply", copying)
        with aggregator.open(data.root) as catalog:
            catalog.seal()
            catalog.compact()
    for image in images:
        with aggregator.open(image) as catalog:
            assert len(catalog.stats()["swept"]) == 1
        crashed = copy.copy(data)
        crashed.root = image
        crashed.check(data.all)


def test_damaged_log_files_are_kept(data):
    """Unreadable parts of the log are reported, and the file is copied before it is deleted."""
    with aggregator.open(data.root) as catalog:
        topic = catalog.topic("t")
        data.append(topic, 600, "0", 5)
        data.append(topic, 700, "0", 5)
    path = max(path for path in (data.root / "log").glob("*.log") if path.stat().st_size > 100)
    stored = bytearray(path.read_bytes())
    stored[stored.rindex(b"LFRM", 0, stored.rindex(b"LFRM")) + 100] ^= 1  # the last batch but one
    path.write_bytes(stored)
    expected = [*data.all, *range(700, 705)]
    for _ in range(2):
        with aggregator.open(data.root) as catalog:
            problem, missing = catalog.problems()
            assert problem.subject == f"log/{path.name}"
            assert "checksum" in problem.message
            assert missing.message.startswith("5 events are missing: record indexes")
            assert [event.timestamp for event in catalog.topic("t").scan()] == expected
            catalog.seal()
            catalog._backend.log.roll()
            catalog._backend.sealer.release_log()
    assert not path.exists()
    (kept,) = (data.root / "quarantine").iterdir()
    assert kept.read_bytes() == stored


def test_frames_of_a_later_version_are_kept(data, monkeypatch):
    """An intact frame of an unknown kind is reported, and its file is copied to quarantine."""
    with aggregator.open(data.root) as catalog, monkeypatch.context() as patch:
        patch.setattr(aggregator.engine.ingest.append, "EventsPrefix", lambda schema, *rest: Prefix(99, *rest))
        Prefix = aggregator.storage.log.frame.EventsPrefix  # noqa: N806  a class
        data.append(catalog.topic("t"), 600, "0", 5)
    with aggregator.open(data.root) as catalog:
        (problem,) = catalog.problems()
        assert problem.message.startswith("99 (frame at position")
        assert len(list((data.root / "quarantine").iterdir())) == 1


def test_rebuilding_is_refused_while_somebody_writes(data):
    """Rebuilding is refused during writes and without a catalog; an interrupted rebuild does not prevent another."""
    with aggregator.open(data.root), pytest.raises(aggregator.CatalogLockedError):
        aggregator.rebuild_manifest(data.root)
    with pytest.raises(aggregator.CatalogNotFoundError):
        aggregator.rebuild_manifest(data.root / "absent")
    (data.root / "manifest.sqlite.rebuilding").write_bytes(b"half")
    done = []
    aggregator.rebuild_manifest(data.root, progress=lambda *state: done.append(state))
    assert done[-1][0] == done[-1][1] == sum(path.stat().st_size for path in data.segments())
    data.check(data.all)


def test_rebuilding_in_the_midst_of_a_merge(data):
    """If a merged segment and its sources all exist, a rebuilt manifest counts their events once."""
    with aggregator.open(data.root) as catalog:
        scan = iter(catalog.topic("t").scan())
        next(scan)
        catalog.compact()
        assert len(data.segments()) == 5
    (data.root / "manifest.sqlite").unlink()
    report = aggregator.rebuild_manifest(data.root)
    assert (report.segments, report.superseded) == (2, 3)
    del scan
    data.check(data.all)


def test_stats_are_json_after_all_that(data):
    """`stats` is valid JSON after damage and counts quarantined files as disk usage."""
    data.segment_with(0).write_bytes(b"damaged")
    with aggregator.open(data.root) as catalog:
        stats = json.loads(json.dumps(catalog.stats()))
        assert stats["disk"]["quarantine"] == 7
        assert stats["problems"] == 1


@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize("work", ["erasing", "merging"])
def test_a_new_segment_that_the_manifest_did_not_take(tmp_path, monkeypatch, work, left):
    """The segment of a failed manifest change is deleted once no crash can restore that change. Until then it stays,
    and the next opening does not take it in: its replacement may have fewer events.
    """
    root = tmp_path / "data"
    apply, commit_empty, failed = Manifest.apply, Manifest.commit_empty, []

    def fail_once(manifest, edit):
        if edit.added and edit.retired and not failed:
            failed.append(edit.added)
            raise aggregator.ManifestFailedError("the disk is full")
        return apply(manifest, edit)

    def failing_once(manifest):
        if left:
            raise aggregator.ManifestFailedError("the disk is full")
        commit_empty(manifest)

    with aggregator.open(root) as catalog:
        topic = catalog.create_topic("t")
        for _ in range(2):
            topic.append([{"space": space, "timestamp": 1} for space in "abc" for _ in range(10)])
            catalog.seal()
        if work == "erasing":
            topic.erase("a")
        monkeypatch.setattr(Manifest, "apply", fail_once)
        monkeypatch.setattr(Manifest, "commit_empty", failing_once)
        with pytest.raises(aggregator.ManifestFailedError):
            catalog.compact()
        assert len(list(root.glob("segments/*/*.esdb"))) == 2 + left
        topic.erase("b")
        report = catalog.compact()
        assert report.still_erasing == ()
        expected = ["c"] * 20 if work == "erasing" else ["a"] * 20 + ["c"] * 20
        assert sorted(event.space for event in topic.scan()) == expected
    with aggregator.open(root) as catalog:
        assert sorted(event.space for event in catalog.topic("t").scan()) == expected
        assert catalog.problems() == []
        assert len(list(root.glob("segments/*/*.esdb"))) == 1
        assert len(catalog.stats()["swept"]) == left


def open_files():
    """The open file descriptors of this process."""
    return sorted(path.name for path in Path("/dev/fd").iterdir())


@pytest.mark.parametrize(("failing", "read_only"), [(Scheduler, False), (StreamIndex, False), (StreamIndex, True)])
def test_an_opening_that_fails_leaves_nothing_open(data, monkeypatch, failing, read_only):
    """An opening that fails, however late, leaves no files or locks open; the next one finds everything unchanged."""
    before = open_files()
    with monkeypatch.context() as patch:
        patch.setattr(failing, "__init__", mock.Mock(side_effect=OSError(errno.ENOMEM, "no memory")))
        with pytest.raises(OSError, match="no memory"):
            aggregator.open(data.root, read_only=read_only)
        assert open_files() == before
    with aggregator.open(data.root) as catalog:
        assert catalog.problems() == []
