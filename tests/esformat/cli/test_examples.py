"""The examples that `--help` shows work as printed."""

from __future__ import annotations

import gzip
import os
import shlex
import subprocess
import sys

import pyarrow as pa
import pyarrow.parquet
import pytest
from effort import ALL

from esformat.cli import main
from esformat.cli.root import _TOOLS
from tests.esformat.cli.conftest import ROOT, environment

NAMES = ["write", "info", "spaces", "values", "scan", "sql", "verify", "convert", *_TOOLS]
CSV = "user,date,rating\nann,2024-03-01 12:00,5\nbob,2024-03-02 12:00,4\n"
JSONL = '{"user":"ann","time":"2024-03-01T12:00:00Z","type":"view","x":1}\n'


def examples(name: str) -> list[str]:
    """Return the commands at the end of a command's help."""
    return [line.strip() for line in main.commands[name].epilog.splitlines() if "esdb " in line]


@pytest.fixture
def directory(tmp_path, activity):
    """A directory with the files that the examples name, and with `esdb` on the path."""
    (tmp_path / "reviews.csv").write_text(CSV)
    (tmp_path / "huge.csv.gz").write_bytes(gzip.compress(CSV.encode()))
    (tmp_path / "dirty.csv").write_text(CSV + "carl,never,3\n")
    (tmp_path / "events.jsonl").write_text(JSONL)
    (tmp_path / "events.jsonl.gz").write_bytes(gzip.compress(JSONL.encode()))
    (tmp_path / "log.csv").write_text("host,at\na,01/Mar/2024:12:00:00 +0100\n")
    (tmp_path / "users.csv").write_text("space,city\ncustomer-1,Lund\ncustomer-2,Oslo\n")
    (tmp_path / "question.sql").write_text("SELECT count(*) FROM 'activity.esdb';\n")
    for month in ("january", "february"):
        table = pa.table({"user": ["ann"], "app": ["web"], "timestamp": ["2024-01-01"]})
        pyarrow.parquet.write_table(table, tmp_path / f"{month}.parquet")
    (tmp_path / "parts").mkdir()
    (tmp_path / "months").mkdir()
    (tmp_path / "months/january.parquet").write_bytes((tmp_path / "january.parquet").read_bytes())
    for name in ("monday", "tuesday", "wednesday", "damaged", "merged", "parts/first", "parts/second"):
        (tmp_path / f"{name}.esdb").write_bytes((tmp_path / "activity.esdb").read_bytes())
    binaries = tmp_path / "bin"
    binaries.mkdir()
    (binaries / "esdb").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m esformat "$@"\n')
    (binaries / "esdb").chmod(0o755)
    return tmp_path


def in_a_shell(directory, line: str) -> tuple[int, str, str]:
    path = f"{directory / 'bin'}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", line],
        cwd=directory, env={**environment(), "PATH": path}, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("name", NAMES)
def test_examples(directory, esdb, name):
    """The lines run as printed, in order; each prints or writes something."""
    lines = examples(name)
    assert len(lines) >= 2
    if name == "verify":  # its second example uses a file that `write` makes
        lines.insert(0, examples("write")[0])
    else:
        (directory / "activity.esdb").touch(exist_ok=True)
    if name == "write":
        (directory / "activity.esdb").unlink()
    for number, line in enumerate(lines):
        if set("|<") & set(line) or (number == 0 and (ALL or name == "write")):
            status, out, err = in_a_shell(directory, line)
        else:
            done = esdb(*shlex.split(line)[1:])
            status, out, err = done.status, done.text, done.err
        assert (status, err) == (0, ""), line
        assert out or "-o" in line.split(), line


def test_commands_run_this_checkout(directory):
    """The commands run the code of this checkout, even if another one is installed."""
    line = f"'{sys.executable}' -c 'import esformat; print(esformat.__file__)'"
    assert in_a_shell(directory, line) == (0, f"{ROOT / 'esformat' / '__init__.py'}\n", "")
