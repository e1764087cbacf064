"""Query `.esdb` files with DuckDB: `connect` opens a connection that finds them, `register` adds them to yours."""

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
    """Segments by the names that statements use, each opened once. Close it, or use it as a context manager."""

    def __init__(self, storage_options: Options = None) -> None:
        """storage_options: as for `esformat.open`, for every URI."""
        self._options = storage_options
        self._open: dict[str, Segment | Collection] = {}
        self._lock = RLock()

    def find(self, name: str) -> Segment | Collection | None:
        """The segment with a name, or the segments of a directory or pattern; None if the name refers to no segment.

        Raises what `open` and `open_many` raise, such as FileNotFoundError.
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
    """A session for statements that name files, and the files that it opens; close both."""
    files = Files()
    return Session(files.find, hint=HINT, names=_segments_here), files


def _segments_here() -> list[str]:
    """The segments in the working directory, quoted for FROM."""
    return sorted(literal(path.name) for path in Path().glob("*.esdb"))


class Connection:
    """A DuckDB connection whose `sql` and `execute` find segments: `FROM 'x.esdb'`. Everything else is DuckDB's own."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, files: Files) -> None:
        """Created by `connect`."""
        self.connection = connection
        """DuckDB's own connection, in which the files named so far are registered."""
        self._files = files
        self._watch = Watch()

    def sql(self, query: str, params: Parameters = None, **options: Any) -> duckdb.DuckDBPyRelation:
        """Like DuckDB's `sql`. Raises DuckDB's errors, and what opening a file raises."""
        return self._found(lambda: self.connection.sql(query, params=params, **options))

    def execute(self, query: Any, parameters: Parameters = None) -> Self:
        """Like DuckDB's `execute`."""
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
    """Open a database like `duckdb.connect`, for statements that name segments: `FROM 'clicks.esdb'`.

    A name may also be a directory, a pattern or a URI of an object store. storage_options: as for `esformat.open`.
    Files stay open until the connection is closed.
    """
    return Connection(duckdb.connect(database, **options), Files(storage_options))


def register(connection: duckdb.DuckDBPyConnection, *names: str, storage_options: Options = None) -> Files:
    """Register segments with a DuckDB connection under the names passed: `FROM 'clicks.esdb'`.

    They stay open while the returned object is kept and not closed.
    Raises UsageError for a name that refers to no segment, and what opening a file raises.
    """
    files = Files(storage_options)
    for name in names:
        found = files.find(name)
        if found is None:
            files.close()
            raise UsageError("no segments", path=name, hint="name .esdb files, directories or patterns of them")
        connection.register(name, scanned(found.dataset(dictionaries=True)))
    return files
