"""Open files and catalogs in other processes: pickled, spawned, forked."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import threading

import fsspec
import pytest

import aggregator
import esformat
from esformat.core.caches import Budget
from esformat.read.blocks.reader import SHARED_CACHE


@pytest.fixture
def path(tmp_path):
    with esformat.create(tmp_path / "a.esdb", indexes=["type"]) as writer:
        for n in range(1000):
            writer.add(f"space-{n % 7}", b"x" * 50, timestamp=n, indexes={"type": "page"})
    return tmp_path / "a.esdb"


def count(opened):
    """The number of events of a process's copy."""
    return sum(1 for _ in opened.scan())


def catalog_rows(catalog):
    return catalog.topic("t").scan().count()


def test_a_segment_is_pickled_by_its_path(path, monkeypatch):
    """A pickled segment opens the same file, also from another directory; a closed one cannot be pickled."""
    monkeypatch.chdir(path.parent)
    with esformat.open("a.esdb", cache_bytes=1 << 20) as segment:
        stored = pickle.dumps(segment)
        assert len(stored) < 2000
        monkeypatch.chdir("/")
        with pickle.loads(stored) as copy:
            assert count(copy) == 1000
            assert copy.path == str(path)
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            assert pool.apply(count, (segment,)) == 1000
    with pytest.raises(esformat.UsageError, match="only an open segment"):
        pickle.dumps(segment)


def test_a_file_that_was_replaced(path):
    """A copy has the same events or raises an error."""
    with esformat.open(path) as segment, esformat.open_many([path]) as collection:
        stored = pickle.dumps(segment), pickle.dumps(collection)
        with esformat.create(path, overwrite=True) as writer:
            writer.add("other", b"", timestamp=1)
        for one in stored:
            with pytest.raises(esformat.SegmentChangedError):
                pickle.loads(one)


def test_what_else_a_segment_lies_in(path):
    """Segments in fsspec stores and in memory, and several files as one, can be pickled."""
    memory = fsspec.filesystem("memory")
    memory.pipe_file("/bucket/a.esdb", path.read_bytes())
    for target in ("memory://bucket/a.esdb", (memory, "/bucket/a.esdb"), esformat.BytesSource(path.read_bytes())):
        with esformat.open(target) as segment, pickle.loads(pickle.dumps(segment)) as copy:
            assert count(copy) == 1000
    with esformat.open_many([path, "memory://bucket/a.esdb"]) as both, pickle.loads(pickle.dumps(both)) as copy:
        assert copy.num_events == 2000
        assert copy.paths == both.paths
    with pytest.raises(esformat.ClosedError):
        pickle.dumps(both)


def test_a_catalog_is_pickled_for_reading(tmp_path, monkeypatch):
    """A copy of a writer's catalog reads acknowledged records at the same time, and cannot write."""
    monkeypatch.chdir(tmp_path)
    with aggregator.open("data", durability="none") as catalog:
        catalog.create_topic("t").append([{"space": "a", "timestamp": 1}])
        stored = pickle.dumps(catalog)
        monkeypatch.chdir("/")
        with pickle.loads(stored) as copy:
            assert catalog_rows(copy) == 1
            with pytest.raises(aggregator.ReadOnlyError):
                copy.create_topic("more")
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            assert pool.apply(catalog_rows, (catalog,)) == 1
    with pytest.raises(esformat.ClosedError):
        pickle.dumps(catalog)


def test_parts_of_what_is_open_are_not_pickled(path, tmp_path):
    """Parts of open files and catalogs cannot be pickled; the error says what can, for Dask and multiprocessing."""
    with esformat.open(path) as segment, aggregator.open(tmp_path / "data", durability="none") as catalog:
        topic = catalog.create_topic("t")
        catalog.write({"app": "web"}, [{"msg": "hi"}])
        counts = [segment.spaces(), segment.index_values("type"), segment["space-3"].groupings()]
        parts = [*counts, segment["space-3"], segment.scan(limit=3), segment.scan_index("type", "page")]
        for part in [*parts, topic, topic.scan(), catalog.query("SELECT")]:
            with pytest.raises(esformat.UsageError, match=r"cannot be pickled.*pickle the (file|catalog)"):
                pickle.dumps(part)


# ------------------------------------------------------------ forks


def in_a_fork(work) -> int:
    """The exit status of a forked process that does the work; an alarm ends it if it waits for a lock forever."""
    child = os.fork()
    if not child:
        signal.alarm(20)
        status = 1
        try:
            status = 0 if work() else 2
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_forks_read_what_is_open(path):
    """Segments and collections that were used before, of local files and stores, can be read in a forked process."""
    memory = fsspec.filesystem("memory")
    for name in ("a", "b"):
        memory.pipe_file(f"/forks/{name}.esdb", path.read_bytes())
    with esformat.open(path) as segment, esformat.open_many("memory://forks/") as both:
        assert (count(segment), count(both)) == (1000, 2000)
        assert "space-3" in both  # queries the files in parallel threads
        assert in_a_fork(lambda: count(segment) == 1000) == 0
        assert in_a_fork(lambda: segment["space-3"].num_events == 143) == 0
        assert in_a_fork(lambda: "space-3" in both and count(both) == 2000) == 0
        assert (count(segment), count(both)) == (1000, 2000)


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
@pytest.mark.parametrize("times", [1, 3])
def test_forks_ask_in_sql(path, times):
    """SQL statements that were used before work in a forked process, with new connections."""
    statement = "SELECT max(octet_length(data)) FROM events WHERE space = 'space-3'"
    with esformat.open(path) as segment:
        for _ in range(times):
            assert segment.sql(statement).fetchall() == [(50,)]
        assert in_a_fork(lambda: [segment.sql(statement).fetchall() for _ in range(2)] == [[(50,)]] * 2) == 0


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_forks_while_a_thread_holds_locks(path):
    """A thread that changes the shared cache during a fork does not leave it locked in the new process."""
    with esformat.open(path) as segment:
        held, done = threading.Event(), threading.Event()

        def hold(budgets: tuple[Budget, ...]) -> None:
            with budgets[0]._guard:  # which they share
                held.set()
                done.wait(60)

        thread = threading.Thread(target=hold, args=(tuple(SHARED_CACHE),))
        thread.start()
        held.wait(60)
        try:
            assert in_a_fork(lambda: count(segment) == 1000) == 0
        finally:
            done.set()
            thread.join()
        assert count(segment) == 1000
