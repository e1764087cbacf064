"""Collectors with different patterns, in sequence or in parallel, share notes: each line is stored once."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest
from effort import long

import aggregator
from aggregator.cli import run
from aggregator.collect.progress import Progress, ProgressFile
from aggregator.errors import AggregatorError
from aggregator.server import RunningServer
from aggregator.server import Settings as ServerSettings
from aggregator.server.config.settings import Http

HEAD = "# a header that all logs begin with, longer than what tells files apart\n" * 20


@pytest.fixture
def server(tmp_path, monkeypatch):
    """A server, and a folder to collect from, with the notes below it."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "logs").mkdir()
    with (
        aggregator.open(tmp_path / "c", durability="none") as catalog,
        RunningServer(catalog, ServerSettings(http=Http(bind="127.0.0.1:0"))) as running,
    ):
        yield Served(running.url, catalog)


@pytest.fixture(params=["server", "directory"])
def place(request, tmp_path):
    """A server, or a directory that each command opens."""
    served = request.getfixturevalue("server")
    if request.param == "server":
        return served
    aggregator.open(tmp_path / "own").close()
    return Served(str(tmp_path / "own"), None)


@dataclass(frozen=True)
class Served:
    """A server and the catalog behind it; or a directory and None."""

    url: str
    catalog: aggregator.Catalog | None


def stored(server: Served) -> Counter[str]:
    if server.catalog is None:
        with aggregator.open(server.url, read_only=True) as catalog:
            return stored(Served(server.url, catalog))
    return Counter(event.data.decode() for event in server.catalog.query("SELECT"))


def collect(server, *paths: str, options: tuple[str, ...] = ()) -> int:
    named = [argument for path in paths for argument in ("--path", path)]
    return run(["collect", *named, "--into", server.url, "--once", *options])


def test_patterns_one_after_the_other(place, tmp_path, monkeypatch):
    """A file that two patterns match is collected once, whatever the working directory and spelling of the path."""
    Path("logs/a.log").write_text("one\ntwo\n")
    assert collect(place, "logs/*.log") == 0
    assert collect(place, str(tmp_path / "logs/a*")) == 0
    monkeypatch.chdir(tmp_path / "logs")
    assert collect(place, "a.log") == 0
    assert run(["collect", "--path", "a.log", "--into", f"{place.url}/", "--once"]) == 0
    assert stored(place) == {"one": 1, "two": 1}


def test_files_of_other_patterns(place):
    """Files of another pattern are not read, and are not compared with a new file that begins alike."""
    Path("logs/a.log").write_text(f"{HEAD}a\n")
    assert collect(place, "logs/a.log") == 0
    with Path("logs/a.log").open("a") as file:
        file.write("later\n")
    Path("logs/b.log").write_text(f"{HEAD}bb\nb after\n")
    assert collect(place, "logs/b.log") == 0
    found = stored(place)
    assert [found[line] for line in ("a", "bb", "b after", "later")] == [1, 1, 1, 0]
    assert found[HEAD.splitlines()[0]] == 40


def test_each_pattern_begins_at_the_end(place):
    """`--begin end` applies to the first run of each pattern, not of the notes."""
    for name in ("a.log", "b.log"):
        Path(f"logs/{name}").write_text("old\n")
    for name in ("a.log", "b.log"):
        assert collect(place, f"logs/{name}", options=("--begin", "end")) == 0
        with Path(f"logs/{name}").open("a") as file:
            file.write(f"new {name}\n")
        assert collect(place, f"logs/{name}", options=("--begin", "end")) == 0
    assert stored(place) == {"new a.log": 1, "new b.log": 1}


_ONE = """
import sys, time
from aggregator.collect import Collector, Files, ServerSink, Settings
from pathlib import Path
from esformat.parts import hide_pandas
hide_pandas()
url, notes, pattern = sys.argv[1:]
sink = ServerSink(url, "logs", "0", None, time.sleep)
settings = Settings(url, (Files(path=(pattern,)),), batch_bytes=1024)
sys.stdin.readline()
Collector(settings, sink, Path(notes), lambda: 1_000_000).run(time.sleep, once=True)
"""


@long
def test_side_by_side(server, tmp_path):
    """Two processes read the same files in parallel, and one is killed midway: every line is stored once."""
    for name in "abc":
        Path(f"logs/{name}.log").write_text("".join(f"{name} {n} {'x' * 50}\n" for n in range(300)))
    environment = {**os.environ, "PYTHONPATH": str(Path(aggregator.__file__).parents[1])}
    with ExitStack() as stack:
        processes = []
        for pattern in ("*.log", "[abc].log", "a*"):
            arguments = [server.url, str(tmp_path / "notes.json"), str(tmp_path / "logs" / pattern)]
            process = subprocess.Popen([sys.executable, "-c", _ONE, *arguments], stdin=subprocess.PIPE, env=environment)
            stack.enter_context(process)
            stack.callback(process.kill)
            processes.append(process)
        for process in processes:
            process.stdin.write(b"\n")
            process.stdin.flush()
        while not stored(server):
            assert [process.poll() for process in processes] == [None] * 3
            time.sleep(0.01)
        processes[2].kill()
        assert [process.wait(60) for process in processes[:2]] == [0, 0]
    found = stored(server)
    assert (len(found), set(found.values())) == (900, {1})


def test_turns(tmp_path):
    """A waiting collector goes before the one that just had the turn, sees the changed notes, and may give up."""
    one, other = ProgressFile(tmp_path / "n.json"), ProgressFile(tmp_path / "n.json")
    waits = []
    with one.exclusive(waits.append) as changed:
        assert (changed, one.is_contended()) == (False, False)

        def give_up(seconds):
            waits.append(seconds)
            assert one.is_contended()
            raise AggregatorError("ended")

        with pytest.raises(AggregatorError), other.exclusive(give_up):
            pass
        assert (len(waits), one.is_contended()) == (1, False)
        one.save(Progress.begin())
    with one.exclusive(waits.append) as changed:
        assert not changed
    with other.exclusive(waits.append) as changed:
        assert changed
        other.load()
    with other.exclusive(waits.append) as changed:
        assert not changed
    one.close()
    other.close()


def told(caplog) -> list[str]:
    """The warnings that collectors logged."""
    return [record.getMessage() for record in caplog.records if record.name.startswith("aggregator.collect")]


def configured(name: str, into: str, *groups: str) -> int:
    """Collect once with a configuration of these `[[files]]`."""
    Path(name).write_text(f'into = "{into}"\n' + "".join(f"[[files]]\n{group}\n" for group in groups))
    return run(["collect", name, "--once"])


def test_two_configurations_of_the_same_files(place, caplog):
    """Two configurations have separate notes, so both store the lines: that is reported once for each file."""
    Path("logs/a.log").write_text("one\n")
    files = 'path = "logs/*.log"\ntags = { app = "web" }'
    assert configured("first.toml", place.url, files) == 0
    assert not told(caplog)
    assert configured("second.toml", place.url, files) == 0
    assert stored(place) == {"one": 2}
    (said,) = told(caplog)
    assert said.startswith("another collector also collects ")
    assert "a.log into this catalog" in said
    assert "state file of the other: " in said
    caplog.clear()
    Path("logs/b.log").write_text("two\n")
    assert configured("second.toml", place.url, files) == 0  # the first one has not collected the new file
    assert not told(caplog)


def test_notes_of_another_catalog(place, tmp_path, caplog):
    """The same files may go into two catalogs without a warning."""
    Path("logs/a.log").write_text("one\n")
    aggregator.open(tmp_path / "other").close()
    assert configured("first.toml", str(tmp_path / "other"), 'path = "logs/*.log"') == 0
    assert configured("second.toml", place.url, 'path = "logs/*.log"') == 0
    assert not told(caplog)


def test_two_groups_that_name_one_file(place, caplog):
    """The first group that matches a file keeps it through renames; files it does not match are the second's."""
    Path("logs/web.log").write_text("web\n")
    Path("logs/other.log").write_text("other\n")
    groups = 'name = "web"\npath = "logs/web.log"\ntags = { app = "web" }', 'name = "rest"\npath = "logs"'
    assert configured("both.toml", place.url, *groups) == 0
    assert stored(place) == {"web": 1, "other": 1}
    (said,) = told(caplog)
    assert "web.log is already collected by [[files]] 'web', so 'rest' ignores it" in said
    Path("logs/web.log").rename("logs/web.log.1")
    with Path("logs/web.log.1").open("a") as file:
        file.write("last\n")
    Path("logs/web.log").write_text("new\n")
    assert configured("both.toml", place.url, *groups) == 0
    assert stored(place) == {"web": 1, "other": 1, "last": 1, "new": 1}


def test_a_file_that_moves_to_another_group(place, caplog):
    """A file that the first group newly excludes belongs to the second."""
    Path("logs/a.log").write_text("one\n")
    first, second = 'name = "some"\npath = "logs/*.log"', 'name = "rest"\npath = "logs"\ntags = { app = "x" }'
    assert configured("both.toml", place.url, first, second) == 0
    assert stored(place) == {"one": 1}
    with Path("logs/a.log").open("a") as file:
        file.write("two\n")
    caplog.clear()
    assert configured("both.toml", place.url, f'{first}\nexclude = ["a.*"]', second) == 0
    assert stored(place) == {"one": 2, "two": 1}
    assert not told(caplog)
