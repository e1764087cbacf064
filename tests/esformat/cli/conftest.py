"""Fixtures that run commands: in this process for speed, or in a separate process if the test needs one."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pytest

import esformat
from esformat.cli import run

ROOT = Path(__file__).parents[3]


@dataclass(frozen=True)
class Result:
    """The status and output of a command."""

    status: int
    out: bytes
    err: str

    @property
    def text(self) -> str:
        return self.out.decode()

    @property
    def lines(self) -> list[str]:
        return self.text.splitlines()

    @property
    def rows(self) -> list[dict]:
        """The printed JSON lines."""
        return [json.loads(line) for line in self.lines]


@pytest.fixture
def esdb(capfdbinary, monkeypatch, tmp_path):
    """Run `esdb` with some arguments in a fresh directory; every error must be one line without a traceback."""
    monkeypatch.chdir(tmp_path)

    def command(*arguments, stdin: bytes = b"") -> Result:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        capfdbinary.readouterr()
        status = run([str(argument) for argument in arguments])
        captured = capfdbinary.readouterr()
        return Result(status, captured.out, captured.err.decode())

    return command


def environment() -> dict[str, str]:
    """The environment of a user: output is buffered, as is Python's default."""
    inherited = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    return {**inherited, "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "error", "NO_COLOR": "1"}


@pytest.fixture
def process(tmp_path):
    """Run `esdb` in a separate process."""

    def command(*arguments, stdin: bytes = b"", **options) -> Result:
        done = subprocess.run(
            [sys.executable, "-m", "esformat", *map(str, arguments)],
            cwd=tmp_path, env=environment(), input=stdin, capture_output=True, timeout=60, check=False, **options,
        )  # fmt: skip
        return Result(done.returncode, done.stdout, done.stderr.decode())

    return command


def at(day: int) -> datetime:
    return datetime(2024, 3, day, 12, tzinfo=UTC)


@pytest.fixture
def activity(tmp_path) -> Path:
    """A segment of a few customers with three groupings and two indexes; one payload is not text."""
    path = tmp_path / "activity.esdb"
    with esformat.create(path, indexes=["type", "country"]) as writer:
        for day in range(1, 29):
            writer.add(
                f"customer-{day % 3}", b"\xff\xfe" if day == 4 else f"visit {day}".encode(),
                timestamp=at(day), grouping="" if day % 2 else "web",
                indexes={"type": "purchase" if day % 4 == 1 else "view", "country": "SE" if day % 3 else None},
            )  # fmt: skip
        writer.add("other", b"", timestamp=at(1))
    return path
