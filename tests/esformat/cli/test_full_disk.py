"""Commands on a file system that is really full: their messages, and that nothing remains."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

import aggregator
import esformat
from aggregator.cli import run as run_aggregator
from aggregator.cli.shared import appending


@pytest.fixture
def small(tmp_path):
    """A mounted file system of 1 MiB."""
    place = tmp_path / "small"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", place], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("no file system can be mounted here")
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", place], check=True)


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    """Events that compress to more than 1 MiB, as CSV and as a segment."""
    folder = tmp_path_factory.mktemp("large")
    with (folder / "large.csv").open("w") as file:
        file.write("space,timestamp,text\n")
        file.writelines(f"s{n},{1_700_000_000_000 + n},{os.urandom(400).hex()}\n" for n in range(3500))
    with esformat.create(folder / "large.esdb") as writer:
        for n in range(3500):
            writer.add(f"s{n}", os.urandom(400), timestamp=n)
    return folder


@pytest.fixture
def large(made, tmp_path) -> Path:
    """The large files, copied to the test's directory."""
    for file in made.iterdir():
        shutil.copyfile(file, tmp_path / file.name)
    return tmp_path


COMMANDS = [
    ("write", "{out}.esdb", "large.csv"),
    ("write", "{out}.esdb", "large.csv", "--memory", "64MiB"),
    ("convert", "large.esdb", "{out}.parquet"),
    ("convert", "large.esdb", "{out}.esdb"),
    ("merge", "{out}.esdb", "large.esdb"),
    ("recompress", "large.esdb", "{out}.esdb"),
    ("scan", "large.esdb", "-o", "{out}.jsonl"),
    ("scan", "large.esdb", "-o", "{out}.esdb"),
]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_a_file_that_does_not_fit(esdb, small, large, command):
    """The error is one line that names the file and says that it was not created; no file remains."""
    arguments = [part.format(out=small / "out") for part in command]
    out = next(part for part in arguments if part.startswith(str(small)))
    result = esdb(*arguments)
    assert result.status == 1
    assert result.err == f"esdb: {out}: no space left on device; it was not created\n"
    assert list(small.iterdir()) == []


def test_parts_that_do_not_fit(esdb, small, large):
    """The error names the part that does not fit; no part remains, nor their directory."""
    result = esdb("split", large / "large.esdb", small / "days" / "parts", "--size", "200kB")
    assert result.status == 1
    assert re.fullmatch(
        f"esdb: {small}/days/parts/large-000\\d.esdb: no space left on device; it was not created\n", result.err
    )
    assert list(small.iterdir()) == []


def test_python_says_which_file(small, large):
    """The error of a writer in Python names the file, too."""
    with pytest.raises(OSError, match="it was not created") as caught, esformat.create(small / "out.esdb") as writer:
        writer.add_table(esformat.open(large / "large.esdb").scan().to_table())
    assert caught.value.filename == str(small / "out.esdb")
    assert list(small.iterdir()) == []


def test_an_import_that_does_not_fit(small, large, monkeypatch, capfd):
    """An import that runs out of space says where, and keeps the events that it reports as kept."""
    monkeypatch.setattr(appending, "DISK_PATIENCE_S", 0.0)
    data = small / "data"
    assert run_aggregator(["init", str(data)]) == 0
    capfd.readouterr()
    status = run_aggregator(["import", str(data), "events", str(large / "large.csv"), "--batch-rows", "100"])
    told = capfd.readouterr().err
    assert status == 1
    assert f"{data}" in told
    assert "no space left on device; the batch was not stored" in told
    (said,) = re.findall(r"keeps (\d+) events appended before the error", told)
    with aggregator.open(data, read_only=True) as catalog:
        kept = catalog.topic("events").scan().count()
    assert kept == int(said) > 0
    assert f"events keeps {kept:,} events appended before the error: record indexes 0 to {kept - 1:,}" in told
