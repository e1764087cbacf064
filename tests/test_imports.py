"""Who may import whom: levels inside `esformat`, no `aggregator` in it, and few dependencies behind `import esformat`.

A unit is a module directly under `esformat/`, or a package there as a whole. It imports units of lower levels only,
also inside functions and for types. Modules of one package may import each other as long as there is no cycle.
"""

from __future__ import annotations

import ast
import graphlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = "esformat"
ROOT = Path(__file__).parents[1] / PACKAGE

# Lowest first. `esformat` is `esformat/__init__.py`: whoever needs only what it exports stands above it.
LEVELS = (
    ("errors", "checksum", "cache", "merge", "order"),
    ("codec", "event", "layout", "publish", "source"),
    ("block", "packing", "schema"),
    ("encoding", "event_rows", "footer", "intake", "metadata", "space_filter"),
    ("data_block", "dictionary", "postings"),
    ("directory", "index_builder"),
    ("block_encoder", "reader"),
    ("builder", "index"),
    ("query", "writer"),
    ("block_events",),
    ("block_group",),
    ("scan",),
    ("segment",),
    ("verify",),
    ("esformat",),
    ("convert",),
    ("demo",),
    ("cli",),
    ("__main__",),
)
LEVEL = {unit: level for level, units in enumerate(LEVELS) for unit in units}

# Dependencies that one unit owns, so that replacing one of them touches one place.
OWNERS = {
    "click": {"cli"},
    "duckdb": {"demo"},
    "lz4": {"codec"},
    "matplotlib": {"demo"},
    "pandas": {"demo"},
    "rich": {"cli", "demo"},
    "xxhash": {"checksum"},
    "zstandard": {"codec", "dictionary"},
}
EVERYWHERE = {"numpy", "pyarrow"}
CORE = {*EVERYWHERE, "xxhash", "zstandard"}


def _modules() -> list[Path]:
    return sorted(ROOT.rglob("*.py"))


def _unit(module: Path) -> str:
    """Name the unit that the file belongs to."""
    first = module.relative_to(ROOT).parts[0].removesuffix(".py")
    return PACKAGE if first == "__init__" else first


def _dotted(module: Path) -> str:
    parts = module.relative_to(ROOT.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


DOTTED = {_dotted(module): module for module in _modules()}


def _imported(module: Path) -> Iterator[str]:
    """Name every module that the file imports, wherever in the file: `a.b`, or `a.b.c` where c of a.b is a module."""
    for node in ast.walk(ast.parse(module.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module}:{node.lineno}: imports are written with full names"
            for alias in node.names:
                below = f"{node.module}.{alias.name}"
                yield below if below in DOTTED else str(node.module)


def _inside(module: Path) -> set[str]:
    return {name for name in _imported(module) if name.split(".")[0] == PACKAGE}


def test_every_unit_has_one_level():
    """A new module needs a place in LEVELS; one that is gone leaves it."""
    assert {_unit(module) for module in _modules()} == set(LEVEL)
    assert sum(map(len, LEVELS)) == len(LEVEL)


@pytest.mark.parametrize("name", sorted(DOTTED))
def test_imports_point_down(name):
    """A module imports lower levels, and siblings inside its own package."""
    module = DOTTED[name]
    own = _unit(module)
    for imported in _inside(module):
        other = _unit(DOTTED[imported]) if imported in DOTTED else imported
        assert other == own or LEVEL[other] < LEVEL[own], f"{name} imports {imported}, which is not below it"


def test_no_cycles():
    """Modules can be put in one order in which each comes after all that it imports."""
    graph = {name: _inside(module) - {name} for name, module in DOTTED.items()}
    assert set(graphlib.TopologicalSorter(graph).static_order()) >= set(DOTTED)


@pytest.mark.parametrize("name", sorted(DOTTED))
def test_dependencies_stay_with_their_owner(name):
    """Each dependency is imported where its owner is and nowhere else; `aggregator` has none here."""
    module = DOTTED[name]
    outside = {imported.split(".")[0] for imported in _imported(module)} - sys.stdlib_module_names - {PACKAGE}
    for dependency in outside - EVERYWHERE:
        assert _unit(module) in OWNERS.get(dependency, set()), f"{name} imports {dependency}"


def test_packages_hold_imports_only():
    """An `__init__.py` has a docstring, imports and `__all__`, no code."""
    for module in _modules():
        if module.name == "__init__.py":
            tree = ast.parse(module.read_text("utf-8"))
            for node in tree.body[ast.get_docstring(tree) is not None :]:
                named = ast.unparse(node).startswith(("__all__", "__version__"))
                assert named or isinstance(node, ast.Import | ast.ImportFrom), f"{module}:{node.lineno}"


def test_import_loads_the_core_dependencies_only():
    """`import esformat` loads the standard library, pyarrow, numpy, xxhash and zstandard: extras stay optional."""
    code = (
        "import json, sys; before = set(sys.modules); import esformat; "
        "new = [name for name in set(sys.modules) - before if getattr(sys.modules[name], '__file__', None)]; "
        "print(json.dumps(sorted({name.split('.')[0] for name in new})))"
    )
    run = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=True)
    # The standard library keeps one module under a name of the platform: _sysconfigdata_…
    loaded = {
        name for name in json.loads(run.stdout) if not name.startswith("_sysconfigdata")
    } - sys.stdlib_module_names
    assert loaded - {PACKAGE} <= CORE
    assert PACKAGE in loaded
