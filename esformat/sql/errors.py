"""What DuckDB raises, as this package tells it: in one line, and what went wrong with a file as itself."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import duckdb

from esformat.errors import EsdbError, UsageError
from esformat.sql.watch import Watch


@contextmanager
def told(watch: Watch | None = None) -> Iterator[None]:
    """Raise what failed in a dataset, else UsageError for what is wrong with a statement, OSError for a file that
    DuckDB itself could not read, EsdbError for a statement that was stopped or lacks memory.
    """
    try:
        yield
    except duckdb.Error as error:
        if watch is not None and watch.failure is not None:
            raise watch.failure from None
        raise _translated(error) from None


def _translated(error: duckdb.Error) -> Exception:
    text = one_line(error)
    if isinstance(error, duckdb.InterruptException):
        return EsdbError("the statement was stopped")
    if isinstance(error, duckdb.OutOfMemoryException):
        return EsdbError(text, hint="ask for fewer groups or columns, or allow more memory")
    if isinstance(error, duckdb.IOException):
        return OSError(text)
    return UsageError(text)


def one_line(error: duckdb.Error) -> str:
    """What an error says, without the picture of the place."""
    text, _, _ = str(error).partition("\n\nLINE ")
    lines = [line.strip().rstrip("!") for line in text.splitlines()]
    return "; ".join(line for line in lines if line)
