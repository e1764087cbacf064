"""Generate the documentation site: `python docs/site.py build`, then `zensical build -f build/zensical.toml`.

Files have the same paths on the site as in the repository, so that relative links work in both. HTML comments are
removed, because their blocks are only run by the tests. The references are generated here: of Python from the exports
of each package (mkdocstrings adds signatures and docstrings), of the commands from their `--help`.
"""

from __future__ import annotations

import ast
import json
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import click

from aggregator.cli import main as aggregator
from esformat.cli import main as esdb
from esformat.cli.program import CONTEXT_SETTINGS

ROOT = Path(__file__).parents[1]
SOURCES = ("README.md", "CONTRIBUTING.md", "LICENSE", "docs", "spec", "readers/go/README.md", "benchmarks/results")
KEPT = {"", ".md", ".png", ".py", ".json", ".yml"}
"""Suffixes of the pages, and of the files that they show or link to."""
COMMENT = re.compile(r"^<!--.*?-->\n", re.MULTILINE | re.DOTALL)
PACKAGES = (
    "esformat",
    "esformat.read.dataset",
    "esformat.tools",
    "esformat.convert",
    "esformat.customerio",
    "esformat.spark",
    "aggregator",
    "aggregator.client",
)
"""The packages of the Python reference, which describes all names in their `__all__`. Missing ones are skipped."""


def gather(target: Path) -> None:
    """Write the pages, and the files they show or link to, into `target/pages`; write the configuration to `target`."""
    pages = target / "pages"
    shutil.rmtree(pages, ignore_errors=True)
    for file in _files():
        copy = pages / file.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        if file.suffix == ".md":
            copy.write_text(COMMENT.sub("", file.read_text("utf-8")), "utf-8")
        else:
            shutil.copyfile(file, copy)
    (pages / "docs" / "command-line.md").write_text(command_line(), "utf-8")
    (pages / "docs" / "python.md").write_text(python(), "utf-8")
    (target / "zensical.toml").write_text(configuration(), "utf-8")


def _files() -> Iterator[Path]:
    for source in SOURCES:
        path = ROOT / source
        found = [path] if path.is_file() else sorted(path.rglob("*"))
        yield from (
            file
            for file in found
            if file.is_file() and file.suffix in KEPT and not {"scratch", "__pycache__"} & {*file.parts}
        )


def configuration() -> str:
    """The configuration of the site. Pages that it does not name are added as how-tos, under their titles."""
    text = (ROOT / "zensical.toml").read_text("utf-8")
    entries = [
        f'{{ {json.dumps(_title(page))} = "docs/{page.name}" }}'
        for page in sorted((ROOT / "docs").glob("*.md"))
        if f'"docs/{page.name}"' not in text
    ]
    return text.replace('"How to" = []', f'"How to" = [{", ".join(entries)}]')


def _title(page: Path) -> str:
    return page.read_text("utf-8").partition("\n")[0].removeprefix("# ")


def command_line() -> str:
    """The reference of the commands: the help text of each subcommand."""
    parts = ["# Command line\n"]
    for main in (esdb, aggregator):
        program = str(main.name)
        parts.append(_help(main, program))
        for name, command in sorted(main.commands.items()):
            parts.append(f"## {program} {name}\n\n{_help(command, f'{program} {name}')}")
    return "\n".join(parts)


def _help(command: click.Command, name: str) -> str:
    with click.Context(command, info_name=name, terminal_width=100, **CONTEXT_SETTINGS) as context:
        return f"```text\n{command.get_help(context).rstrip()}\n```\n"


def python() -> str:
    """The Python reference: a mkdocstrings directive for each exported name."""
    parts = ["# Python\n"]
    for package in PACKAGES:
        kinds: dict[str, list[str]] = {"Functions": [], "Classes": [], "Errors": []}
        for name in exported(package):
            kind = "Functions" if name.islower() else "Errors" if name.endswith("Error") else "Classes"
            kinds[kind].append(f"::: {package}.{name}\n")
        for kind, directives in kinds.items():
            if directives:
                parts += [f"## {package}: {kind.lower()}\n", *directives]
    return "\n".join(parts)


def exported(package: str) -> list[str]:
    """The names in `__all__` of a package or module, parsed from its source, because an extra may not be installed."""
    place = ROOT / package.replace(".", "/")
    source = place / "__init__.py" if place.is_dir() else place.with_suffix(".py")
    for node in ast.parse(source.read_text("utf-8")).body if source.exists() else ():
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return [name for name in ast.literal_eval(node.value) if not name.startswith("_")]
    return []


if __name__ == "__main__":
    gather(Path(sys.argv[1]))
