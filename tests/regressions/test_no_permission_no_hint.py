"""Missing permission was reported as 'permission denied' or wrong usage, without a suggestion."""

from __future__ import annotations

import contextlib
import ctypes
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from waiting import until

import aggregator
import esformat
from aggregator.cli import run as aggregator_command
from esformat.cli import run as esdb

DROP_FROM_BOUNDS, PAST_MODES, PAST_MODES_OF_READING = 24, 1, 2  # prctl(2), capabilities(7)
THREE = 0x20080522  # the version of capget(2): effective, permitted, inherited, each as two 32-bit words

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="modes and capabilities as Linux has them")


def drop_for_good() -> None:
    """Take from a program run by root the capabilities that bypass file modes."""
    for capability in (PAST_MODES, PAST_MODES_OF_READING):
        ctypes.CDLL(None).prctl(DROP_FROM_BOUNDS, capability, 0, 0, 0)


@contextlib.contextmanager
def bound_by_modes() -> Iterator[None]:
    """Take the same capabilities from this thread, and those that it starts, for a while."""
    libc, this = ctypes.CDLL(None), (ctypes.c_uint32 * 2)(THREE, 0)
    held, less = (ctypes.c_uint32 * 6)(), (ctypes.c_uint32 * 6)()
    assert libc.capget(this, held) == libc.capget(this, less) == 0
    less[0] &= ~(1 << PAST_MODES | 1 << PAST_MODES_OF_READING)
    assert libc.capset(this, less) == 0
    try:
        yield
    finally:
        assert libc.capset(this, held) == 0


def run_apart(folder: Path, module: str, *arguments: str) -> tuple[int, str]:
    """Run a command in a separate process: access(2) checks the capabilities that a thread may regain."""
    found = subprocess.run(
        [sys.executable, "-m", module, *arguments],
        cwd=folder, capture_output=True, text=True, check=False, preexec_fn=drop_for_good,
    )  # fmt: skip
    return found.returncode, found.stdout + found.stderr


@pytest.fixture
def run(tmp_path, monkeypatch, capfd):
    """Run `esdb` or `aggregator` in the test's directory and in this process; return the status and all output."""
    monkeypatch.chdir(tmp_path)

    def command(module, *arguments):
        capfd.readouterr()
        with bound_by_modes():
            status = {"esformat": esdb, "aggregator": aggregator_command}[module](list(arguments))
        return status, "".join(capfd.readouterr())

    return command


@pytest.fixture
def folder(tmp_path):
    """A directory that cannot be written, and a file and a directory that cannot be read."""
    with esformat.create(tmp_path / "a.esdb") as writer:
        writer.add("a", b"x", timestamp=1)
    (tmp_path / "secret.esdb").write_bytes((tmp_path / "a.esdb").read_bytes())
    (tmp_path / "secret.csv").write_text("space,timestamp\na,1\n")
    for name in ("closed", "fixed"):
        (tmp_path / name).mkdir()
    modes = {"secret.esdb": 0, "secret.csv": 0, "closed": 0, "fixed": 0o555}
    for name, mode in modes.items():
        (tmp_path / name).chmod(mode)
    yield tmp_path
    for name in modes:
        (tmp_path / name).chmod(0o755)


COMMANDS = [
    (("esformat", "info", "secret.esdb"), "secret.esdb", 1),
    (("esformat", "info", "closed/a.esdb"), "closed/a.esdb", 1),
    (("esformat", "scan", "closed"), "closed", 1),
    (("esformat", "diff", "a.esdb", "secret.esdb"), "secret.esdb", 2),
    (("esformat", "write", "b.esdb", "secret.csv"), "secret.csv", 1),
    (("esformat", "convert", "a.esdb", "fixed/a.parquet"), "fixed", 1),
    (("aggregator", "init", "fixed/catalog"), "fixed/catalog", 1),
    (("aggregator", "serve", "--config", "secret.csv"), "secret.csv", 1),
]


@pytest.mark.parametrize(("command", "name", "status"), COMMANDS, ids=[" ".join(command) for command, _, _ in COMMANDS])
def test_permission_denied(folder, run, command, name, status):
    """One line says what is denied and how to fix it; the status is that of a missing file."""
    found, told = run(*command)
    assert found == status
    assert f"{name}: permission denied; run as a user with access, or grant access with chmod or chown" in told
    assert told.count("\n") == 1


@pytest.mark.parametrize(("command", "name", "status"), [COMMANDS[0], COMMANDS[-1]], ids=["esformat", "aggregator"])
def test_permission_denied_to_a_program(folder, command, name, status):
    """A separate process has the same message and status."""
    found, told = run_apart(folder, *command)
    assert (found, told.count("\n")) == (status, 1)
    assert f"{name}: permission denied; run as a user with access, or grant access with chmod or chown" in told


def test_a_log_that_may_not_be_read(folder, run):
    """`collect` reports an unreadable log; it skipped it silently, and ended as if everything was collected."""
    (folder / "logs").mkdir()
    for name, mode in (("a.log", 0), ("b.log", 0o644)):
        (folder / "logs" / name).write_text("line\n")
        (folder / "logs" / name).chmod(mode)
    assert run("aggregator", "init", "data")[0] == 0
    _, told = run_apart(folder, "aggregator", "collect", "--path", "logs/*.log", "--into", "data", "--once")
    assert "logs/a.log is not collected: permission denied" in told
    assert "1 line" in told
    assert "1 file not read" in told


@pytest.fixture
def catalog(tmp_path):
    """A catalog with a segment and a batch in the log; its modes are restored."""
    with aggregator.open(tmp_path / "data", sealing="thread") as opened:
        topic = opened.create_topic("t", roll={"rows": 100})
        topic.append([{"space": "a", "timestamp": n} for n in range(100)])
        until(topic.segments)
        topic.append([{"space": "b", "timestamp": 1}])
    yield tmp_path / "data"
    for place in ("segments", "segments/000000"):
        (tmp_path / "data" / place).chmod(0o700)


@pytest.mark.parametrize("closed", ["segments", "segments/000000"])
def test_a_manifest_is_rebuilt_from_all_segments_or_not(catalog, run, closed):
    """A manifest is not rebuilt if segments cannot be read; it was rebuilt without them."""
    before = (catalog / "manifest.sqlite").read_bytes()
    (catalog / closed).chmod(0)
    status, told = run("aggregator", "rebuild-manifest", "data")
    assert status == 1
    assert f"data/{closed}: permission denied; run as a user with access" in told
    assert told.count("\n") == 1
    assert (catalog / "manifest.sqlite").read_bytes() == before


def test_a_missing_manifest_beside_segments_that_may_not_be_read(catalog, run):
    """A missing manifest beside unreadable segments is an error; without its backup a new catalog was created there."""
    for name in ("manifest.sqlite", "catalog.facts"):
        (catalog / name).unlink()
    (catalog / "segments/000000").chmod(0)
    status, told = run("aggregator", "init", "data")
    assert status == 1
    assert "data/segments/000000: permission denied; run as a user with access" in told
    assert not (catalog / "manifest.sqlite").exists()


@pytest.mark.parametrize("command", [("stats", "data"), ("scan", "data", "t"), ("query", "data", "SELECT COUNT")])
def test_a_manifest_that_may_not_be_read(catalog, command):
    """An unreadable manifest is reported to readers, too; it was 'unable to open database file' without a fix."""
    (catalog / "manifest.sqlite").chmod(0)
    status, told = run_apart(catalog.parent, "aggregator", *command)
    assert status == 1
    assert (
        "data/manifest.sqlite: permission denied; run as a user with access, or grant access with chmod or chown"
        in told
    )
    assert told.count("\n") == 1


@pytest.mark.parametrize("mode", [0, 0o444])
def test_a_manifest_of_a_mode_that_serves_nobody(catalog, run, mode):
    """A manifest with an unusable mode can be rebuilt; the new one copied the mode, and could not be written."""
    (catalog / "manifest.sqlite").chmod(mode)
    assert run("aggregator", "rebuild-manifest", "data")[0] == 0
    assert (catalog / "manifest.sqlite").stat().st_mode & 0o777 == mode | 0o600
    with aggregator.open(catalog) as opened:
        assert opened.topic("t").scan().count() == 101


@pytest.mark.parametrize("verb", ["verify", "promote", "rebuild-manifest"])
def test_a_catalog_that_may_not_be_entered(folder, run, verb):
    """Verbs for directories report the denied permission; they called it wrong usage."""
    status, told = run("aggregator", verb, "closed")
    assert status == 1
    assert "permission denied; run as a user with access, or grant access with chmod or chown" in told
    assert told.count("\n") == 1


def test_promoting_what_is_not_there(folder, run):
    """Promoting a missing follower names its directory, not a missing lock file."""
    status, told = run("aggregator", "promote", "nothing")
    assert (status, told) == (2, f"aggregator: {folder}/nothing: no catalog found; name the directory of a follower\n")
