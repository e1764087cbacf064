"""The Go reader in readers/go, written from the specification alone, reads what the package writes, event by event."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import make_damaged
import make_golden
import numpy as np
import pyarrow as pa
import pytest
import read_esdb
from arrow_strategies import NESTED_TYPES, PLAIN_TYPES, make_array, types, values
from effort import examples, long, share_of
from hypothesis import Phase, given
from hypothesis import strategies as st
from payloads import payload_table

import esformat
from esformat.cli import run as esdb

pytestmark = pytest.mark.xdist_group("go")  # the command is built once

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "readers" / "go"
GO = shutil.which("go", path=os.pathsep.join([os.environ.get("PATH", ""), "/usr/local/go/bin"]))
LOWEST, HIGHEST = -(1 << 63), (1 << 63) - 1
COUNT = range(28, 32)  # in a data block, how many chunks it has, which tells where its checksum is
Cat = Callable[..., list[str]]


def go(*arguments: str, seconds: float) -> subprocess.CompletedProcess[str]:
    """Run Go in the directory of the reader, with the toolchain that is there and the modules that go.sum names."""
    environment = os.environ | {"GOTOOLCHAIN": "local", "GOFLAGS": "-mod=readonly -buildvcs=false", "GOWORK": "off"}
    return subprocess.run(
        [str(GO), *arguments], cwd=SOURCE, env=environment, capture_output=True, text=True, timeout=seconds, check=False
    )


@pytest.fixture(scope="module")
def modules() -> None:
    """The modules that the reader needs; without Go or a network the tests are skipped."""
    if GO is None:
        pytest.skip("there is no go")
    try:
        fetched = go("mod", "download", seconds=20)
    except subprocess.TimeoutExpired:
        pytest.skip("the modules of the Go reader cannot be downloaded in time")
    if fetched.returncode:
        pytest.skip(f"the modules of the Go reader cannot be had: {fetched.stderr.strip()[-200:]}")


@pytest.fixture(scope="module")
def command(modules, tmp_path_factory) -> Path:
    """`esdbcat`, built from this checkout."""
    target = tmp_path_factory.mktemp("go") / "esdbcat"
    built = go("build", "-o", str(target), "./cmd/esdbcat", seconds=280)
    assert built.returncode == 0, built.stderr
    return target


@pytest.fixture(scope="module")
def cat(command) -> Cat:
    """Run `esdbcat` and return the lines that it prints."""

    def call(*arguments: object) -> list[str]:
        done = subprocess.run([command, *map(str, arguments)], capture_output=True, check=False, timeout=60)
        assert done.returncode == 0, done.stderr.decode()
        return done.stdout.decode().split("\n")[:-1]

    return call


def lines_of(scan: Any) -> list[str]:
    """The events of a scan of the package in the notation of golden files."""
    return [make_golden.line(event) for event in make_golden.rows(scan.to_table())]


def compare(cat: Cat, path: Path) -> None:
    """Both readers give the same events: all of them, in reverse, of spaces, of times, of indexed values."""
    with esformat.open(path) as segment:
        expected = lines_of(segment.scan())
        assert cat("--exact", path) == expected
        assert cat("--exact", "--reverse", path) == expected[::-1]
        table = segment.scan(columns=["space"]).to_table()
        spaces = list(dict.fromkeys(table["space"].to_pylist()))
        for space in share_of_some(spaces):
            option = ("--space-hex", space.hex()) if isinstance(space, bytes) else ("--space-hex", space.encode().hex())
            history = lines_of(segment[space].scan())
            assert cat("--exact", path, *option) == history
            assert cat("--exact", path, *option, "--reverse") == lines_of(segment[space].scan(reverse=True))
            times = segment[space].scan().to_table()["timestamp"].cast(pa.int64()).to_pylist()
            middle = times[len(times) // 2]
            late = cat("--exact", path, *option, "--from", middle)
            assert late == [line for line, time in zip(history, times, strict=True) if time >= middle]
            assert cat("--exact", path, *option, "--to", middle) == history[: len(history) - len(late)]
            grouping = segment[space].scan(limit=1).to_table()["grouping"][0].as_py()
            if isinstance(grouping, str):
                group = lines_of(segment[space].scan(grouping=grouping))
                assert cat("--exact", path, *option, "--grouping", grouping) == group
        for index in segment.indexes:
            for value in share_of_some(list(segment.index_values(index))):
                asked = f"{index}={str(value).lower() if isinstance(value, bool) else value}"
                if "\0" in asked:
                    continue  # no command line can have it
                assert cat("--exact", path, "--index", asked) == lines_of(segment.scan_index(index, value))


def share_of_some(items: list[Any]) -> list[Any]:
    """Up to three of the items: the first, the last, one between."""
    return items if len(items) <= 3 else [items[0], items[len(items) // 2], items[-1]]


def table_of(spaces: list[Any], groupings: list[Any], times: list[int], columns: dict[str, pa.Array]) -> pa.Table:
    """A table of events in order of arrival."""
    kind = pa.binary() if isinstance(spaces[0], bytes) else pa.string()
    keys = {"space": pa.array(spaces, kind), "grouping": pa.array(groupings, kind), "timestamp": pa.array(times)}
    return pa.table(keys | columns)


TIMES = st.one_of(st.sampled_from([LOWEST, LOWEST + 1, -1, 0, 1, HIGHEST - 1, HIGHEST]), st.integers(LOWEST, HIGHEST))


@given(data=st.data())
@examples(120, phases=[Phase.generate])  # each example starts a dozen processes
def test_odd_events(cat, tmp_path_factory, data):
    """Columns of any types, with nulls; keys of text or bytes; extreme and equal times."""
    count = data.draw(st.integers(1, 40))
    key = data.draw(st.sampled_from([st.text(max_size=4), st.binary(max_size=4)]))
    keys = data.draw(st.lists(key, min_size=1, max_size=4, unique=True))
    columns = {}
    for name in data.draw(st.lists(st.text('ab"\\é\n<&', min_size=1, max_size=3), max_size=4, unique=True)):
        kind = data.draw(types())
        array = make_array(data.draw(st.lists(st.none() | values(kind), min_size=count, max_size=count)), kind)
        columns[name] = array
    table = table_of(
        data.draw(st.lists(st.sampled_from(keys), min_size=count, max_size=count)),
        data.draw(st.lists(st.sampled_from(keys), min_size=count, max_size=count)),
        data.draw(st.lists(TIMES, min_size=count, max_size=count)),
        columns,
    )
    indexes = [name for name, column in columns.items() if indexable(column.type)]
    path = tmp_path_factory.mktemp("odd") / "odd.esdb"
    binary = isinstance(keys[0], bytes)
    options = {"codec": data.draw(st.sampled_from(["zstd", "lz4", "none"])), "keys": "binary" if binary else "text"}
    with esformat.create(path, indexes=indexes, **options) as out:
        out.add_table(table)
    compare(cat, path)


def indexable(kind: pa.DataType) -> bool:
    """Whether a column of the type can have an index."""
    return kind in (pa.string(), pa.large_string(), pa.bool_()) or pa.types.is_integer(kind)


def drawn(kinds: list[pa.DataType]) -> list[list[Any]]:
    """Some values of each type."""
    made: list[tuple[Any, ...]] = []

    @given(st.tuples(*map(values, kinds)))
    @examples(600)
    def draw(each):
        made.append(each)

    draw()
    return [list(each) for each in zip(*made, strict=True)]


def test_every_type(cat, tmp_path, capfdbinary):
    """A column of each type with values from Hypothesis, NaN and -0.0; the plain form is that of `esdb scan`."""
    chance = random.Random(7)
    columns = {}
    kinds = [*PLAIN_TYPES, *NESTED_TYPES]
    for kind, some in zip(kinds, drawn(kinds), strict=True):
        columns[str(kind)] = make_array(chance.choices([None, *some], k=300), kind)
    odd = [float("nan"), -0.0, 0.0, float("inf"), -float("inf"), 5e-324, 1e16, 1e15, 1e-7, 123456789.0, None, 0.1]
    for kind in (pa.float16(), pa.float32(), pa.float64()):
        with np.errstate(over="ignore"):
            numbers = np.array([0 if x is None else x for x in odd * 25]).astype(kind.to_pandas_dtype())
        columns[f"odd {kind}"] = pa.array(numbers, kind, mask=np.array([x is None for x in odd * 25]))
    columns["nested odd"] = pa.array([[x] for x in odd] * 25, pa.list_(pa.float64()))
    table = table_of(["s"] * 300, [f"g{i % 3}" for i in range(300)], [i // 7 for i in range(300)], columns)
    path = tmp_path / "types.esdb"
    with esformat.create(path, indexes=["bool", "uint64", "large_string"]) as out:
        out.add_table(table)
    compare(cat, path)
    capfdbinary.readouterr()
    assert esdb(["scan", str(path), "--format", "jsonl"]) == 0
    assert cat(path) == capfdbinary.readouterr().out.decode().split("\n")[:-1]


@pytest.mark.parametrize("codec", ["zstd", "lz4", "none"])
def test_payloads(cat, tmp_path, codec):
    """JSON by templates, lines of logs, empty payloads, bytes that are not UTF-8, and a large one; many spaces."""
    chance = random.Random(3)
    count = 4000
    table = payload_table(count).append_column("n", pa.array([i % 700 for i in range(count)]))
    lines = [f"10.0.0.{i % 9} - - [09/Jul/2026:08:05:{i % 60:02} +0000] GET /{i:x}" for i in range(count)]
    data = table["data"].to_pylist()
    data[17] = bytes(range(256)) * 8000
    made = {
        "space": pa.array([f"user-{chance.randrange(2500)}" for _ in range(count)]),
        "grouping": pa.array([chance.choice(["", "web", "app"]) for _ in range(count)]),
        "timestamp": pa.array([chance.randrange(-(10**6), 10**15) for _ in range(count)]),
        "data": pa.array(data, pa.binary()),
        "log": pa.array(lines),
    }
    kept = {name: table[name] for name in ("text", "type", "n")}
    path = tmp_path / "payloads.esdb"
    with esformat.create(path, indexes=["type", "n"], codec=codec, templates=codec == "zstd") as out:
        out.add_table(pa.table(made | kept))
    compare(cat, path)


def test_golden_histories(cat):
    """Spaces and indexes of golden files whose parts the other tests do not have: pages, chunks, two dictionaries."""
    for name in ["two-dictionaries", "templates", "indexes", "times", "binary-keys", "front-coded"]:
        compare(cat, make_golden.FOLDER / f"{name}.esdb")


@pytest.mark.parametrize("name", ["one-event", "zstd", "indexes"])
def test_damaged(command, tmp_path, name):
    """Of a damaged file, the command prints only sound events and one line that says what is wrong."""
    sound = (make_golden.FOLDER / f"{name}.esdb").read_bytes()
    expected = make_golden.read_expected(name)
    for how, damage in make_damaged.FOUND.items():
        if len(make_damaged.blocks_of(sound, make_damaged.DATA)) < make_damaged.DATA_BLOCKS_NEEDED.get(how, 0):
            continue
        assert_refused_or_same(command, tmp_path / f"{how}.esdb", damage(sound), expected)


def assert_refused_or_same(command: Path, path: Path, data: bytes, expected: list[str]) -> bool:
    """Check what the command says of damaged bytes, and return whether it read them."""
    path.write_bytes(data)
    done = subprocess.run([command, "--exact", path], capture_output=True, text=True, check=False, timeout=60)
    printed = done.stdout.split("\n")[:-1]
    assert printed == expected[: len(printed)]
    if done.returncode == 0:
        assert (done.stderr, printed) == ("", expected)
    else:
        assert done.returncode == 1
        assert done.stderr.startswith(f"esdbcat: {path}: ")
        assert len(done.stderr.splitlines()) == 1
    return done.returncode == 0


@pytest.mark.parametrize("name", ["sound", "integers", "nested"])
def test_forged(command, tmp_path, name):
    """With any byte changed and all checksums updated, this reader reads what keeps all rules of the format."""
    folder = make_damaged.FOLDER if name == "sound" else make_golden.FOLDER
    sound = (folder / f"{name}.esdb").read_bytes()
    changes = [
        at for p in make_damaged.blocks(sound) for at in range(p.offset + 16, p.end - 8) if at - p.offset not in COUNT
    ]
    for at in share_of(changes[:: max(1, len(changes) // 600)], 20):
        forged = make_damaged.seal(sound[:at] + bytes([sound[at] ^ 1]) + sound[at + 1 :], {})
        path = tmp_path / "forged.esdb"
        path.write_bytes(forged)
        done = subprocess.run([command, "--exact", path], capture_output=True, text=True, check=False, timeout=60)
        assert done.returncode in (0, 1), done.stderr
        if not esformat.verify(esformat.BytesSource(forged)).ok:
            continue  # a reader may refuse it before it must
        events = [read_esdb.line(event) for event in read_esdb.File(forged).events()]
        assert done.stdout.split("\n")[:-1] == events, f"byte {at}: {done.stderr}"


@long
def test_go_tests(modules):
    """The reader is formatted, passes Go's checks, and its own tests pass."""
    assert go("vet", "./...", seconds=280).returncode == 0
    tested = go("test", "./...", seconds=280)
    assert tested.returncode == 0, tested.stdout + tested.stderr
    formatter = Path(str(GO)).with_name("gofmt")
    if formatter.exists():
        changed = subprocess.run([formatter, "-l", "."], cwd=SOURCE, capture_output=True, text=True, check=True)
        assert changed.stdout == ""
