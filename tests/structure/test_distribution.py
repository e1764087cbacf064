"""The files of a release, a wheel and a source distribution, are built and tried outside the checkout."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import effort
import pytest

ROOT = Path(__file__).parents[2]
TRIAL = """
import pathlib, sys
import aggregator, esformat
assert pathlib.Path(esformat.__file__).is_relative_to(sys.argv[1]), esformat.__file__
assert pathlib.Path(aggregator.__file__).with_name("server").joinpath("page", "app.js").exists()
with esformat.create("a.esdb", indexes=["type"]) as writer:
    writer.add("ada", b"x", timestamp=1, indexes={"type": "page"})
with esformat.open("a.esdb") as segment:
    assert [event.data for event in segment["ada"].scan()] == [b"x"]
with aggregator.open("data") as catalog:
    catalog.write({"app": "web"}, [{"msg": "hello"}])
    assert [event.data for event in catalog.query("SELECT WHERE msg CONTAINS hell")] == [b"hello"]
"""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not effort.ALL, reason="builds with what the package index has; part of make test-all"),
]


def pip(*arguments: str | Path) -> None:
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def source(tmp_path_factory) -> Path:
    """The source distribution."""
    folder = tmp_path_factory.mktemp("sdist")
    pip("install", "--target", folder / "build", "build")
    command = [sys.executable, "-m", "build", "--sdist", "--outdir", str(folder), str(ROOT)]
    environment = os.environ | {"PYTHONPATH": str(folder / "build")}
    subprocess.run(command, env=environment, capture_output=True, check=True, timeout=600)
    (made,) = folder.glob("*.tar.gz")
    return made


def test_the_source_has_what_a_build_takes(source):
    """The source distribution has the backend, core sources and specification, and nothing that was built here."""
    with tarfile.open(source) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    built_with = {".ci/backend.py", ".ci/compiling.py", "pyproject.toml", "esformat/core/events.py"}
    assert {*built_with, "spec/format.md", "README.md"} <= names
    assert not {name for name in names if name.endswith((".so", ".pyc")) or name.startswith("tests/")}


def test_a_wheel_of_it_works(source, tmp_path):
    """A wheel built from the source distribution works with only the packages that it needs."""
    pip("wheel", "--no-deps", "--wheel-dir", tmp_path, source)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "installed")
        assert {name.partition("/")[0].partition("-")[0] for name in archive.namelist()} == {"esformat", "aggregator"}
    work = tmp_path / "work"
    work.mkdir()
    environment = os.environ | {"PYTHONPATH": str(tmp_path / "installed")}
    command = [sys.executable, "-c", TRIAL, str(tmp_path / "installed")]
    subprocess.run(command, cwd=work, env=environment, check=True, timeout=120)
