"""How long a function may be, and how much a package shows whoever opens it.

A longer function does several things, each of which deserves a name. In a fuller folder nobody finds where to begin.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from sources import tree_of

pytestmark = pytest.mark.xdist_group("sources")  # with others that read all of them

ROOT = Path(__file__).parents[2]
MOST_LINES = 60
MOST_FOLDERS = 12
MOST_FILES = 10
PYTHONS = "__pycache__"


def test_no_function_is_longer_than_a_screen() -> None:
    long = [
        f"{file.relative_to(ROOT)}:{node.lineno} {node.name}: {lines} lines"
        for package in ("esformat", "aggregator")
        for file in sorted((ROOT / package).rglob("*.py"))
        for node in ast.walk(tree_of(file))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (lines := (node.end_lineno or node.lineno) - node.lineno + 1) > MOST_LINES
    ]
    assert not long


@pytest.mark.parametrize("package", ["esformat", "aggregator"])
def test_a_package_shows_few_folders_and_files(package: str) -> None:
    """Directly in it, without what Python puts there, also where a folder was that is gone."""
    seen = [path for path in (ROOT / package).iterdir() if path.name != PYTHONS]
    folders = sorted(
        path.name for path in seen if path.is_dir() and any(each.name != PYTHONS for each in path.iterdir())
    )
    files = sorted(path.name for path in seen if path.is_file())
    assert len(folders) <= MOST_FOLDERS, folders
    assert len(files) <= MOST_FILES, files
