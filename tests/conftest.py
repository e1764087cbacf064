"""What every test may use. Helper modules are in `tests/support/`, which is on the path."""

from __future__ import annotations

import contextlib
import gc
import itertools
import os
import re
import shutil
import signal
import tempfile
from pathlib import Path

import certifi
import effort  # noqa: F401 - loads the profile of Hypothesis
import httpx
import pytest
from clicks import click_table, in_file_order, write_clicks
from still import guard_walks, no_background
from waiting import PATIENCE_S

import esformat

pytest_plugins = ["object_store", "shares"]
guard_walks()

# Numbers of the directories that tests get.
_numbers = itertools.count()

# In memory, where there is room: on a disk, half of a test with a catalog is waiting for `fsync`.
MEMORY, ROOM = Path("/dev/shm"), 4 << 30
if "TMPDIR" not in os.environ and MEMORY.is_dir() and shutil.disk_usage(MEMORY).free >= ROOM:
    os.environ["TMPDIR"] = tempfile.tempdir = str(MEMORY)

# NumPy starts a thread for each processor, and no test multiplies matrices: a fifth of the time of its import.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

# A client to which no test gave a patience of its own has that of the tests: httpx gives up after five seconds, in
# which a busy machine may not answer.
for _part in ("connect", "read", "write", "pool"):
    setattr(httpx._config.DEFAULT_TIMEOUT_CONFIG, _part, PATIENCE_S)

OBJECTS_BETWEEN_COLLECTIONS = 20_000
"""Python itself looks for garbage after 700 new objects, of which those of a test's data live through many looks."""

# What a script starts in the background ignores interrupts, and so would every process that a test starts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """Keep garbage collection from the tests themselves: to look through nine thousand, again and again, takes long."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(OBJECTS_BETWEEN_COLLECTIONS)
        gc.enable()


def pytest_sessionfinish() -> None:
    """Let the end of the process find what was kept from it: DuckDB lists what is left."""
    gc.unfreeze()


def pytest_make_parametrize_id(val: object) -> str | None:
    """Name a case by the beginning of a long text: xdist sends the names of all, one of which had 20 MB."""
    return f"{val[:40]!r}, {len(val)} long" if isinstance(val, str | bytes) and len(val) > 200 else None


@pytest.hookimpl(tryfirst=True)  # before xdist looks for the mark
def pytest_collection_modifyitems(items: list[pytest.Function]) -> None:
    """Tests that share a fixture of their module run in one process: others would make it again."""
    for item in items:
        fixtures = item._fixtureinfo.name2fixturedefs.values()
        if any(each[-1].scope == "module" for each in fixtures) and not item.get_closest_marker("xdist_group"):
            item.add_marker(pytest.mark.xdist_group(item.path.relative_to(item.config.rootpath).as_posix()))


@pytest.fixture(scope="session", autouse=True)
def _one_authority(tmp_path_factory):
    """Clients trust one authority: each would parse a hundred and fifty first, and no test asks a site of the world."""
    first, end, _ = certifi.contents().partition("-----END CERTIFICATE-----\n")
    path = tmp_path_factory.mktemp("tls") / "authority.pem"
    path.write_text(first + end)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SSL_CERT_FILE", str(path))
        yield


@pytest.fixture
def tmp_path(request, tmp_path_factory):
    """A directory for one test, which stays if that fails. pytest's own looks through all others for a free number,
    resolves links and makes one: as much work as the rest of a short test.
    """
    failed = request.session.testsfailed
    path = tmp_path_factory.getbasetemp() / f"t{next(_numbers)}_{re.sub('[^a-zA-Z0-9]', '_', request.node.name)[:30]}"
    path.mkdir(mode=0o700)
    yield path
    if request.session.testsfailed == failed:
        shutil.rmtree(path, ignore_errors=True)


@pytest.fixture(scope="session")
def clicks(tmp_path_factory):
    """30,000 clicks: the path of a file, and a frame with the same events in the same order."""
    path = tmp_path_factory.mktemp("clicks") / "clicks.esdb"
    table = click_table(30_000)
    write_clicks(path, table)
    return path, in_file_order(table)


@pytest.fixture
def quiet(request):
    """No catalog does anything by itself, but in a test that is marked `background`."""
    with contextlib.nullcontext() if request.node.get_closest_marker("background") else no_background():
        yield


@pytest.fixture
def write(tmp_path):
    """Write rows `(space, data, timestamp[, grouping[, indexes]])` to a new file and open it; closed after the test."""
    opened = []

    def write(rows, **options):
        path = tmp_path / f"written-{len(opened)}.esdb"
        with esformat.create(path, **options) as writer:
            for space, data, timestamp, *rest in rows:
                grouping, indexes = [*rest, None, None][:2]
                writer.add(space, data, timestamp=timestamp, grouping=grouping, indexes=indexes)
        opened.append(esformat.open(path))
        return opened[-1]

    yield write
    for segment in opened:
        segment.close()
