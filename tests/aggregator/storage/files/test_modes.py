"""Who may read a catalog: its owner only, or a group as well, whatever the umask."""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from pathlib import Path

import pyarrow as pa
import pytest
from effort import share_of

import aggregator
import esformat
from aggregator.cli import run
from aggregator.cli.shared.open_catalog import state_folder
from aggregator.collect.progress import save
from aggregator.server.control import tokens
from aggregator.storage.files.modes import create_directory, create_file, directory_mode, parse_mode


@pytest.fixture(params=[0o000, 0o022, 0o077], ids=oct)
def umask(request):
    """The umask of the process."""
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


@pytest.fixture
def no_umask():
    before = os.umask(0)
    yield 0
    os.umask(before)


def fill(root, **options):
    """Make a catalog create every kind of file."""
    catalog = aggregator.open(root, **options)
    for number in range(8):
        topic = catalog.topic("t") if number else catalog.create_topic("t")
        topic.append(pa.table({"space": ["a", "b"], "timestamp": [number, number]}), producer="p", sequence=number)
        catalog.seal()
    catalog.write({"app": "x"}, [{"msg": "m"}])
    catalog.topic("t").erase("a")
    catalog.compact()
    return catalog


def modes(root):
    """Files and directories below a directory, grouped by kind and mode."""
    found = {}
    for path in root.rglob("*"):
        kind = "directory" if path.is_dir() else "file"
        found.setdefault((kind, stat.S_IMODE(path.stat().st_mode)), []).append(str(path.relative_to(root)))
    return found


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize(("umask", "sealing", "file_mode"), share_of([
    (0o000, "process", None), (0o022, "thread", None), (0o077, "thread", 0o640), (0o000, "thread", 0o660),
], 2), indirect=["umask"])  # fmt: skip
def test_modes(tmp_path, umask, sealing, file_mode):
    """Every file and directory has the requested mode, while the catalog is open and after reopening."""
    root = tmp_path / "above" / "data"
    wanted = {("file", file_mode or 0o600), ("directory", directory_mode(file_mode or 0o600))}
    with fill(root, sealing=sealing, file_mode=file_mode):
        assert modes(root).keys() == wanted, modes(root)
        assert (root / "manifest.sqlite-wal").exists()
    (root / "segments" / "000000" / "000000000999.esdb").write_bytes(b"none of ours")
    (root / "segments" / "000000" / "000000000999.esdb").chmod(file_mode or 0o600)
    with aggregator.open(root) as catalog:
        catalog.topic("t").append(pa.table({"space": ["b"], "timestamp": [99]}))
        catalog.seal()
        assert list((root / "quarantine").iterdir())
        assert modes(root).keys() == wanted, modes(root)
    assert modes(tmp_path / "above").keys() == wanted | {("directory", directory_mode(file_mode or 0o600))}


def test_another_mode_for_a_catalog_that_is_there(tmp_path, no_umask):
    """Opening with a mode changes every file; without one, modes stay."""
    root = tmp_path / "data"
    fill(root).close()
    tokens.create(root / "tokens.json", "me", ["read"])
    for given, wanted in ((0o640, 0o640), (None, 0o640), (0o600, 0o600), (None, 0o600)):
        aggregator.open(root, file_mode=given).close()
        found = {path: stat.S_IMODE(path.stat().st_mode) for path in root.rglob("*") if path.is_file()}
        assert found.pop(root / "tokens.json") == 0o600
        assert set(found.values()) == {wanted}
    assert esformat.verify(next(root.rglob("*.esdb"))).ok


def test_directories_that_were_there(tmp_path, no_umask):
    """Existing directories keep their mode; new files in them are still the owner's only."""
    root = tmp_path / "data"
    root.mkdir()
    root.chmod(0o755)
    fill(root).close()
    assert stat.S_IMODE(root.stat().st_mode) == 0o755
    assert modes(root).keys() == {("file", 0o600), ("directory", 0o700)}
    aggregator.open(root, file_mode=0o660).close()
    assert stat.S_IMODE(root.stat().st_mode) == 0o775


def test_a_manifest_that_was_lost(tmp_path, no_umask):
    """A rebuilt manifest is readable by its owner only."""
    fill(tmp_path / "c", file_mode=0o640).close()
    (tmp_path / "c" / "manifest.sqlite").unlink()
    aggregator.rebuild_manifest(tmp_path / "c")
    assert stat.S_IMODE((tmp_path / "c" / "manifest.sqlite").stat().st_mode) == 0o600


def test_files_beside_a_catalog(tmp_path, no_umask, monkeypatch):
    """Notes, tokens and directories created for them are the owner's only."""
    save(tmp_path / "notes.json", {})
    tokens.create(tmp_path / "later" / "tokens.json", "me", ["read"])
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    save(state_folder() / "notes.json", {})
    assert modes(tmp_path).keys() == {("file", 0o600), ("directory", 0o700)}


def test_files_of_esformat_follow_the_umask(tmp_path, umask):
    """A segment written without a catalog follows the umask like any file."""
    with esformat.create(tmp_path / "a.esdb") as writer:
        writer.add("a", b"x", timestamp=1)
    assert stat.S_IMODE((tmp_path / "a.esdb").stat().st_mode) == 0o666 & ~umask


@pytest.mark.parametrize("given", [0o400, 0o200, 0o700, 0o1600, True, "rw", "0o", "999", -1, 640])
def test_modes_that_make_no_sense(tmp_path, given):
    """Invalid modes are refused before anything is created."""
    with pytest.raises(aggregator.InvalidRequestError, match="file_mode must be"):
        aggregator.open(tmp_path / "c", file_mode=given)
    assert not (tmp_path / "c").exists()


def test_modes_as_text(tmp_path):
    """Modes may be text, as on the command line and in settings."""
    assert (parse_mode("0640"), parse_mode("0o664"), parse_mode("600")) == (0o640, 0o664, 0o600)
    assert run(["init", str(tmp_path / "c"), "--file-mode", "0640"]) == 0
    assert stat.S_IMODE((tmp_path / "c" / "manifest.sqlite").stat().st_mode) == 0o640


def test_where_something_else_is(tmp_path):
    """A file in the way is reported; it keeps its mode and content."""
    (tmp_path / "f").write_bytes(b"x")
    with pytest.raises(OSError, match="f"):
        create_directory(tmp_path / "f" / "g")
    with pytest.raises(FileExistsError):
        create_directory(tmp_path / "f")
    (tmp_path / "f").chmod(0o644)
    os.close(create_file(tmp_path / "f", os.O_RDWR))
    assert ((tmp_path / "f").read_bytes(), stat.S_IMODE((tmp_path / "f").stat().st_mode)) == (b"x", 0o644)


def read_as(user, group, root):
    """What another user counts in a catalog; "" if it cannot be read."""
    with aggregator.open(root, read_only=True) as catalog:  # import everything needed before the fork
        catalog.topic("t").scan().count()
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.setgroups([])
            os.setgid(group)
            os.setuid(user)
            with aggregator.open(root, read_only=True) as catalog:
                os.write(writing, str(catalog.topic("t").scan().count()).encode())
        finally:
            os._exit(0)
    os.close(writing)
    os.waitpid(child, 0)
    with os.fdopen(reading) as told:
        return told.read()


@pytest.mark.usefixtures("quiet")
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize("is_open", [True, False])
def test_readers_of_a_group(is_open):
    """A group member without write access can read with and without a writer; others cannot."""
    above = Path(tempfile.mkdtemp())
    above.chmod(0o711)
    root = above / "data"
    somebody, group = 65_534, 65_533
    try:
        with aggregator.open(root, file_mode=0o640) as catalog:
            topic = catalog.create_topic("t")
            for number in range(2):
                topic.append(pa.table({"space": ["a", "b"], "timestamp": [number, number]}))
                if not number:
                    catalog.seal()
            if not is_open:
                catalog.close()
            for path in (root, *root.rglob("*")):
                os.chown(path, 0, group)
            assert read_as(somebody, group, root) == "4"
            assert read_as(somebody, somebody, root) == ""
    finally:
        shutil.rmtree(above)
