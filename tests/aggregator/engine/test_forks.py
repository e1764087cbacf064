"""Forked processes while a catalog is open: the child gets an error, holds no lock and does no harm."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from effort import ALL, long
from waiting import until

import aggregator
from aggregator.server.running import listen

ROOT = Path(__file__).parents[3]
PRELUDE = """
import os, sys, signal, gc, multiprocessing, threading
import aggregator
from esformat import ClosedError
from esformat.parts import hide_pandas

hide_pandas()
root = sys.argv[1]

def events(name, count):
    return [{"space": name, "timestamp": n, "data": b"x"} for n in range(count)]

def forked(act):
    '''Run it in a forked process; gives what that says.'''
    out, into = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.write(into, str(act()).encode())
            sys.exit(0)  # with all that an interpreter does at its end
        except SystemExit:
            raise
        except BaseException as error:
            os.write(into, f"{type(error).__name__}: {error}".encode())
            os._exit(1)
    os.close(into)
    with os.fdopen(out) as said:
        text = said.read()
    os.waitpid(child, 0)
    return text
"""


def run(program: str, *args: str | Path, expected: int = 0, timeout: float = 60) -> str:
    """Run a program in its own process, which may fork. Returns its output."""
    command = [sys.executable, "-c", PRELUDE + textwrap.dedent(program), *map(str, args)]
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False, env=env)
    assert done.returncode == expected, done.stderr
    assert "Traceback" not in done.stderr, done.stderr
    return done.stdout


@long
def test_nobody_is_in_sqlite_when_a_process_is_forked(tmp_path):
    """No thread is inside SQLite during a fork; otherwise a child would wait forever for the lock of a lost thread."""
    said = run(
        """
        import time
        catalog = aggregator.open(root)
        lock = catalog._backend.manifest._lock
        held = threading.Event()

        def change():
            with lock:
                held.set()
                time.sleep(0.3)

        for _ in range(3):
            thread = threading.Thread(target=change)
            held.clear()
            thread.start()
            held.wait()
            print(forked(lock.locked))
            thread.join()
        """,
        tmp_path / "data",
    )
    assert said.split() == ["False"] * 3


def is_running(pid: int) -> bool:
    """Whether the process exists and is not a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_parent_and_child_both_append(tmp_path):
    """The child is told to open the catalog itself; the parent continues, and all acknowledged events are there."""
    program = """
    catalog = aggregator.open(root)
    topic = catalog.create_topic("t")
    topic.append(events("before", 1))
    child = os.fork()
    who = "child" if not child else "parent"
    receipts, refused = 0, set()
    for n in range(200):
        try:
            topic.append(events(who, 1))
            receipts += 1
        except ClosedError as error:
            refused.add(str(error))
    print(who, receipts, len(refused), *refused, flush=True)
    if child:
        os.waitpid(child, 0)
    catalog.close()
    """
    said = dict(line.split(" ", 1) for line in run(program, tmp_path / "c").splitlines())
    assert said["parent"] == "200 0"
    assert said["child"].startswith("0 1 ")
    assert "was opened by process" in said["child"]
    assert "open it again in this one" in said["child"]
    with aggregator.open(tmp_path / "c") as catalog:
        spaces = [event.space for event in catalog.topic("t").scan()]
        assert (spaces.count("before"), spaces.count("parent"), spaces.count("child")) == (1, 200, 0)
        assert catalog.problems() == []


@pytest.mark.parametrize("read_only", [False, pytest.param(True, marks=long)], ids=["writing", "reading"])
def test_everything_in_the_child_says_so(tmp_path, read_only):
    """In the child every call raises without waiting for a lock of a parent's thread or touching the parent's files."""
    program = """
    from aggregator.base import forked as forking
    forking.LONGEST_WAIT_S = 0.1  # the one lock that is waited for is held here until the child is done
    with aggregator.open(root) as catalog:
        catalog.write({"a": "b"}, [{"msg": "one"}])
    catalog = aggregator.open(root, read_only=sys.argv[2] == "True")
    topic = catalog.topic("logs")
    selection = catalog.query("SELECT")
    tail = catalog.tail("SELECT")
    scan = iter(topic.scan())
    next(scan)
    verbs = {
        "append": lambda: topic.append(events("x", 1)), "write": lambda: catalog.write({"a": "b"}, [{"msg": "x"}]),
        "scan": lambda: topic.scan().count(), "read": lambda: list(topic.read()),
        "query": lambda: catalog.query("SELECT"), "selection": lambda: selection.count(),
        "tail": lambda: next(iter(tail)),
        "topics": lambda: catalog.topics(),
        "stats": lambda: catalog.stats(), "problems": lambda: catalog.problems(), "seal": lambda: catalog.seal(),
        "retain": lambda: catalog.retain(), "compact": lambda: catalog.compact(),
        "position": lambda: selection.position,
        "create": lambda: catalog.create_topic("u"), "policy": lambda: topic.set_policy(retention={"segments": 1}),
        "pipe": lambda: catalog.query("CREATE PIPE p"), "ends": lambda: topic.ends(),
        "trouble": lambda: catalog.trouble,
        "verify": lambda: catalog.verify(), "erase": lambda: topic.erase("x"),
    }
    def act():
        for name, verb in verbs.items():
            try:
                verb()
            except ClosedError as error:
                assert "was opened by process" in str(error)
            else:
                raise AssertionError(name)
        catalog.close()
        catalog.close()
        return "all"
    inner = [catalog._backend.state.view_lock, catalog._backend.manifest._lock, catalog._backend.pins._lock]
    for lock in inner:  # as where other threads of the parent are at work
        lock.acquire()
    said = forked(act)
    for lock in inner:
        lock.release()
    print(said)
    print(topic.scan().count(), len(catalog.query("SELECT").to_table()))
    catalog.close()
    """
    assert run(program, tmp_path / "c", read_only).splitlines() == ["all", "1 1"]


def test_a_child_keeps_no_lock_of_a_writer_that_died(tmp_path):
    """If the parent is killed while its child lives on, another process can open the catalog immediately, and the
    server's port is free again.
    """
    program = """
    from aggregator.server import RunningServer, Settings
    from aggregator.server.config.settings import Http
    SETTINGS = Settings(http=Http(bind="127.0.0.1:0"))
    catalog = aggregator.open(root, sealing="process")
    catalog.write({"a": "b"}, [{"msg": "one"}])
    with RunningServer(catalog, SETTINGS) as server:
        out, into = os.pipe()
        child = os.fork()
        if not child:
            os.write(into, b"x")
            os.close(1)
            os.close(2)
            signal.pause()
        os.read(out, 1)
        print(child, server.url.rpartition(":")[2], catalog._backend.sealing_process.pid, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    """
    child, port, helper = map(int, run(program, tmp_path / "c", expected=-signal.SIGKILL).split())
    try:
        os.kill(child, 0)
        listen(f"127.0.0.1:{port}").close()
        with aggregator.open(tmp_path / "c") as catalog:
            assert catalog.query("SELECT").count() == 1
        until(lambda: not is_running(helper))  # it notices that its parent is gone, despite the child
    finally:
        os.kill(child, signal.SIGKILL)


@long
def test_pins_stay_the_parents(tmp_path):
    """A scan of the parent keeps its files although a forked child collects its copy of the scan and exits."""
    program = """
    catalog = aggregator.open(root)
    topic = catalog.create_topic("t", retention={"segments": 1})
    topic.append(events("a", 10)); catalog.seal()
    reader = aggregator.open(root, read_only=True)
    scan = reader.topic("t").scan().batches()
    first = next(scan)
    def act():
        global scan
        del scan
        gc.collect()
        return "gone"
    print(forked(act))
    change = catalog._backend.state.change
    topic.append(events("b", 10)); catalog.seal(); catalog.retain()
    print(catalog._backend.pins.holds_before(change + 1))
    catalog.close()
    """
    assert run(program, tmp_path / "c").split() == ["gone", "True"]


@long
def test_multiprocessing(tmp_path):
    """Forked pool workers get the error; each may open the catalog for reading next to the writer."""
    module = tmp_path / "worker_module.py"
    module.write_text(
        textwrap.dedent("""
        import sys
        import aggregator
        opened = []
        def work(root):
            said = []
            for catalog in opened:
                try:
                    catalog.topic("t").append([{"space": "w", "timestamp": 1}])
                    said.append("appended")
                except Exception as error:
                    said.append(type(error).__name__)
            with aggregator.open(root, read_only=True) as mine:
                said.append(mine.topic("t").scan().count())
            try:
                aggregator.open(root)
            except aggregator.CatalogLockedError:
                said.append("locked")
            return said
        """)
    )
    program = """
    sys.path.insert(0, sys.argv[2])
    import worker_module
    if __name__ == "__main__":
        with aggregator.open(root) as catalog:
            topic = catalog.create_topic("t")
            topic.append(events("a", 5))
            worker_module.opened.append(catalog)
            with multiprocessing.get_context("fork").Pool(2) as pool:
                print(*pool.map(worker_module.work, [root, root]), sep="|")
            topic.append(events("a", 5))
            print(topic.scan().count())
    """
    answers, count = run(program, tmp_path / "c", tmp_path).splitlines()
    assert answers.split("|") == [str(["ClosedError", 5, "locked"])] * 2
    assert count == "10"


@long
def test_forks_amid_transactions(tmp_path):
    """Children that exit, with finalizers, while the parent's threads append, seal and read, lose nothing."""
    program = """
    catalog = aggregator.open(root, durability="none")
    topic = catalog.create_topic("t")
    done = threading.Event()
    counts = [0, 0]
    def write(number):
        while not done.is_set():
            topic.append(events(f"w{number}", 10), str(number))
            catalog.seal()
            counts[number] += 10
    threads = [threading.Thread(target=write, args=(n,)) for n in range(2)]
    for thread in threads:
        thread.start()
    for n in range(int(sys.argv[2])):
        child = os.fork()
        if not child:
            del catalog, topic
            gc.collect()
            sys.exit(0)
        os.waitpid(child, 0)
    done.set()
    for thread in threads:
        thread.join()
    print(topic.scan().count() == sum(counts), sum(counts) > 0)
    catalog.close()
    with aggregator.open(root) as again:
        print(again.topic("t").scan().count() == sum(counts), again.problems())
    """
    children = "5" if ALL else "2"
    assert run(program, tmp_path / "c", children).splitlines() == ["True True", "True []"]


@long
def test_a_child_of_a_server(tmp_path):
    """A server keeps answering during and after a forked child's attempt to write."""
    program = """
    from aggregator.client import Client
    from aggregator.server import RunningServer, Settings
    from aggregator.server.config.settings import Http
    SETTINGS = Settings(http=Http(bind="127.0.0.1:0"))
    catalog = aggregator.open(root)
    with RunningServer(catalog, SETTINGS) as server, Client(server.url) as client:
        client.write({"a": "b"}, [{"msg": "one"}])
        def act():
            try:
                catalog.write({"a": "b"}, [{"msg": "child"}])
            except ClosedError as error:
                return "refused"
        worker = multiprocessing.get_context("fork").Process(target=act)
        worker.start(); worker.join()
        print(forked(act), worker.exitcode)
        client.write({"a": "b"}, [{"msg": "two"}])
        print(*[event.data for event in catalog.query("SELECT")])
    catalog.close()
    """
    assert run(program, tmp_path / "c").splitlines() == ["refused 0", "b'one' b'two'"]
