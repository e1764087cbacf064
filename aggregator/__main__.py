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
"""Modules that wait for the first of their names: much is behind them, and a server starts without it."""


def main() -> NoReturn:
    """Run the command line and exit with its status: 0, 1 where a problem was found, 2 for wrong usage."""
    launch("aggregator", "aggregator.cli", late=LATE)


if __name__ == "__main__":
    main()
