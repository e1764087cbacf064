"""What DuckDB raises, as this package tells it: in one line, and what went wrong with a file as itself."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import duckdb

from esformat.errors import EsdbError, UsageError
from esformat.sql.watch import Watch


@contextmanager
def told(watch: Watch) -> Iterator[None]:
    """Let DuckDB work. Raises what failed in a dataset, else UsageError for what is wrong with a statement, or is more
    than there is memory for, OSError for a file that DuckDB could not read, EsdbError for a statement that was stopped.
    """
    with watch.guarded():
        try:
            yield
        except duckdb.Error as error:
            raise (watch.failure or _translated(error)) from None


def _translated(error: duckdb.Error) -> Exception:
    text = one_line(error)
    if isinstance(error, duckdb.InterruptException):
        return EsdbError("the statement was stopped")
    if isinstance(error, duckdb.OutOfMemoryException):
        return UsageError(text.partition(";")[0], hint="ask for fewer groups or columns")
    if isinstance(error, duckdb.IOException):
        return OSError(text)
    return UsageError(text)


def one_line(error: duckdb.Error) -> str:
    """What an error says, without the picture of the place."""
    text, _, _ = str(error).partition("\n\nLINE ")
    lines = [line.strip().rstrip("!") for line in text.splitlines()]
    return "; ".join(line for line in lines if line)
