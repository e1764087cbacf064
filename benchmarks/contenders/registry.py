"""The names of all contenders, and those that are installed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from importlib import import_module

from benchmarks.contenders.protocol import Contender

NAMES = ("esformat", "parquet", "duckdb", "sqlite", "lmdb", "rocksdb", "lance", "vortex")
"""In the order of the report; each is a module of this package that defines `CONTENDER`."""


def installed(names: Iterable[str]) -> Iterator[tuple[str, Contender | ImportError]]:
    """Import the contenders of these names; yield the ImportError for one that is not installed."""
    for name in names:
        try:
            yield name, import_module(f"benchmarks.contenders.{name}").CONTENDER
        except ImportError as error:
            yield name, error
