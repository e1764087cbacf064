"""The `aggregator` command, also as `python -m aggregator`. It needs the extra `cli`; the rest does not."""

from __future__ import annotations

from typing import NoReturn

from esformat.parts import launch


def main() -> NoReturn:
    """Run the command line and exit with its status: 0, 1 where a problem was found, 2 for wrong usage."""
    launch("aggregator", "aggregator.cli")


if __name__ == "__main__":
    main()
