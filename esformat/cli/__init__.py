"""The `esdb` command: one module per verb, built on the public names of `esformat`. Needs click and rich."""

from esformat.cli.root import main, run

__all__ = ["main", "run"]
