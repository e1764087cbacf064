"""Damage after a crash that leaves a smaller but consistent catalog is reported, never silently ignored."""

from __future__ import annotations

import os
import shutil
from itertools import product

import pytest
from crash_image import crash_image
from effort import share_of
from still import no_background

import aggregator
from aggregator.storage.log.file import MARK_NAME, list_files

SEALED, LOGGED = 300, 200


def rows(first, count):
    return [{"space": f"s{n % 7}", "timestamp": n, "type": "k"} for n in range(first, first + count)]


@pytest.fixture(scope="module")
def crashed(tmp_path_factory):
    """A catalog as kill -9 leaves it: segments, a log of two files, and a manifest mostly in its WAL."""
    root = tmp_path_factory.mktemp("crashed") / "data"
    with no_background(), aggregator.open(root) as catalog:
        topic = catalog.create_topic("t", indexes=["type"])
        for first in range(0, SEALED, 100):
            topic.append(rows(first, 100))
            catalog.seal()
        for first in range(SEALED, SEALED + LOGGED, 20):
            topic.append(rows(first, 20))
            if first == SEALED + 100:
                catalog._backend.log.roll()
        yield crash_image(root, root.with_name("image"))


@pytest.fixture
def root(crashed, tmp_path):
    return shutil.copytree(crashed, tmp_path / "data")


def log_files(root):
    return [path for _, path in list_files(root / "log")]


def damage_log(root, how):
    path = log_files(root)[-1]
    size = path.stat().st_size
    if how == "missing":
        path.unlink()
    elif how == "all missing":
        for each in log_files(root):
            each.unlink()
    elif how == "cut to nothing":
        os.truncate(path, 0)
    elif how == "cut to its header":
        os.truncate(path, 32)
    elif how == "cut at a frame":
        os.truncate(path, path.read_bytes().rindex(b"LFRM"))
    elif how == "cut":
        os.truncate(path, size // 2)
    elif how == "zeroed":
        path.write_bytes(path.read_bytes()[: size // 2] + bytes(size - size // 2))
    elif how == "first missing":
        log_files(root)[0].unlink()


LOG_DAMAGE = [
    "missing", "all missing", "cut to nothing", "cut to its header", "cut at a frame", "cut", "zeroed", "first missing",
]  # fmt: skip


@pytest.mark.parametrize("how", LOG_DAMAGE)
def test_a_log_that_lost_what_was_acknowledged(root, how):
    """Reader and writer report the loss and its size, the writer once; later events are kept."""
    damage_log(root, how)
    with aggregator.open(root, read_only=True) as reader:
        left = {event.timestamp for event in reader.topic("t").scan()}
        assert SEALED <= len(left) < SEALED + LOGGED
        if how != "first missing":  # which readers do not check
            assert any("bytes" in problem.message for problem in reader.problems())
    with aggregator.open(root) as catalog:
        topic = catalog.topic("t")
        assert {event.timestamp for event in topic.scan()} == left
        problems = catalog.problems()
        assert problems
        assert all(problem.subject.startswith("log") for problem in problems)
        told = " ".join(problem.message for problem in problems)
        assert ("events" if how == "first missing" else "bytes") in told
        topic.append(rows(1000, 20))
        with aggregator.open(root, read_only=True) as reader:
            assert reader.topic("t").scan(start=1000).count() == 20
        topic.append(rows(2000, 20))
    for _ in range(2):
        with aggregator.open(root) as catalog:
            assert catalog.problems() == problems
            assert len(left) + 40 == catalog.topic("t").scan().count()
            catalog.seal()


@pytest.mark.usefixtures("quiet")
def test_an_undamaged_log_is_no_problem(root):
    """A log as a crash leaves it is not a problem for readers or writers, even without its last file or its mark."""
    for _ in range(3):
        with aggregator.open(root, read_only=True) as reader:
            assert reader.problems() == []
        with aggregator.open(root) as catalog:
            assert catalog.problems() == []
            assert catalog.topic("t").scan().count() == SEALED + LOGGED
            image = crash_image(root, root.with_name("again"))
        shutil.rmtree(root)
        image.rename(root)
    log_files(root)[-1].unlink()  # it had only its header: the power failed before its name was synced
    with aggregator.open(root) as catalog:
        assert catalog.problems() == []
    (root / "log" / MARK_NAME).unlink()
    with aggregator.open(root) as catalog:
        assert catalog.problems() == []
        assert catalog.topic("t").scan().count() == SEALED + LOGGED


def damage_wal(path, how):
    stored = path.read_bytes()
    if how == "missing":
        path.unlink()
    elif how == "empty":
        path.write_bytes(b"")
    elif how == "header":
        path.write_bytes(stored[:32])
    elif how == "noise":
        path.write_bytes(os.urandom(len(stored)))
    else:
        kind, share = how
        place = int(len(stored) * share)
        if kind == "cut":
            path.write_bytes(stored[:place])
        elif kind == "zeroed":
            path.write_bytes(stored[:place] + bytes(len(stored) - place))
        else:
            path.write_bytes(stored[:place] + bytes([stored[place] ^ 1]) + stored[place + 1 :])


def read_only_count(root):
    """The number of events that a reader sees, or its error."""
    try:
        with aggregator.open(root, read_only=True) as reader:
            return reader.topic("t").scan().count()
    except aggregator.CorruptManifestError as error:
        return error


SHARES = [0.1, 0.5, 0.9]
WAL_DAMAGE = [
    "missing",
    "empty",
    "header",
    "noise",
    *((kind, s) for kind in ("cut", "zeroed", "flipped") for s in SHARES),
]


@pytest.mark.parametrize(("how", "shm"), share_of(product(WAL_DAMAGE, [True, False]), 3))
def test_readers_beside_a_damaged_manifest(root, how, shm):
    """A reader sees everything or an error with a hint; opening for writing restores everything."""
    if not shm:
        (root / "manifest.sqlite-shm").unlink()
    damage_wal(root / "manifest.sqlite-wal", how)
    found = read_only_count(root)
    assert found == SEALED + LOGGED or "open the catalog for writing" in str(found)
    with aggregator.open(root) as catalog:
        assert catalog.topic("t").scan().count() == SEALED + LOGGED
    with aggregator.open(root, read_only=True) as reader:
        assert reader.topic("t").scan().count() == SEALED + LOGGED


def test_an_old_copy_of_the_manifest_that_is_only_read(root, tmp_path):
    """An old copy of the manifest makes opening for reading fail."""
    with aggregator.open(root) as catalog:
        shutil.copy(root / "manifest.sqlite", tmp_path / "old")
        catalog.seal()
    for path in root.glob("manifest.sqlite*"):
        path.unlink()
    shutil.copy(tmp_path / "old", root / "manifest.sqlite")
    with pytest.raises(aggregator.CorruptManifestError, match="readable part"):
        aggregator.open(root, read_only=True)


@pytest.mark.parametrize("named", [True, False])
def test_a_directory_in_the_place_of_a_segment(root, named):
    """A directory in the place of a segment is quarantined, and the segment is missing."""
    folder = root / "segments" / "000000"
    path = min(folder.glob("*.esdb")) if named else folder / f"{99:012}.esdb"
    if named:
        path.unlink()
    (path / "inside").mkdir(parents=True)
    (folder / ".000000000098.esdb.abc.partial").mkdir()
    with aggregator.open(root, read_only=True) as reader:
        if named:
            with pytest.raises(aggregator.SegmentMissingError):
                reader.topic("t").scan().to_table()
    with aggregator.open(root) as catalog:
        messages = [problem.message for problem in catalog.problems()]
        assert len(messages) == 2
        assert "a directory" in messages[0]
        assert (root / "quarantine" / path.name / "inside").is_dir()
        if named:
            with pytest.raises(aggregator.SegmentMissingError):
                catalog.topic("t").scan().to_table()
            catalog.accept_losses()
        assert catalog.topic("t").scan().count() == SEALED + LOGGED - 100 * named
        assert len(catalog.verify()) == 2 + named


def test_a_directory_in_the_place_of_a_segment_when_the_manifest_is_rebuilt(root):
    path = min((root / "segments").glob("*/*.esdb"))
    path.unlink()
    path.mkdir()
    report = aggregator.rebuild_manifest(root)
    assert report.quarantined == (str(path.relative_to(root)),)
    with aggregator.open(root) as catalog:
        assert catalog.topic("t").scan().count() == SEALED + LOGGED - 100
