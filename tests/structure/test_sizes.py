"""How long a function may be: what is longer does several things, each of which deserves a name."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from sources import tree_of

pytestmark = pytest.mark.xdist_group("sources")  # with others that read all of them

ROOT = Path(__file__).parents[2]
MOST_LINES = 60


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
