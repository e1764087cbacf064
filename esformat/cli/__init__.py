"""The `esdb` command: a module for each verb over the public names of `esformat`. Needs click and rich."""

from esformat.cli.root import main, run

__all__ = ["main", "run"]
