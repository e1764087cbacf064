"""Which contenders there are and which of them are installed here."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from importlib import import_module

from benchmarks.contenders.protocol import Contender

NAMES = ("esformat", "parquet", "duckdb", "sqlite", "lmdb", "rocksdb", "lance", "vortex")
"""In the order of the report; each is a module beside this one that offers `CONTENDER`."""


def installed(names: Iterable[str]) -> Iterator[tuple[str, Contender | ImportError]]:
    """Import the contenders of these names; one that is not installed comes as the error that says so."""
    for name in names:
        try:
            yield name, import_module(f"benchmarks.contenders.{name}").CONTENDER
        except ImportError as error:
            yield name, error
