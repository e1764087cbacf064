"""A full disk: a few reserved files let operations that make room succeed; appends are refused meanwhile."""

from __future__ import annotations

import errno
import os
import subprocess
import sys

import pyarrow as pa
import pytest
from click.testing import CliRunner
from effort import long
from served import served
from waiting import until

import aggregator
from aggregator.cli import main
from aggregator.client.following import Follower
from aggregator.storage.files import disk_reserve
from aggregator.storage.files.disk_reserve import FILES, LEAST_BYTES, MOST_BYTES, DiskReserve, wanted_bytes

ROWS, NAMES = 200, 150


@pytest.mark.parametrize(
    ("manifest", "total", "limits", "wanted"),
    [
        (0, 0, (None, None), LEAST_BYTES),
        (100_000, 0, (None, None), LEAST_BYTES + 200_000),
        (0, 256 << 20, (None, None), 4 << 20),
        (0, 1 << 40, (None, None), MOST_BYTES),
        (1 << 30, 0, (None, None), MOST_BYTES),
        (0, 0, (1 << 20, None), 64 << 10),
        (0, 1 << 40, (64 << 20, 32 << 20), 2 << 20),
    ],
)
def test_wanted(manifest, total, limits, wanted):
    """The reserve suffices to rewrite the manifest, grows with the catalog, and is small if limits are."""
    assert wanted_bytes(manifest, total, limits) == wanted


def test_kept_and_given(tmp_path):
    """The reserve is on disk, grows as requested, and is spent once."""
    kept = DiskReserve(tmp_path / "reserve")
    assert not kept.spend()
    assert not kept.spent
    kept.keep(80_000)
    assert sum(path.stat().st_blocks * 512 for path in (tmp_path / "reserve").iterdir()) >= 80_000
    kept.keep(800_000)
    assert DiskReserve(tmp_path / "reserve").size_bytes == 800_000
    assert len(list((tmp_path / "reserve").iterdir())) == FILES
    assert kept.spend()
    assert (kept.spent, kept.size_bytes, list((tmp_path / "reserve").iterdir())) == (True, 0, [])
    kept.keep(80_000)
    assert (kept.spent, kept.size_bytes) == (False, 80_000)


def test_what_fails_for_another_reason_costs_nothing(tmp_path):
    """Only a full disk spends the reserve."""
    kept = DiskReserve(tmp_path / "reserve")
    kept.keep(80_000)

    def fail():
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with pytest.raises(OSError, match="Input/output"):
        kept.help(fail)
    assert kept.size_bytes == 80_000


def test_no_room_to_keep_it(tmp_path, monkeypatch):
    """If the disk fills up while the reserve is created, its files are removed."""
    kept = DiskReserve(tmp_path / "reserve")
    real, made = disk_reserve._fill, []

    def fill(path, size):
        made.append(path)
        if len(made) == 3:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(path, size)

    monkeypatch.setattr(disk_reserve, "_fill", fill)
    kept.keep(80_000)
    assert (kept.size_bytes, list((tmp_path / "reserve").iterdir())) == (0, [])


# ------------------------------------------------------------ catalogs on a disk that is full


@pytest.fixture
def small_disk(tmp_path):
    """A file system of a few MiB and NAMES inodes."""
    disk = tmp_path / "disk"
    disk.mkdir()
    options = f"size=12m,nr_inodes={NAMES}"
    if not sys.platform.startswith("linux") or os.geteuid() != 0:
        pytest.skip("mounting a small file system takes Linux and root")
    mount = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(disk)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("a file system cannot be mounted here")
    yield disk
    subprocess.run(["umount", "-l", str(disk)], check=True)


def events(first):
    data = [os.urandom(200) for _ in range(ROWS)]
    return pa.table({"space": [f"s{first}"] * ROWS, "timestamp": range(first, first + ROWS), "data": data})


def fill_bytes(disk):
    """Leave no byte free."""
    with (disk / "others").open("wb", buffering=0) as file:
        size = 1 << 20
        while size:
            try:
                file.write(bytes(size))
            except OSError:
                size //= 2
    assert os.statvfs(disk).f_bavail == 0


def fill_names(disk):
    """Leave no inode free."""
    (disk / "others").mkdir()
    for number in range(NAMES):
        try:
            (disk / "others" / str(number)).touch()
        except OSError:
            break
    assert os.statvfs(disk).f_favail == 0


@pytest.fixture(params=[fill_bytes, pytest.param(fill_names, marks=long)], ids=["bytes", "names"])
def full(request, small_disk):
    """The root of a closed catalog with ten segments, on a full disk."""
    root = small_disk / "data"
    with aggregator.open(root) as catalog:
        topic = catalog.create_topic("t")
        for number in range(10):
            topic.append(events(number * ROWS))
            catalog.seal()
        topic.append(events(10 * ROWS))
    request.param(small_disk)
    return root


def append_for_ever(topic):
    while True:
        topic.append(events(0))


def make_room(disk):
    """Delete the other files on the disk."""
    if (disk / "others").is_dir():
        for path in (disk / "others").iterdir():
            path.unlink()
        (disk / "others").rmdir()
    else:
        (disk / "others").unlink()


def test_opened_and_made_smaller(full):
    """On a full disk events can be read, appends are refused, and retention works; with room, appends work again."""
    with aggregator.open(full) as catalog:
        topic = catalog.topic("t")
        assert topic.scan().count() == 11 * ROWS
        with pytest.raises(aggregator.OverloadedError, match="disk was full"):
            topic.append(events(0))
        assert "disk was full" in catalog.trouble
        topic.set_policy(retention={"segments": 1})
        assert topic.retain().removed  # eight of them may be merged by then
        assert len(list(full.glob("segments/*/*.esdb"))) == 1
        kept = topic.scan().count()
        make_room(full.parent)
        catalog._backend.upkeep.keep_reserve()
        assert catalog.trouble is None
        topic.append(events(0))
    with aggregator.open(full) as catalog:
        assert catalog.topic("t").scan().count() == kept + ROWS


def test_without_the_reserve(full):
    """Without the reserve the catalog cannot be opened on the full disk."""
    for path in (full / "reserve").iterdir():
        path.rename(full.parent / path.name)
    with pytest.raises((OSError, aggregator.ManifestFailedError)):
        aggregator.open(full)


def test_from_the_command_line(full):
    """On a full disk `erase`, `retain` and `compact` work."""

    def command(*arguments):
        done = CliRunner().invoke(main, [str(argument) for argument in arguments])
        assert done.exit_code == 0, done.output
        return done.output

    assert "would be removed" in command("retain", full, "--dry-run")
    command("erase", full, "t", "s0")
    command("topics", full, "--alter", "t", "--retention", "segments=2")
    assert "removed" in command("retain", full)
    command("compact", full)
    assert len(list(full.glob("segments/*/*.esdb"))) <= 2


def test_full_while_it_runs(full):
    """A catalog that is open when the disk fills up can still remove segments, and refuses appends."""
    make_room(full.parent)
    with aggregator.open(full) as catalog:
        catalog._backend.upkeep.keep_reserve()
        topic = catalog.topic("t")
        fill_bytes(full.parent)
        topic.set_policy(retention={"segments": 0})
        catalog.retain()
        assert list(full.glob("segments/*/*.esdb")) == []
        with pytest.raises((aggregator.OverloadedError, aggregator.LogFailedError)):
            append_for_ever(topic)  # the removal freed some room
        kept = topic.scan().count()
        make_room(full.parent)
        catalog._backend.upkeep.keep_reserve()
        topic.append(events(0))
        assert topic.scan().count() == kept + ROWS


def test_a_disk_that_may_only_be_read(small_disk):
    """On a read-only disk reads work; writes fail with the path and a hint, never naming a file that never existed."""
    with aggregator.open(small_disk / "data") as catalog:
        catalog.create_topic("t").append(events(0))
    (small_disk / "e.csv").write_text("space,timestamp\na,1\n")
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)

    def command(module, *given):
        ran = [sys.executable, "-m", module, *given]
        done = subprocess.run(ran, cwd=small_disk, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout + done.stderr

    assert command("aggregator", "scan", "data", "t", "--count") == (0, f"{ROWS}\n")
    status, told = command("aggregator", "verify", "data")
    assert (status, told.split(",")[0]) == (0, "data: ok")
    for place, given in {
        small_disk / "data" / "writer.lock": ("aggregator", "append", "data", "t", "e.csv"),
        ".": ("esformat", "write", "e.esdb", "e.csv"),
        small_disk / "new": ("aggregator", "init", "new"),
    }.items():
        status, told = command(*given)
        assert status == 1
        assert f": {place}: read-only file system; write elsewhere, or mount it read-write" in told
        assert told.count("\n") == 1


def test_what_is_restored_or_forwarded_to_a_full_disk(small_disk, tmp_path):
    """Restoring and forwarding to a full disk name the file, and continue with room."""
    data, store, out = tmp_path / "data", (tmp_path / "store").as_uri(), small_disk / "out"
    with aggregator.open(data, store=store) as catalog:
        topic = catalog.create_topic("t")
        for number in range(10):
            topic.append(events(number * ROWS))
        catalog.write({"app": "x"}, [{"msg": "m" * 1000}] * 20)
    fill_bytes(small_disk)
    with (small_disk / "others").open("r+b") as file:
        file.truncate(file.seek(0, os.SEEK_END) - (200 << 10))  # room for the manifest, not for the log
    with pytest.raises(OSError, match="it continues once there is free space") as caught:
        aggregator.restore(store, small_disk / "back")
    assert caught.value.filename.startswith(str(small_disk / "back" / "log"))
    given = [str(data), "SELECT FROM app=x POSITION HEAD", "--to", f"file:{out}", "--state", str(tmp_path / "notes")]
    forward = [sys.executable, "-m", "aggregator", "forward", *given, "--once"]
    fill_bytes(small_disk)
    with subprocess.Popen(forward, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True) as process:
        assert process.stderr is not None
        assert str(out) in process.stderr.readline()
        make_room(small_disk)
        assert process.wait(60) == 0
    assert len(out.read_text().splitlines()) == 20
    aggregator.restore(store, small_disk / "back")
    with aggregator.open(small_disk / "back") as catalog:
        assert catalog.topic("t").scan().count() == 10 * ROWS


def test_a_follower_that_finds_no_room(small_disk, tmp_path):
    """A follower without room names the file that it cannot write, and continues when there is room."""
    with served(tmp_path / "data") as server:
        server.catalog.create_topic("t").append(events(0))
        fill_bytes(small_disk)
        with (small_disk / "others").open("r+b") as file:
            file.truncate(file.seek(0, os.SEEK_END) - (40 << 10))  # room for its note and little else
        with Follower(server.url, small_disk / "copy") as follower:
            until(lambda: follower.lag["trouble"])
            assert str(small_disk / "copy") in follower.lag["trouble"]
            make_room(small_disk)
            follower.wait_until_caught_up()
        with aggregator.open(small_disk / "copy", read_only=True) as copy:
            assert copy.topic("t").scan().count() == ROWS


def test_who_finds_no_room_is_told_where(full):
    """Commands that write a small file to a full disk name the file and its state."""
    roomless = full.parent / "new"
    for name, arguments in {
        full / "tokens.json": ("token", "create", full, "web", "--scope", "read"),
        full / "writer.lock": ("rebuild-manifest", full),
        roomless / "writer.lock": ("init", roomless),
    }.items():
        given = [sys.executable, "-m", "aggregator", *map(str, arguments)]
        done = subprocess.run(given, capture_output=True, text=True, check=False)
        assert done.returncode == 1
        assert done.stderr.startswith(f"aggregator: {name}: no space left on device; ")
        assert done.stderr.count("\n") == 1
