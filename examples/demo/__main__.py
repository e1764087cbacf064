"""The demo: `python -m examples.demo files`, then `catalog`. `make demo` runs both."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import click

from esformat.cli.parts import CONTEXT_SETTINGS, Group, Verbs, run_program


@click.group(
    "demo", cls=Group, commands=Verbs("examples.demo", ("files", "catalog")), context_settings=CONTEXT_SETTINGS
)
def main() -> None:
    """Demonstrate files and catalogs of events, with real events of this machine or with your own."""


def run(arguments: Sequence[str]) -> int:
    """Run one half of the demo and return its exit status. Errors are printed to stderr, one line each."""
    return run_program(main, arguments)


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
