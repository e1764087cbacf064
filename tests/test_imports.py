"""Who may import whom: levels inside each package, no `aggregator` in `esformat`, few dependencies in its core.

A unit is a module directly under `esformat/` or `aggregator/`, or a package there as a whole. It imports units of lower
levels only, also inside functions and for types. Modules of one package may import each other as long as there is no
cycle. `aggregator` imports from `esformat` only what that, or a package of it, exports.
"""

from __future__ import annotations

import ast
import graphlib
import json
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

PACKAGE = "esformat"
AGGREGATOR = "aggregator"
ROOT = Path(__file__).parents[1]

# Lowest first. `esformat` is `esformat/__init__.py`: whoever needs only what it exports stands above it.
LEVELS = (
    (
        "allocators",
        "errors",
        "checksum",
        "counts",
        "expression",
        "extras",
        "forked",
        "json_text",
        "in_flight",
        "leftovers",
        "notebook",
        "order",
        "ordered_pieces",
        "ranges",
        "write_owner",
    ),
    (
        "budget",
        "cache",
        "codec",
        "event",
        "exact",
        "launch",
        "layout",
        "lazy",
        "merge",
        "publish",
        "retry",
        "source",
        "spill",
        "union",
        "unix_time",
    ),
    ("block", "packing", "schema", "store", "windows"),
    (
        "arrays",
        "commit_folder",
        "event_rows",
        "filters",
        "footer",
        "handles",
        "metadata",
        "remote",
        "space_filter",
        "space_hashes",
        "upload",
    ),
    ("lease", "plain_array"),
    ("commits", "intake", "unified_schema"),
    ("location", "node", "pieces"),
    ("bytes_node",),
    ("encoding",),
    ("data_block", "dictionary", "postings"),
    ("directory", "index_builder"),
    ("block_encoder", "reader"),
    ("builder", "index", "index_runs", "ordered_rows", "stored_run"),
    ("format_choice", "query", "segment_writing", "sorted_runs"),
    ("merge_runs",),
    ("event_sorter",),
    ("writer",),
    ("ahead", "block_events", "runs"),
    ("block_group", "run_events"),
    ("kept_group", "matched_rows", "payloads_ahead"),
    ("scan",),
    ("collection_scan", "selection", "space"),
    ("dataset",),
    ("segment",),
    ("members", "row_range", "verification"),
    ("collection_events",),
    ("collection",),
    ("tools",),
    ("esformat", "parts"),
    ("customerio",),
    ("convert",),
    ("spark",),
    ("demo",),
    ("cli",),
    ("__main__",),
)
AGGREGATOR_LEVELS = (
    ("answer", "errors", "checksum", "reports"),
    ("modes",),
    ("files",),
    ("forked",),
    ("allowance",),
    (
        "arrivals",
        "common_type",
        "budget",
        "disk",
        "fingerprint",
        "leaving",
        "level",
        "lineage",
        "lock",
        "log_frame",
        "lql",
        "names",
        "pins",
        "policy",
        "quarantine",
        "segment_signature",
        "space_index",
        "uninterrupted",
        "window_budget",
    ),
    ("disk_reserve", "history", "log_entry", "log_file", "model"),
    ("age_clock", "compaction", "event_tags", "facts", "position", "records", "retention", "trimming"),
    (
        "intake",
        "log",
        "manifest",
        "merge",
        "question",
        "row_indexes",
        "schema_change",
        "segment_file",
        "segment_table",
        "unsealed",
    ),
    (
        "event_table",
        "facts_file",
        "log_recovery",
        "log_tail",
        "logged",
        "segment_pool",
        "staging",
        "state",
        "tombstones",
    ),
    ("ages", "footprint", "isolation", "quarantine_file", "reserve", "sealing_marks", "sealing_table"),
    ("poison", "sealing_helper"),
    ("sealing_process",),
    ("ingest", "removal", "replay", "restoring", "rewriting", "sealing", "source", "stats", "stream_index", "traces"),
    ("unsealed_source",),
    ("deletion", "erasure", "following", "maintenance", "rounds", "scan", "startup"),
    ("housekeeping", "key_counts", "looking", "rebuild"),
    ("writing",),
    ("adding",),
    ("topic",),
    ("gaps", "index_condition", "quarantine_view", "stream_sizes"),
    ("selection", "truncation"),
    ("pipe_copy", "pipe_round"),
    ("pipe_progress",),
    ("pipes",),
    ("pipe_table",),
    ("tail",),
    ("query",),
    ("catalog",),
    ("opening",),
    ("aggregator",),
    ("client", "collect", "forward", "load", "server"),
    ("demo_server", "spark"),
    ("demo",),
    ("cli",),
    ("__main__",),
)
LEVEL = {
    f"{package}.{unit}": level
    for package, levels in ((PACKAGE, LEVELS), (AGGREGATOR, AGGREGATOR_LEVELS))
    for level, units in enumerate(levels)
    for unit in units
}

# Dependencies that one unit owns, so that replacing one of them touches one place.
OWNERS = {
    "click": {"cli"},
    "duckdb": {"demo"},
    "fsspec": {"location"},
    "google_crc32c": {"customerio"},
    "lz4": {"codec"},
    "matplotlib": {"demo"},
    "pandas": {"demo"},
    "py4j": {"spark"},
    "pyspark": {"spark"},
    "rich": {"cli", "demo"},
    "tenacity": {"retry"},
    "xxhash": {"checksum"},
    "zstandard": {"codec", "dictionary"},
}
AGGREGATOR_OWNERS = {
    "click": {"cli"},
    "httpx": {"client"},
    "google": {"server"},
    "grpc": {"server"},
    "lark": {"lql"},
    "pyspark": {"spark"},
    "opentelemetry": {"server"},
    "orjson": {"server"},
    "prometheus_client": {"server"},
    "prompt_toolkit": {"cli"},
    "rich": {"cli", "demo"},
    "sqlite3": {"manifest"},
    "starlette": {"server"},
    "httptools": {"server"},
    "uvicorn": {"server"},
    "uvloop": {"server"},
    "yaml": {"server"},
    "xxhash": {"checksum"},
}
EVERYWHERE = {"numpy", "pyarrow"}
CORE = {*EVERYWHERE, "xxhash", "zstandard"}


def _modules() -> list[Path]:
    return sorted(module for package in (PACKAGE, AGGREGATOR) for module in (ROOT / package).rglob("*.py"))


def _unit(module: Path) -> str:
    """Name the unit that the file belongs to, with its package: `esformat.read.scan`; `esformat.esformat` is the package."""
    package, first = module.relative_to(ROOT).parts[:2]
    first = first.removesuffix(".py")
    return f"{package}.{package if first == '__init__' else first}"


def _dotted(module: Path) -> str:
    parts = module.relative_to(ROOT).with_suffix("").parts
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


def _package(module: Path) -> str:
    return module.relative_to(ROOT).parts[0]


def _inside(module: Path) -> set[str]:
    """What a module imports of its own package."""
    return {name for name in _imported(module) if name.split(".")[0] == _package(module)}


def test_every_unit_has_one_level():
    """A new module needs a place in LEVELS; one that is gone leaves it."""
    assert {_unit(module) for module in _modules()} == set(LEVEL)
    assert sum(map(len, (*LEVELS, *AGGREGATOR_LEVELS))) == len(LEVEL)


@pytest.mark.parametrize("name", sorted(DOTTED))
def test_imports_point_down(name):
    """A module imports lower levels, and siblings inside its own package."""
    module = DOTTED[name]
    own = _unit(module)
    for imported in _inside(module):
        other = _unit(DOTTED[imported]) if imported in DOTTED else imported
        assert other in LEVEL, f"{name} imports {imported}, which is no module"
        assert other == own or LEVEL[other] < LEVEL[own], f"{name} imports {imported}, which is not below it"


def test_no_cycles():
    """Modules can be put in one order in which each comes after all that it imports."""
    graph = {name: _inside(module) - {name} for name, module in DOTTED.items()}
    assert set(graphlib.TopologicalSorter(graph).static_order()) >= set(DOTTED)


@pytest.mark.parametrize("name", sorted(DOTTED))
def test_dependencies_stay_with_their_owner(name):
    """Each dependency is imported where its owner is and nowhere else; `esformat` never imports `aggregator`."""
    module = DOTTED[name]
    package, unit = _unit(module).split(".")
    outside = {imported.split(".")[0] for imported in _imported(module)} - {package}
    owners = OWNERS if package == PACKAGE else AGGREGATOR_OWNERS
    allowed = EVERYWHERE | (sys.stdlib_module_names - set(owners)) | ({PACKAGE} if package == AGGREGATOR else set())
    for dependency in outside - allowed:
        assert unit in owners.get(dependency, set()), f"{name} imports {dependency}"


@pytest.mark.parametrize("name", sorted(name for name in DOTTED if name.split(".")[0] == AGGREGATOR))
def test_aggregator_uses_what_esformat_exports(name):
    """Names that an `__init__.py` of `esformat` exports, nothing behind them."""
    exports = {dotted for dotted, module in DOTTED.items() if module.name == "__init__.py"}
    for imported in _imported(DOTTED[name]):
        if imported.split(".")[0] == PACKAGE:
            assert imported in exports, f"{name} imports {imported}"


def test_packages_hold_imports_only():
    """An `__init__.py` has a docstring, imports and `__all__`, no code but where its names are imported from."""
    for module in _modules():
        if module.name == "__init__.py":
            tree = ast.parse(module.read_text("utf-8"))
            for node in tree.body[ast.get_docstring(tree) is not None :]:
                named = ast.unparse(node).startswith(("__all__", "__version__"))
                lazy = isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
                assert named or lazy or isinstance(node, ast.Import | ast.ImportFrom), f"{module}:{node.lineno}"


def _lazy_packages() -> dict[str, ast.If]:
    """Packages whose names are imported on first use, and the statement that says from where, twice."""
    found = {}
    for name, module in DOTTED.items():
        if module.name == "__init__.py":
            for node in ast.parse(module.read_text("utf-8")).body:
                if isinstance(node, ast.If):
                    found[name] = node
    return found


@pytest.mark.parametrize("package", sorted(_lazy_packages()))
def test_lazy_names_are_what_type_checkers_see(package):
    """The names that a package imports on first use are those it imports for type checkers, from the same modules."""
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
    """`import esformat` loads the standard library, pyarrow, numpy, xxhash and zstandard: extras stay optional."""
    code = (
        "import json, sys; before = set(sys.modules); import esformat; "
        "[getattr(esformat, name) for name in esformat.__all__]; "
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
    """What takes most of the time of a start is not loaded: packages that only what comes then may need."""
    assert _loaded_of_slow(code) == []


def test_help_of_verbs_loads_nothing_slow():
    """The same for the help of every verb of both commands, one after the other in one process."""
    code = (
        "from esformat.cli import main as esdb, run as run_esdb; from aggregator.cli import main, run; "
        "[run_esdb([verb, '--help']) for verb in esdb.commands if verb != 'spark']; "
        "[run([verb, '--help']) for verb in main.commands]"
    )
    assert _loaded_of_slow(code) == []


RARE = (
    "google.protobuf",
    "opentelemetry",
    "grpc",
    "yaml",
    "lark",
    "pandas",
    "esformat.tools",
    "esformat.tools.verification",
)


def test_start_of_a_server_loads_nothing_rare():
    """What only some requests and chores need is loaded by the first of them."""
    code = (
        "import tempfile, aggregator; from aggregator.cli.serve import _go_without_pandas; _go_without_pandas(); "
        "from aggregator.server import Settings, config, make_app, running; "
        "make_app(aggregator.open(tempfile.mkdtemp()), Settings())"
    )
    assert _loaded_of_slow(code, RARE) == []


def _loaded_of_slow(code: str, slow: tuple[str, ...] = SLOW) -> list[str]:
    told = (
        f"import atexit, sys; atexit.register(lambda: print(*(m for m in {slow} if m in sys.modules), file=sys.stderr))"
    )
    run = subprocess.run([sys.executable, "-c", f"{told}; {code}"], capture_output=True, text=True, check=False)
    assert run.returncode in (0, 2), run.stderr
    return run.stderr.splitlines()[-1].split()
