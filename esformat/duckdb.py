"""DuckDB with `.esdb` files behind FROM: a connection that finds them by itself, and files for one that does not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from threading import RLock
from typing import Any, Self, TypeVar

import duckdb

from esformat.errors import UsageError
from esformat.io.location import Options, segments_at
from esformat.read.collection.collection import Collection, open_many
from esformat.read.segment import Segment, open_segment
from esformat.sql.session import Parameters, Session, bind, scanned
from esformat.sql.tree import literal
from esformat.sql.watch import Watch

__all__ = ["Connection", "Files", "connect", "register"]

R = TypeVar("R")
HINT = "FROM takes segments, directories and patterns of them, Parquet, CSV and JSON: FROM 'x.esdb'"


class Files:
    """Segments by the names that statements have for them, each opened once. To be closed, or used in `with`."""

    def __init__(self, storage_options: Options = None) -> None:
        """storage_options: as for `esformat.open`, of every URI."""
        self._options = storage_options
        self._open: dict[str, Segment | Collection] = {}
        self._lock = RLock()

    def find(self, name: str) -> Segment | Collection | None:
        """The file, or the files of a directory or pattern; None where the name is none of segments.

        Raises what `open` and `open_many` do, as FileNotFoundError.
        """
        with self._lock:
            found = self._open.get(name)
            if found is None:
                found = self._opened(name)
                if found is not None:
                    self._open[name] = found
            return found

    def _opened(self, name: str) -> Segment | Collection | None:
        try:
            places = list(segments_at(name, self._options))
        except UsageError:
            if name.endswith(".esdb"):
                raise
            return None  # a directory or pattern without segments
        if places == [name] and not name.endswith(".esdb"):
            return None
        return open_segment(places[0]) if len(places) == 1 else open_many(places)

    def close(self) -> None:
        """Close every file."""
        with self._lock:
            for each in self._open.values():
                each.close()
            self._open.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def session() -> tuple[Session, Files]:
    """Statements over files by their names; close both."""
    files = Files()
    return Session(files.find, hint=HINT, names=_segments_here), files


def _segments_here() -> list[str]:
    """The segments of the working directory, as FROM takes them."""
    return sorted(literal(path.name) for path in Path().glob("*.esdb"))


class Connection:
    """A connection of DuckDB whose `sql` and `execute` find segments: `FROM 'x.esdb'`. All else is DuckDB's own."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, files: Files) -> None:
        """Made by `connect`."""
        self.connection = connection
        """DuckDB's own, which knows the files that were named so far."""
        self._files = files
        self._watch = Watch()

    def sql(self, query: str, params: Parameters = None, **options: Any) -> duckdb.DuckDBPyRelation:
        """As DuckDB's `sql`. Raises DuckDB's errors, and what opening a file raises."""
        return self._found(lambda: self.connection.sql(query, params=params, **options))

    def execute(self, query: Any, parameters: Parameters = None) -> Self:
        """As DuckDB's `execute`."""
        self._found(lambda: self.connection.execute(query, parameters))
        return self

    def _found(self, ask: Callable[[], R]) -> R:
        return bind(self.connection, ask, self._files.find, self._watch, None)

    def close(self) -> None:
        """Close the connection and the files."""
        self.connection.close()
        self._files.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.connection, name)


def connect(database: str = ":memory:", *, storage_options: Options = None, **options: Any) -> Connection:
    """Open a database as `duckdb.connect` does, for statements that name segments: `FROM 'clicks.esdb'`.

    A name may be that of a directory, a pattern or a place in a store. storage_options: as for `esformat.open`. Files
    stay open until the connection is closed.
    """
    return Connection(duckdb.connect(database, **options), Files(storage_options))


def register(connection: duckdb.DuckDBPyConnection, *names: str, storage_options: Options = None) -> Files:
    """Make segments known to a connection of DuckDB by the names that they have: `FROM 'clicks.esdb'`.

    They stay open as long as what is returned is kept and not closed.
    Raises UsageError for a name that is none of segments, and what opening a file raises.
    """
    files = Files(storage_options)
    for name in names:
        found = files.find(name)
        if found is None:
            files.close()
            raise UsageError("no segments", path=name, hint="name .esdb files, directories or patterns of them")
        connection.register(name, scanned(found.dataset(dictionaries=True)))
    return files
