"""The `esdb` command, also run by `python -m esformat`. It needs the extra `cli`; the rest of the package does not."""

from __future__ import annotations

from typing import NoReturn

from esformat.base.launch import launch


def main() -> NoReturn:
    """Run the command line and exit with its status: 0, 1 if it found a problem, 2 for wrong usage."""
    launch("esdb", "esformat.cli")


if __name__ == "__main__":
    main()
