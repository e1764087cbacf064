"""The `aggregator` command: a module for each verb over the public names of `aggregator`. Needs click and rich."""

from aggregator.cli.root import main, run

__all__ = ["main", "run"]
