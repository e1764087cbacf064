"""Leases: only one job at a time works on a location, in a directory and in a store."""

from __future__ import annotations

import json
import threading
import time

import pytest
from pyarrow import fs

from esformat.errors import ClosedError, UsageError
from esformat.io.commit_folder import LocalFolder, StoredFolder
from esformat.io.commits import Write
from esformat.io.lease import LEASE_SECONDS, all_owned, owned
from esformat.io.store import ArrowStore
from esformat.io.write_owner import this_owner


@pytest.fixture(params=["directory", "store"])
def folder(request, tmp_path):
    """A location of each kind, in `tmp_path / "place"`."""
    path = tmp_path / "place"
    path.mkdir()
    if request.param == "directory":
        return LocalFolder(str(path))
    return StoredFolder(ArrowStore(fs.SubTreeFileSystem(str(tmp_path), fs.LocalFileSystem())), "place")


def put_lease(folder, **changes):
    """Write the lease of a job elsewhere."""
    holder = {"job": "convert", **this_owner(), "until": time.time() + LEASE_SECONDS, **changes}
    folder.put("_lease-0123456789abcdef", json.dumps(holder).encode())


def test_second_job_is_refused(folder):
    """While a job works, a second one is refused with the name of the first; afterwards no lease remains."""
    with owned(folder, "convert") as lease:
        lease.check()
        with pytest.raises(UsageError, match="another job is running here: convert, process"), owned(folder, "compact"):
            pass
        lease.check()
    assert folder.names() == []


def test_all_or_none(folder, tmp_path):
    """If one of several locations is taken, none is leased."""
    other = LocalFolder(str(tmp_path / "other"))
    with owned(folder, "convert"), pytest.raises(UsageError), all_owned([other, folder], "erase"):
        pass
    assert other.names() == []


@pytest.mark.parametrize(
    "gone", [{"started": "0"}, {"host": "elsewhere", "until": 0.0}], ids=["process is gone", "not renewed"]
)
def test_lease_of_the_dead(folder, gone):
    """The lease of a dead process, or of a machine that stopped renewing it, does not count."""
    put_lease(folder, **gone)
    with owned(folder, "convert"):
        assert len(folder.names()) == 1


def test_lease_of_another_machine(folder):
    """A job on another machine counts as alive as long as it renews its lease."""
    put_lease(folder, host="elsewhere")
    with pytest.raises(UsageError, match="on elsewhere"), owned(folder, "convert"):
        pass


def test_unreadable_lease(folder):
    """An unreadable lease is reported, not ignored."""
    folder.put("_lease-0123456789abcdef", b"{}")
    with pytest.raises(UsageError, match="cannot read the lease"), owned(folder, "convert"):
        pass


def test_jobs_that_begin_at_once(folder):
    """Of several jobs that begin at the same moment, at most one owns the location at any time."""
    inside, most, refused = [], [], []

    def work():
        try:
            with owned(folder, "convert"):
                inside.append(1)
                most.append(len(inside))
                inside.pop()
        except UsageError as error:
            refused.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(most) + len(refused) == 4
    assert set(most) == {1}


def test_commit_looks_again(folder):
    """A job that was taken for dead publishes nothing."""
    with owned(folder, "convert") as lease:
        folder.remove([lease.name])
        put_lease(folder)
        with pytest.raises(ClosedError, match="considered this one dead"):
            Write(folder, "0123456789abcdef", lease=lease.name).commit([])
    assert folder.names() == ["_lease-0123456789abcdef"]
