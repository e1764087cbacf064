"""`.ci/requirements.py`: what `make` has pip fetch while the core is compiled."""

from __future__ import annotations

import tomllib
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def requirements(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / ".ci")
    return import_module("requirements").requirements


def test_extras_are_followed_to_their_end(requirements):
    """However deep, each once, with what the package itself needs; others that only look like it stay as they are."""
    extras = {
        "one": ["esformat[two, three]", "a>=1"],
        "two": ["b[esformat]>=2", "esformat-more[x]"],
        "three": ["esformat[two]", "c"],
        "other": ["d"],
    }
    project = {"name": "esformat", "dependencies": ["needed>=3"], "optional-dependencies": extras}
    assert requirements(project, "one") == {"needed>=3", "a>=1", "b[esformat]>=2", "esformat-more[x]", "c"}
    assert requirements(project, "other") == {"needed>=3", "d"}


@pytest.mark.parametrize("extra", ["demo", "dev", "bench", "docs", "fuzz", "release"])
def test_those_of_the_package_are_those_that_pip_would_find(requirements, extra):
    """Nothing is asked for under the package's own name, which is installed beside."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    found = requirements(project, extra)
    assert set(project["dependencies"]) < found
    assert not any(one.startswith("esformat") for one in found)
