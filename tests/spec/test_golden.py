"""Golden files in both readers: the original events are read, and the indexes agree with them."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import cache
from pathlib import Path

import make_golden
import pytest
import read_esdb
from effort import long
from spec_document import ROOT
from spec_questions import decoded_once

import esformat

pytestmark = pytest.mark.xdist_group("golden")  # files are read and decoded once

NAMES = sorted(path.stem for path in make_golden.FOLDER.glob("*.esdb"))
MOST = [pytest.param(name, marks=long) if name in ("postings", "many-spaces") else name for name in NAMES]
READER = ROOT / "spec" / "read_esdb.py"


@cache
def _expected(name: str) -> list[str]:
    return make_golden.read_expected(name)


@cache
def _decoded(name: str) -> read_esdb.File:
    return decoded_once(_path(name).read_bytes())


def _path(name: str) -> Path:
    return make_golden.FOLDER / f"{name}.esdb"


def _columns(name: str) -> dict[str, dict[object, list[int]]]:
    """The expected rows by value of each index of a golden file, computed from its events alone."""
    found: dict[str, dict[object, list[int]]] = {index: {} for index in make_golden.GOLDEN[name].indexes}
    for row, line in enumerate(_expected(name)):
        columns = json.loads(line)["columns"]
        for index, values in found.items():
            if columns[index] is not None:
                values.setdefault(columns[index], []).append(row)
    return {index: dict(sorted(values.items())) for index, values in found.items()}


def test_files_are_those_of_the_generator():
    """The generator and the README describe every golden file, and none is missing."""
    assert sorted(make_golden.GOLDEN) == NAMES
    readme = (ROOT / "fixtures" / "README.md").read_text("utf-8")
    for name in NAMES:
        assert f"`{name}`" in readme


@pytest.mark.parametrize("name", [pytest.param(n, marks=long) if n == "many-spaces" else n for n in NAMES])
def test_expected_events(name):
    """The expected events beside a golden file equal the generator's current output."""
    assert [make_golden.line(event) for event in make_golden.in_order(make_golden.GOLDEN[name].make())] == _expected(
        name
    )


@pytest.mark.parametrize("name", MOST)
def test_independent_reader(name):
    """The independent reader reads the events, and their number agrees with the statistics."""
    file = _decoded(name)
    assert [read_esdb.line(event) for event in file.events()] == _expected(name)
    facts = file.facts()
    assert facts["events"] == len(_expected(name))


@pytest.mark.parametrize("name", MOST)
def test_package(name):
    """The package reads the events in both directions, and `verify` finds no problem."""
    with esformat.open(_path(name)) as segment:
        forward = segment.scan().to_table()
        assert [make_golden.line(event) for event in make_golden.rows(forward)] == _expected(name)
        backward = segment.scan(reverse=True).to_table()
        assert [make_golden.line(event) for event in make_golden.rows(backward)] == _expected(name)[::-1]
    report = esformat.verify(_path(name))
    assert report.problems == ()
    assert report.events == len(_expected(name))


@pytest.mark.parametrize("name", NAMES)
def test_spaces(name):
    """Every space is found with its events in time order; keys next to it are not."""
    lines = [json.loads(line) for line in _expected(name)]
    by_space: dict[str, list[dict]] = {}
    for event in lines[:: max(1, len(lines) // 500)]:
        by_space[json.dumps(event["space"])] = []
    for event in lines:
        if json.dumps(event["space"]) in by_space:
            by_space[json.dumps(event["space"])].append(event)
    with esformat.open(_path(name)) as segment:
        assert segment.num_spaces == len({json.dumps(event["space"]) for event in lines})
        for shown, events in by_space.items():
            key = json.loads(shown)
            key = bytes.fromhex(key["hex"]) if isinstance(key, dict) else key
            times = [event["timestamp"] for event in sorted(events, key=lambda event: event["timestamp"])]
            assert [event.timestamp for event in segment[key].scan()] == times
            assert segment.may_contain(key)
            assert segment.find(key + (b"\x00?" if isinstance(key, bytes) else "\x00?")) is None


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=long) if name == "postings" else name
        for name in NAMES
        if make_golden.GOLDEN[name].indexes
    ],
)
def test_indexes(name):
    """Both readers find the values of every index, in order, and exactly the events with each value."""
    expected = _columns(name)
    file = _decoded(name)
    with esformat.open(_path(name)) as segment:
        assert set(segment.indexes) == set(expected)
        for index, rows in expected.items():
            assert list(file.index(index)) == list(rows.items())
            assert list(segment.index_values(index).items()) == [(value, len(found)) for value, found in rows.items()]
            lines = _expected(name)
            for value in list(rows)[:: max(1, len(rows) // 40)]:
                table = segment.scan_index(index, value).to_table()
                assert [make_golden.line(event) for event in make_golden.rows(table)] == [lines[i] for i in rows[value]]


def test_what_the_files_show():
    """The golden files cover their purposes: forms of posting lists, leaves, dictionaries, pages."""
    postings = read_esdb.File(_path("postings").read_bytes())
    forms = {name: {form for _, _, form, _ in postings.postings(i)} for i, name in enumerate(postings.names)}
    assert forms["often"] == {2}
    assert forms["everywhere"] == {0, 3}
    assert len(list(postings.leaves())) > 10
    crossing = [leaf.keys[-1] for leaf in postings.leaves()]
    assert len(set(crossing)) < len(crossing), "no run goes on from leaf to leaf"
    many = read_esdb.File(_path("many-spaces").read_bytes())
    assert sum(kind == read_esdb.FILTER for kind, _, _ in many.entries) == 3
    assert many.block((read_esdb.DIRECTORY_ROOT, 0), read_esdb.DIRECTORY_ROOT).count == 3  # root with pages
    assert len(list(many.leaves())) == 547
    clicks = read_esdb.File(_path("zstd-dictionary").read_bytes())
    assert any(column.zstd for column in clicks.dictionaries[1].values())
    assert any(column.values for column in clicks.dictionaries[1].values())
    assert sorted(read_esdb.File(_path("two-dictionaries").read_bytes()).dictionaries) == [1, 2]
    templated = read_esdb.File(_path("templates").read_bytes())
    tables = [entry.templates for entry in templated.dictionaries[1].values()]
    assert all(table is not None for table in tables)
    kinds = {variable.kind for table in tables if table is not None for variable in table.variables}
    assert kinds == set(range(read_esdb.DATE + 1))
    index = read_esdb.File(_path("indexes").read_bytes())
    assert {form for _, _, form, _ in index.postings(index.names.index("id"))} == {0}
    assert index.facts()["indexes"]["nothing"] == {"values": 0, "events": 0}


def test_command():
    """The independent reader is a command: it prints events, facts, an index, and one line for an unreadable file."""

    def run(*arguments: object) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-W", "error", str(READER), *map(str, arguments)]
        return subprocess.run(command, capture_output=True, text=True, encoding="utf-8", check=False)

    events = run(_path("zstd"))
    assert (events.returncode, events.stderr) == (0, "")
    assert events.stdout.splitlines() == _expected("zstd")
    assert json.loads(run(_path("zstd"), "--facts").stdout)["events"] == len(_expected("zstd"))
    first = json.loads(run(_path("zstd"), "--index", "type").stdout.splitlines()[0])
    assert first["value"] == min(_columns("zstd")["type"])
    refused = run(READER)
    assert refused.returncode == 1
    assert refused.stderr.startswith("Corrupt: ")
    assert len(refused.stderr.splitlines()) == 1


def test_shares_no_code():
    """The independent reader imports nothing from the package, and only one decompressor from elsewhere."""
    code = f"import sys; sys.path.insert(0, {str(READER.parent)!r}); before = set(sys.modules); import read_esdb; "
    code += "print(*sorted({n.split('.')[0] for n in set(sys.modules) - before} - set(sys.stdlib_module_names)))"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT / "spec")
    loaded = {name for name in out.stdout.split() if not name.startswith("_")}
    assert loaded <= {"read_esdb", "xxh3", "zstandard", "cffi"}


def test_golden_files_are_never_rewritten(capsys):
    """The generator refuses to rewrite an existing file, and says so."""
    before = _path("one-event").read_bytes()
    assert make_golden.main(["one-event"]) == 1
    assert "never rewritten" in capsys.readouterr().err
    assert make_golden.main([]) == 0
    assert _path("one-event").read_bytes() == before
