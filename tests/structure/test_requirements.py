"""`.ci/requirements.py`: the packages that `make` lets pip fetch while the core is compiled."""

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
    """Extras are expanded completely, each once, with the package's own needs; similar names stay unchanged."""
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
    """The requirements never include the package itself, which is installed separately."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    found = requirements(project, extra)
    assert set(project["dependencies"]) < found
    assert not any(one.startswith("esformat") for one in found)
