"""Translation of DuckDB's errors to one-line errors of this package, or to the original error of a dataset."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import duckdb

from esformat.errors import ClosedError, EsdbError, UsageError
from esformat.sql.watch import Watch


@contextmanager
def translated_errors(watch: Watch) -> Iterator[None]:
    """Run a block that uses DuckDB, and translate its errors.

    Raises the original error of a dataset if one failed; else UsageError for an invalid statement or lack of memory,
    OSError for a file that DuckDB could not read, EsdbError for an interrupted statement, ClosedError if an error of
    another statement left the database unusable.
    """
    with watch.guarded():
        try:
            yield
        except duckdb.Error as error:
            if isinstance(error, duckdb.InternalException | duckdb.FatalException):
                watch.broken()
            raise (watch.failure or _translated(error)) from None


def _translated(error: duckdb.Error) -> Exception:
    text = one_line(error)
    if isinstance(error, duckdb.InterruptException):
        return EsdbError("the statement was stopped")
    if isinstance(error, duckdb.FatalException):
        # Its text may quote another statement's error.
        return ClosedError("DuckDB closed its database after an error", hint="run the statement again")
    if isinstance(error, duckdb.OutOfMemoryException):
        return UsageError(text.partition(";")[0], hint="ask for fewer groups or columns")
    if isinstance(error, duckdb.IOException):
        return OSError(text)
    return UsageError(text)


def one_line(error: duckdb.Error) -> str:
    """Return the message of an error without the excerpt of the statement and the stack trace."""
    text = re.split(r"\n\n(?:LINE |Stack Trace:)", str(error), maxsplit=1)[0]
    lines = [line.strip().rstrip("!") for line in text.splitlines()]
    return "; ".join(line for line in lines if line)
