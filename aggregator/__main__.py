"""The `aggregator` command, also as `python -m aggregator`. It needs the extra `cli`; the rest does not."""

from __future__ import annotations

from typing import NoReturn

from esformat.parts import launch

LATE = (
    "aggregator.streams.statements",
    "aggregator.streams.pipes.tables",
    "aggregator.streams.pipes.worker",
    "aggregator.streams.writing",
)
"""Modules imported only when one of their names is first used: a server starts faster without them."""


def main() -> NoReturn:
    """Run the command line and exit with its status: 0, 1 if a problem was found, 2 for wrong usage."""
    launch("aggregator", "aggregator.cli", late=LATE)


if __name__ == "__main__":
    main()
