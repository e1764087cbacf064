"""Fixtures and hooks for all tests. Helper modules are in `tests/support/`, which is on the path."""

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
import effort  # noqa: F401 - loads the Hypothesis profile
import httpx
import pytest
from clicks import click_table, in_file_order, write_clicks
from still import guard_walks, no_background
from waiting import PATIENCE_S

import esformat

pytest_plugins = ["object_store", "shares"]
guard_walks()

# Numbers for the directories of tests.
_numbers = itertools.count()

# Temporary files are in memory if there is room: on a disk, a test with a catalog spends half its time in `fsync`.
MEMORY, ROOM = Path("/dev/shm"), 4 << 30
if "TMPDIR" not in os.environ and MEMORY.is_dir() and shutil.disk_usage(MEMORY).free >= ROOM:
    os.environ["TMPDIR"] = tempfile.tempdir = str(MEMORY)

# NumPy starts a thread for each processor, which takes a fifth of its import time. No test multiplies matrices.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

# HTTP clients without an explicit timeout get that of the tests: httpx gives up after five seconds, in which
# a busy machine may not answer.
for _part in ("connect", "read", "write", "pool"):
    setattr(httpx._config.DEFAULT_TIMEOUT_CONFIG, _part, PATIENCE_S)

OBJECTS_BETWEEN_COLLECTIONS = 20_000
"""By default, Python searches for garbage after 700 new objects; test data would live through many searches."""

# A script's background processes ignore interrupts, and would pass that on to every process that a test starts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """Exclude the tests themselves from garbage collection: repeated searches through nine thousand take long."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(OBJECTS_BETWEEN_COLLECTIONS)
        gc.enable()


def pytest_sessionfinish() -> None:
    """Unfreeze all objects, so that the end of the process finds them: DuckDB lists those that are left."""
    gc.unfreeze()


def pytest_make_parametrize_id(val: object) -> str | None:
    """Name a case by the beginning of a long text: xdist sends all names, and one of them had 20 MB."""
    return f"{val[:40]!r}, {len(val)} long" if isinstance(val, str | bytes) and len(val) > 200 else None


@pytest.hookimpl(tryfirst=True)  # before xdist looks for the mark
def pytest_collection_modifyitems(items: list[pytest.Function]) -> None:
    """Run tests that share a module fixture in one process; other processes would create it again."""
    for item in items:
        fixtures = item._fixtureinfo.name2fixturedefs.values()
        if any(each[-1].scope == "module" for each in fixtures) and not item.get_closest_marker("xdist_group"):
            item.add_marker(pytest.mark.xdist_group(item.path.relative_to(item.config.rootpath).as_posix()))


@pytest.fixture(scope="session", autouse=True)
def _one_authority(tmp_path_factory):
    """Trust one certificate authority: each client would parse a hundred and fifty. No test contacts a public site."""
    first, end, _ = certifi.contents().partition("-----END CERTIFICATE-----\n")
    path = tmp_path_factory.mktemp("tls") / "authority.pem"
    path.write_text(first + end)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SSL_CERT_FILE", str(path))
        yield


@pytest.fixture
def tmp_path(request, tmp_path_factory):
    """A directory for one test, kept if the test fails. pytest's own fixture searches all directories for a free
    number, resolves links and creates one: as much work as the rest of a short test.
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
def hangups():
    """Started commands heed SIGHUP, even if the tests run under nohup, which has it ignored."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.fixture
def quiet(request):
    """Catalogs have no background activity, except in tests marked `background`."""
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
