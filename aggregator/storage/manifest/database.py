"""Open the SQLite file, migrate it, and translate its errors."""

from __future__ import annotations

import errno
import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from aggregator.errors import CorruptManifestError, ManifestFailedError, UnknownVersionError
from aggregator.storage.files.modes import create_file
from esformat import ClosedError

APPLICATION_ID = 0x4553_4147
"""Marks an SQLite file as a manifest: "ESAG"."""
_BUSY_SECONDS = 10.0
RECOVER = "open the catalog for writing, which restores the manifest from segments, log and facts"
"""The hint for readers of a manifest that is less complete than its writer left it."""
REBUILD = "run `aggregator rebuild-manifest` on the catalog"


@cache
def migrations() -> tuple[tuple[int, str], ...]:
    """Every migration in order: its number and its SQL. A released migration is never edited. Read once, because a
    process that has changed its user since may no longer be able to read the files.
    """
    scripts = sorted(Path(__file__).with_name("migrations").glob("*.sql"))
    return tuple((int(script.stem), script.read_text("utf-8")) for script in scripts)


@contextmanager
def errors_of(path: Path) -> Iterator[None]:
    """Translate SQLite's errors into this package's."""
    try:
        yield
    except (sqlite3.OperationalError, sqlite3.InterfaceError) as error:
        if "malformed" in str(error) or "not a database" in str(error) or "no such table" in str(error):
            raise CorruptManifestError(f"the manifest is damaged: {error}", path=str(path), hint=REBUILD) from None
        raise ManifestFailedError(f"the manifest cannot be used at the moment: {error}", path=str(path)) from None
    except sqlite3.IntegrityError:
        raise
    except sqlite3.ProgrammingError as error:
        if "closed" not in str(error):  # a programming error
            raise
        raise ClosedError("the catalog is closed", path=str(path.parent), hint="open it again") from None
    except sqlite3.DatabaseError as error:
        raise CorruptManifestError(f"the manifest is damaged: {error}", path=str(path), hint=REBUILD) from None


def open_database(path: Path, *, read_only: bool) -> sqlite3.Connection:
    """A connection to the manifest. For a writer, the file is created if absent, migrated and checked.

    Raises CorruptManifestError, UnknownVersionError, ManifestFailedError, OSError.
    """
    if read_only and not os.access(path, os.R_OK):  # SQLite does not say why it cannot open it
        if not path.exists():
            raise FileNotFoundError(str(path))
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
    if not read_only:
        os.close(create_file(path, os.O_RDWR))  # SQLite's side files get the same mode
    with errors_of(path):
        connection = _connect(path, "mode=ro") if read_only else _connect(path, "mode=rwc")
        try:
            if read_only and not _answers(connection, path):  # nothing can be written beside it, and nobody writes
                connection.close()
                connection = _connect(path, "immutable=1")
            _check_kind(connection, path, read_only=read_only)
            if not read_only:
                connection.execute("PRAGMA journal_mode = WAL")
                connection.execute("PRAGMA synchronous = FULL")
                connection.execute("PRAGMA foreign_keys = ON")
                connection.execute("PRAGMA secure_delete = ON")  # the keys of erased spaces are overwritten
                _migrate(connection)
                (found,) = connection.execute("PRAGMA quick_check(1)").fetchone()
                if found != "ok":
                    raise CorruptManifestError(f"the manifest is damaged: {found}", path=str(path), hint=REBUILD)
        except BaseException:
            connection.close()
            raise
    return connection


def _connect(path: Path, how: str) -> sqlite3.Connection:
    return sqlite3.connect(
        f"{path.absolute().as_uri()}?{how}",
        uri=True,
        isolation_level=None,
        check_same_thread=False,
        timeout=_BUSY_SECONDS,
        cached_statements=256,
    )


def _answers(connection: sqlite3.Connection, path: Path) -> bool:
    try:
        connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    except sqlite3.OperationalError as error:
        if error.sqlite_errorname == "SQLITE_IOERR_SHMSIZE":  # a full disk: no room for an index of the -wal file
            wal = path.with_name(f"{path.name}-wal")
            return wal.exists() and wal.stat().st_size > 0  # in this case it is needed
        return "unable to open" not in str(error) and "readonly" not in str(error)
    return True


def _check_kind(connection: sqlite3.Connection, path: Path, *, read_only: bool) -> None:
    (kind,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    newest = migrations()[-1][0]
    if kind != APPLICATION_ID and tables:
        raise CorruptManifestError("the SQLite file is not a manifest", path=str(path), hint=REBUILD)
    if read_only and version < newest:
        raise CorruptManifestError(
            f"the readable part of the manifest has version {version}, older than {newest}",
            path=str(path),
            hint=RECOVER,
        )
    if version > newest:
        raise UnknownVersionError(
            f"the manifest has version {version}, this program knows {newest}",
            path=str(path),
            hint="use a newer version of this program",
        )


def _migrate(connection: sqlite3.Connection) -> None:
    """Migrate the tables to the newest version, each step in its own transaction."""
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    for number, sql in migrations():
        if number > version:
            marks = f"PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {number};"
            connection.executescript(f"BEGIN IMMEDIATE; {sql}\n{marks} COMMIT;")
