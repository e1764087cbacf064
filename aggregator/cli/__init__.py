"""The `aggregator` command: one module per subcommand, over the public API of `aggregator`. Needs click and rich."""

from aggregator.cli.root import main, run

__all__ = ["main", "run"]
