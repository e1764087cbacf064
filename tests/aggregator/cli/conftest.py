"""Run `aggregator` in this process, on a small catalog in a temporary directory."""

from __future__ import annotations

import io
import json
import shutil
import sys
from dataclasses import dataclass
from typing import Any

import pytest

import aggregator
from aggregator.cli import run

CLICKS = (
    '{"who": "ada", "at": "2026-03-01T08:00:00Z", "type": "page", "zip": "007", "n": 1}\n'
    '{"who": "bob", "at": "2026-03-01T08:00:05Z", "type": "page", "zip": "008", "n": 2}\n'
    '{"who": "ada", "at": "2026-03-01T08:01:00Z", "type": "purchase", "zip": "009", "n": 3.5}\n'
)
HOW = ("--space", "who", "--timestamp", "at")


@dataclass(frozen=True)
class Result:
    """The exit status of a command and its output."""

    status: int
    text: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.text)

    @property
    def rows(self) -> list[dict]:
        """The output, parsed as JSON lines."""
        return [json.loads(line) for line in self.text.splitlines()]


@pytest.fixture
def command(capfdbinary, monkeypatch, tmp_path):
    """Run `aggregator` with arguments; every error must be one line without a traceback."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "clicks.jsonl").write_text(CLICKS)

    def command(*arguments, stdin: bytes = b"") -> Result:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        capfdbinary.readouterr()
        status = run([str(argument) for argument in arguments])
        captured = capfdbinary.readouterr()
        return Result(status, captured.out.decode(), captured.err.decode())

    return command


@pytest.fixture(scope="session")
def three_clicks(tmp_path_factory):
    """A closed catalog with a topic `clicks` that contains three events, two of them sealed."""
    path = tmp_path_factory.mktemp("three") / "data"
    with aggregator.open(path) as catalog:
        topic = catalog.create_topic("clicks", indexes=["type"])
        rows = [json.loads(line) for line in CLICKS.splitlines()]
        events = [{"space": row["who"], "timestamp": at, "type": row["type"]} for at, row in enumerate(rows)]
        topic.append(events[:2])
        catalog.seal()
        topic.append(events[2:], "web")
    return path


@pytest.fixture
def clicks(command, three_clicks, tmp_path):
    """A catalog `data` with these events."""
    return shutil.copytree(three_clicks, tmp_path / "data")
