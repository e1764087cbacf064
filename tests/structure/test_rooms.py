"""Allowed imports: rooms inside each package, no `aggregator` in `esformat`, few dependencies in its core.

The tables of CONTRIBUTING.md list the rooms, lowest first. A module imports only from its own room and lower ones, even
inside functions and for types; inside a room there is no cycle. `aggregator` imports from `esformat` only what a
package or `parts` of it exports.
"""

from __future__ import annotations

import ast
import functools
import graphlib
import itertools
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest
from sources import tree_of

pytestmark = pytest.mark.xdist_group("sources")  # the sources are read once

PACKAGE = "esformat"
AGGREGATOR = "aggregator"
ROOT = Path(__file__).parents[2]

# Dependencies that one room owns, so that replacing one affects only one place.
OWNERS = {
    "click": {"cli"},
    "cython": {"core"},
    "duckdb": {"sql", "duckdb"},
    "fsspec": {"io"},
    "google_crc32c": {"customerio"},
    "lz4": {"format"},
    "pandas": {"pandas"},
    "polars": {"polars"},
    "prompt_toolkit": {"cli"},
    "py4j": {"spark"},
    "pyspark": {"spark"},
    "rich": {"cli"},
    "tenacity": {"io"},
    "xxhash": {"format"},
    "zstandard": {"format"},
}
AGGREGATOR_OWNERS = {
    "click": {"cli"},
    "httpx": {"client"},
    "google": {"server"},
    "grpc": {"server"},
    "lark": {"lql"},
    "pyspark": {"spark"},
    "opentelemetry": {"server"},
    "obstore": {"storage"},
    "orjson": {"server"},
    "prometheus_client": {"server"},
    "rich": {"cli"},
    "sqlite3": {"storage"},
    "starlette": {"server"},
    "httptools": {"server"},
    "uvicorn": {"server"},
    "uvloop": {"server"},
    "yaml": {"server"},
    "xxhash": {"storage"},
    "zstandard": {"storage"},
}
PARTS = {"esformat.parts", "esformat.cli.parts", "esformat.spark.parts"}  # export names that are not for users
EVERYWHERE = {"numpy", "pyarrow"}
CORE = {*EVERYWHERE, "xxhash", "zstandard"}
OF_PYARROW = {"cloudpickle"}  # imported by pyarrow if something else, such as DataFusion, has installed it


def _modules() -> list[Path]:
    return sorted(module for package in (PACKAGE, AGGREGATOR) for module in (ROOT / package).rglob("*.py"))


def _dotted(module: Path) -> str:
    parts = module.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


DOTTED = {_dotted(module): module for module in _modules()}


@functools.cache
def _imported(module: Path) -> tuple[str, ...]:
    return tuple(_imports_in(module))


def _imports_in(module: Path) -> Iterator[str]:
    """Every module that the file imports, anywhere in it: `a.b`, or `a.b.c` if c of a.b is a module."""
    waiting: list[ast.AST] = [tree_of(module)]
    while waiting:
        node = waiting.pop()
        for inside in ("body", "orelse", "finalbody", "handlers", "cases"):  # statements: expressions import nothing
            waiting += getattr(node, inside, ())
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module}:{node.lineno}: imports are written with full names"
            for alias in node.names:
                below = f"{node.module}.{alias.name}"
                yield below if below in DOTTED else str(node.module)


def _package(module: Path) -> str:
    return module.relative_to(ROOT).parts[0]


def _inside(module: Path) -> set[str]:
    """The modules of its own package that a module imports."""
    return {name for name in _imported(module) if name.split(".")[0] == _package(module)}


@functools.cache
def _rooms() -> dict[str, int]:
    """The rooms in CONTRIBUTING.md with their position in the order: `esformat.read`, `aggregator.topic`."""
    rooms: dict[str, int] = {}
    package = ""
    for line in (ROOT / "CONTRIBUTING.md").read_text("utf-8").splitlines():
        if heading := re.fullmatch(r"### Rooms of `(\w+)`", line):
            package = heading[1]
        elif line.startswith("#"):
            package = ""
        elif package and line.startswith("| `"):
            for name in re.findall(r"`([\w/.]+)`", line.split("|")[1]):
                dotted = f"{package}.{name.rstrip('/').removesuffix('.py').replace('/', '.')}"
                assert dotted not in rooms, f"{dotted} has two places"
                rooms[dotted] = len(rooms)
    return rooms


def _room(name: str) -> str:
    """The room of a module: the longest room name that its name begins with."""
    name = f"{name}.__init__" if name in (PACKAGE, AGGREGATOR) else name
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        if ".".join(parts[:length]) in _rooms():
            return ".".join(parts[:length])
    raise AssertionError(f"{name} stands in no room that CONTRIBUTING.md knows")


def test_rooms_are_those_that_there_are():
    """CONTRIBUTING.md has a row for each room, and no others."""
    assert {_room(name) for name in DOTTED if not _holds_rooms(name)} == set(_rooms())


def test_files_named_for_changes_are_there():
    """The map of what to open for a change names existing files and folders."""
    text = (ROOT / "CONTRIBUTING.md").read_text("utf-8").partition("## To change X, open Y")[2].partition("\n## ")[0]
    named = re.findall(r"`([\w/.]+)`", text)
    assert len(named) > 15
    assert [name for name in named if not (ROOT / name).exists()] == []


def _holds_rooms(name: str) -> bool:
    """Whether this is the `__init__` of a folder that contains rooms but is not one."""
    return name not in _rooms() and any(room.startswith(f"{name}.") for room in _rooms()) and "." in name


def test_imports_point_down():
    """A module imports lower rooms, and its neighbours without a cycle."""
    for name, module in DOTTED.items():
        if not _holds_rooms(name):
            for imported in _inside(module):
                assert imported in DOTTED, f"{name} imports {imported}, which is no module"
                own, other = _room(name), _room(imported)
                assert other == own or _rooms()[other] < _rooms()[own], f"{name} imports {imported}: not below it"
    graph = {name: _inside(module) - {name} for name, module in DOTTED.items()}
    assert set(graphlib.TopologicalSorter(graph).static_order()) >= set(DOTTED)


def test_dependencies_stay_with_their_owner():
    """Each dependency is imported only by its owner; `esformat` never imports `aggregator`."""
    for name, module in DOTTED.items():
        package, room = [*name.split("."), ""][:2]
        outside = {imported.split(".")[0] for imported in _imported(module)} - {package}
        owners = OWNERS if package == PACKAGE else AGGREGATOR_OWNERS
        allowed = EVERYWHERE | (sys.stdlib_module_names - set(owners)) | ({PACKAGE} if package == AGGREGATOR else set())
        for dependency in outside - allowed:
            assert room in owners.get(dependency, set()), f"{name} imports {dependency}"


def _exporting() -> dict[str, Path]:
    """The modules with names for others: packages, and `parts`."""
    return {name: module for name, module in DOTTED.items() if module.name == "__init__.py" or name in PARTS}


def test_aggregator_uses_what_esformat_exports():
    """`aggregator` uses only names that an `__init__.py` of `esformat`, or `parts`, exports."""
    exports = _exporting()
    for name, module in DOTTED.items():
        for imported in _imported(module):
            if name.split(".")[0] == AGGREGATOR and imported.split(".")[0] == PACKAGE:
                assert imported in exports, f"{name} imports {imported}"


def test_packages_hold_imports_only():
    """An `__init__.py` has a docstring, imports and `__all__`, and no code except for lazy imports."""
    for module in _exporting().values():
        tree = tree_of(module)
        for node in tree.body[ast.get_docstring(tree) is not None :]:
            named = ast.unparse(node).startswith(("__all__", "__version__"))
            lazy = isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
            assert named or lazy or isinstance(node, ast.Import | ast.ImportFrom), f"{module}:{node.lineno}"


@functools.cache
def _lazy_packages() -> dict[str, ast.If]:
    """Packages that import their names on first use, and the statement that lists the sources twice."""
    found = {}
    for name, module in _exporting().items():
        for node in tree_of(module).body:
            if isinstance(node, ast.If):
                found[name] = node
    return found


@pytest.mark.parametrize("package", sorted(_lazy_packages()))
def test_lazy_names_are_what_type_checkers_see(package):
    """A package imports the same names, from the same modules, on first use and for type checkers."""
    node = _lazy_packages()[package]
    (assignment,) = node.orelse
    homes = ast.literal_eval(assignment.value.args[1])
    lazy = {(module, *word.partition("=")[::2]) for module, words in homes.items() for word in words.split()}
    seen = {
        (one.module, alias.asname or alias.name, alias.name if alias.asname else "")
        for one in node.body
        for alias in one.names
    }
    assert lazy == seen
    exported = import_module(package).__all__
    assert {name for _, name, _ in lazy} <= set(exported)
    below = {name.rpartition(".")[2] for name in DOTTED if name.rpartition(".")[0] == package}
    assert not {name for _, name, _ in lazy} & below, "the import of that module would take the name's place"
    for name in exported:
        assert hasattr(import_module(package), name)
    assert set(dir(import_module(package))) >= set(exported)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = import_module(package).nothing


def test_import_loads_the_core_dependencies_only():
    """`import esformat` loads only the standard library, pyarrow, numpy, xxhash and zstandard: extras stay optional."""
    code = (
        "import json, sys; before = set(sys.modules); import esformat; "
        "[getattr(esformat, name) for name in esformat.__all__]; "
        "new = [name for name in set(sys.modules) - before if getattr(sys.modules[name], '__file__', None)]; "
        "print(json.dumps(sorted({name.split('.')[0] for name in new})))"
    )
    run = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=True)
    # The standard library has a module with a name that depends on the platform: _sysconfigdata_…
    loaded = {
        name for name in json.loads(run.stdout) if not name.startswith("_sysconfigdata")
    } - sys.stdlib_module_names
    assert loaded - {PACKAGE} - OF_PYARROW <= CORE
    assert PACKAGE in loaded


SLOW = ("pyarrow", "numpy", "pandas", "httpx", "starlette", "rich", "lark", "sqlite3", "asyncio", "importlib.metadata")
STARTS = [
    "import esformat",
    "import aggregator",
    "import aggregator.client",
    *(
        f"from {package}.__main__ import main; import sys; sys.argv[1:] = {words.split()}; main()"
        for package in (PACKAGE, AGGREGATOR)
        for words in ("--version", "--help", "")
    ),
    *(
        f"import os; os.environ.update({variable}='bash_complete', COMP_WORDS='{words}', COMP_CWORD='1'); "
        f"from {package}.__main__ import main; main()"
        for package, variable, words in (
            (PACKAGE, "_ESDB_COMPLETE", "esdb "),
            (AGGREGATOR, "_AGGREGATOR_COMPLETE", "a "),
        )
    ),
]


@pytest.mark.parametrize("code", STARTS)
def test_starts_load_nothing_slow(code):
    """A start loads no slow package that only later work may need."""
    assert _loaded_of_slow(code) == []


def test_help_of_verbs_loads_nothing_slow():
    """The help of every verb of both commands, run in one process, does not load one either."""
    code = (
        "from esformat.cli import main as esdb, run as run_esdb; from aggregator.cli import main, run; "
        "[run_esdb([verb, '--help']) for verb in esdb.commands if verb != 'spark']; "
        "[run([verb, '--help']) for verb in main.commands]"
    )
    assert _loaded_of_slow(code) == []


RARE = (
    "google.protobuf", "opentelemetry", "grpc", "yaml", "lark", "pandas", "dateutil", "pyarrow.parquet",
    "esformat.tools", "esformat.convert.load", "esformat.write.writer", "pyarrow._compute", "prometheus_client",
    "email.parser", "html.entities", "zipfile", "aggregator.lql.parse", "aggregator.streams.selection",
    "aggregator.server.bodies.syslog", "aggregator.server.routes.events", "aggregator.server.routes.plateau",
    "esformat.read.scan", "esformat.read.blocks.reader", "esformat.io.location",
)  # fmt: skip
MOST_MODULES = 250
"""A server loads fewer modules of this project than this at its start."""


def test_start_of_a_server_loads_nothing_rare(tmp_path):
    """The start of a server does not load what only some requests and chores need."""
    command = [sys.executable, "-v", "-m", "aggregator", "serve", str(tmp_path)]
    with subprocess.Popen([*command, "--bind", "127.0.0.1:0"], stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        lines = itertools.takewhile(lambda line: ": serving " not in line, process.stderr)
        loaded = {
            line.split("'")[1] for line in lines if line.startswith("import '") and "esformat.base.late" not in line
        }
        process.terminate()
        process.stderr.read()
    assert {"pyarrow.lib", "aggregator.catalog"} <= loaded
    assert loaded.isdisjoint(RARE)
    ours = [name for name in loaded if name.partition(".")[0] in (PACKAGE, AGGREGATOR)]
    assert len(ours) < MOST_MODULES


def _loaded_of_slow(code: str) -> list[str]:
    told = (
        f"import atexit, sys; atexit.register(lambda: print(*(m for m in {SLOW} if m in sys.modules), file=sys.stderr))"
    )
    run = subprocess.run([sys.executable, "-c", f"{told}; {code}"], capture_output=True, text=True, check=False)
    assert run.returncode in (0, 2), run.stderr
    return run.stderr.splitlines()[-1].split()


@pytest.mark.parametrize("folder", ["benchmarks", "docs", "examples", "fixtures"])
def test_imported_names_exist(folder):
    """Scripts that no test imports use only names that their modules have."""
    missing = [
        f"{path.relative_to(ROOT)}: {node.module}.{alias.name}"
        for path in sorted((ROOT / folder).rglob("*.py"))
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] in (PACKAGE, AGGREGATOR)
        for alias in node.names
        if not _has(node.module, alias.name)
    ]
    assert not missing


def _has(module: str, name: str) -> bool:
    return hasattr(import_module(module), name) or find_spec(f"{module}.{name}") is not None
