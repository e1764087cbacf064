"""`open`, `open_many`, `restore`, `promote` and `rebuild_manifest`: catalogs from directories and stores."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from datetime import datetime
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote

import pyarrow as pa

from aggregator.base.gc_pause import gc_paused
from aggregator.base.reports import RebuildReport, RestoreReport
from aggregator.base.result import Closing
from aggregator.catalog import Catalog, federated_engine
from aggregator.engine.backend import is_store, reader_of
from aggregator.engine.follower import ReaderEngine
from aggregator.engine.writer import WriterEngine, now_us
from aggregator.errors import CatalogNotFoundError, InvalidRequestError, TopicNotFoundError
from aggregator.policy import Durability, KeepLocal, Limits, StoreSettings, Tuning, checked_duration, checked_size
from aggregator.storage.files.layout import Layout
from aggregator.storage.files.modes import MANIFEST, create_directory, parse_mode
from aggregator.topic import Topic
from esformat.parts import to_microseconds

if TYPE_CHECKING:
    from aggregator.streams.selection import Selection
    from aggregator.streams.tail import Tail
    from esformat.sql import Parameters, Rows, Session

AT_ONCE = 8
"""Number of catalogs in stores that are opened in parallel."""
_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
AnyPath = str | bytes | os.PathLike[str] | os.PathLike[bytes]


def open_catalog(
    path: AnyPath,
    *,
    durability: str | Durability = "fsync",
    limits: Limits | Mapping[str, Any] | None = None,
    read_only: bool = False,
    sealing: str = "thread",
    file_mode: int | None = None,
    store: str | None = None,
    keep_local: KeepLocal | Mapping[str, Any] | None = None,
    store_cache: int | str | None = None,
    ship_interval: str | None = None,
    lease: str | None = None,
    history: str | None = None,
    tuning: Tuning | None = None,
) -> Catalog:
    """Open the catalog in the directory `path`; create it if absent. Only one process may write to it.

    read_only: only read, in parallel with the process that writes, if any: the next scan sees what that process has
        acknowledged, sealed or not. Nothing is created or changed. `path` can then also be the address of the catalog's
        store, such as "s3://bucket/prefix", on any machine: the next scan sees what has reached the store.

    durability: what an acknowledged append survives: "fsync" a power cut, "interval" (or "interval:200ms") and "none"
        a crash of the process; see `Durability`.
    limits: memory and disk budgets, e.g. {"memory_bytes": "256 MiB"}; see `Limits`.
    sealing: "thread", or "process": a separate process then writes the segments, so that reads and appends in this one
        do not wait for the interpreter. It ends with the catalog.
    file_mode: mode of all files, such as 0o640 for a group that may read them. Whoever may read the files may also
        search their directories. None: unchanged; a new catalog is private to its owner (0o600), whatever the umask is.
    store: address of a prefix in an object store, such as s3://bucket/prefix, to which log, manifest and sealed
        segments are also written: `restore` brings them back. The catalog remembers this setting and those below; None:
        unchanged. Needs the extra `store`.
    keep_local: which segments stay on the disk, e.g. {"bytes": "50 GiB", "age": "7d"}; the others are read from the
        store. An empty mapping: all. Limits of single topics: {"bytes": "50 GiB", "topics": {"debug": {"bytes": 0}}}.
    store_cache: disk space for data that is read from the store; 1 GiB by default.
    ship_interval: time between uploads of acknowledged events; a second by default. With durability="store" nothing is
        acknowledged before its upload.
    lease: time after the last renewal during which nobody else can take over the catalog; ten seconds by default.
    history: how long the store can restore earlier states of the catalog; an hour by default. Erased events stay there
        as long.
    tuning: sizes and pauses that only tests change.

    Raises CatalogLockedError (another process writes to it), CatalogNotFoundError (read_only), CorruptManifestError,
    InvalidRequestError, UnknownVersionError, OSError.
    """
    if read_only and is_store(path):
        return Catalog(reader_of(str(path)))
    layout = _layout(path)
    if read_only:
        with gc_paused():
            return Catalog(ReaderEngine(layout, now_us))
    if file_mode is not None:
        file_mode = parse_mode(file_mode)
    make_directory_tree(layout.root)
    checked = Limits.of(dict(limits) if isinstance(limits, Mapping) else limits)
    chosen = partial(_store_settings, store, keep_local, store_cache, (ship_interval, lease, history))
    options: dict[str, Any] = {"sealing": sealing, "file_mode": file_mode, "tuning": tuning, "store": chosen}
    with gc_paused():
        return Catalog(WriterEngine(layout, Durability.of(durability), checked, now_us, **options))


def restore(
    address: str,
    path: AnyPath,
    *,
    at: datetime | int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> RestoreReport:
    """Restore a catalog from its store into the directory `path`, which must be empty or absent. An interrupted restore
    continues there. The result is an independent catalog without a store: give it one with another prefix.

    at: restore the state of that time (a datetime, or µs since the epoch), if the store still has it; None: the latest.
    The report lists objects of the store that are damaged or missing; the rest is restored.
    progress: called with the bytes of segments restored so far, and the total.
    Raises CatalogNotFoundError, InvalidRequestError (the directory), StoreError, UnknownVersionError, OSError.
    """
    from aggregator.engine.shipping.restoring import restore as run  # imported here: obstore comes with an extra
    from aggregator.storage.store.client import Store

    layout, store = _layout(path), Store(address)
    make_directory_tree(layout.root)
    until_us = None if at is None else to_microseconds(at)
    return run(store, layout, until_us, progress or (lambda done, total: None))


class Catalogs(Closing):
    """Several catalogs that are read as one. Thread-safe. Close it, or use it as a context manager.

    A topic has the events of all catalogs that have a topic of that name; its partitions are called
    `catalog/partition`. Each read sees each catalog as it is at that moment, and every batch whole or not at all.
    """

    def __init__(self, catalogs: Sequence[Catalog]) -> None:
        """Created by `open_many`."""
        self._catalogs = tuple(catalogs)
        self._engine = federated_engine(self._catalogs)

    def __repr__(self) -> str:
        return f"<aggregator.Catalogs, {len(self._catalogs)} of them, {len(self._engine.state.topics)} topics>"

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle by address: the copy in another process opens the same directories and stores."""
        return open_many, ([str(path) for path in self.paths],)

    @property
    def paths(self) -> tuple[Path | str, ...]:
        """The directory or store address of each catalog, in order."""
        addresses = [catalog._backend.address for catalog in self._catalogs]
        return tuple(each if is_store(each) else Path(each) for each in addresses)

    def topics(self) -> tuple[str, ...]:
        """Names of all catalogs' topics."""
        self._engine.refresh()
        return tuple(self._engine.state.topics)

    def topic(self, name: str) -> Topic:
        """Return a topic, for scans, spaces and index values. Its indexes are those that all catalogs have.

        Raises TopicNotFoundError.
        """
        self._engine.refresh()
        found = self._engine.state.topics.get(name)
        if found is None:
            raise TopicNotFoundError(f"no topic {name!r} in any catalog", path=str(self._engine.layout.root))
        return Topic(self._engine, found)

    def query(self, text: str) -> Selection | pa.Table:
        """Run an LQL statement over all catalogs: a SELECT, EXPLAIN or SHOW PARTITIONS. See `Catalog.query`.

        Raises InvalidRequestError, ReadOnlyError.
        """
        from aggregator import lql  # imported here, as below: not needed at start-up
        from aggregator.lql.parse.tree import DescribePipe, ShowPipes
        from aggregator.streams import statements

        if isinstance(lql.parse_statement(text), ShowPipes | DescribePipe):
            raise InvalidRequestError("pipes belong to a single catalog", hint="query the catalog that has the pipe")
        return statements.run(self._engine, text)

    def tail(self, text: str, timeout_s: float | None = None) -> Tail:
        """Follow a SELECT over all catalogs. See `Catalog.tail`."""
        from aggregator.streams import statements

        return statements.follow(self._engine, text, timeout_s)

    @cached_property
    def _session(self) -> Session:
        from aggregator import sql  # needs the extra `sql`

        return sql.session(self._engine)

    def sql(self, statement: str, parameters: Parameters = None) -> Rows:
        """Run a SQL query over the topics and return its rows. See `Catalog.sql`."""
        return self._session.ask(statement, parameters)

    def streams(self, expression: str = "") -> list[dict[str, str]]:
        """The tags of each stream in any catalog that an expression selects. See `Catalog.streams`."""
        found = {tuple(sorted(tags.items())) for catalog in self._catalogs for tags in catalog.streams(expression)}
        return [dict(tags) for tags in sorted(found)]

    def stats(self) -> dict[str, dict[str, Any]]:
        """Statistics of each catalog, by its path. See `Catalog.stats`."""
        return {str(path): catalog.stats() for path, catalog in zip(self.paths, self._catalogs, strict=True)}

    def close(self) -> None:
        """Close all catalogs."""
        session = self.__dict__.pop("_session", None)
        if session is not None:
            session.close()
        self._engine.close()
        for catalog in self._catalogs:
            catalog.close()


def open_many(paths: AnyPath | Iterable[AnyPath]) -> Catalogs:
    """Open several catalogs for reading, as one: the next scan sees what their writers have acknowledged.

    paths: one or more of: a catalog's directory; the address of its store; a pattern (`*`, `?`, `[…]`, `**`) of
        directories or of a store's prefixes, which opens those that contain a catalog. Each catalog is opened once, in
        the order of their names.
    Raises CatalogNotFoundError if there is none, InvalidRequestError if one catalog is found twice, for example as a
    directory and its store, or as a copy; and everything `open` raises.
    """
    several = [paths] if isinstance(paths, str | bytes | os.PathLike) else list(paths)
    found = sorted({each for given in several for each in _catalogs_at(os.fsdecode(given))})
    if not found:
        raise CatalogNotFoundError("no catalog found", path=", ".join(map(os.fsdecode, several)))
    with ExitStack() as opened:
        made = Catalogs(_opened(found, opened))
        opened.pop_all()
        return made


def _opened(addresses: Sequence[str], opened: ExitStack) -> list[Catalog]:
    """Open catalogs for reading; the stack closes them. Those in stores open in parallel, as each waits for answers."""

    def open_one(address: str) -> Catalog:
        return opened.enter_context(open_catalog(address, read_only=True))

    with ThreadPoolExecutor(AT_ONCE, "aggregator-open") as threads:
        far = {address: threads.submit(open_one, address) for address in addresses if is_store(address)}
        return [far[address].result() if address in far else open_one(address) for address in addresses]


def _catalogs_at(given: str) -> list[str]:
    """The directories or addresses that a path or pattern names."""
    if is_store(given):
        if not glob.has_magic(given):
            scheme, _, rest = given.partition("://")
            return [f"{scheme}://{quote(unquote(rest.rstrip('/')))}"]  # normalised
        from aggregator.storage.store.fleet import catalogs_at  # imported here: obstore comes with an extra

        return catalogs_at(given)
    if not glob.has_magic(given) or Path(given).is_dir():
        return [str(_layout(given).root)]
    found = map(Path, glob.glob(given, recursive=True))  # noqa: PTH207  Path.glob refuses absolute patterns
    return [str(path.absolute()) for path in found if (path / MANIFEST).is_file()]


def rebuild_manifest(
    path: AnyPath, *, store: str | None = None, progress: Callable[[int, int], None] | None = None
) -> RebuildReport:
    """Rebuild a lost or damaged manifest from the catalog's segments. The catalog must be closed everywhere.

    Every segment is read from end to end. Damaged segments and the old manifest are moved to `quarantine/`. Unsealed
    events are recovered from the log when the catalog is opened. progress: called with the bytes done, and the total.
    store: address of the store with the segments that have no files; None: the address in `catalog.facts`.
    Raises CatalogNotFoundError, CatalogLockedError, StoreError, OSError.
    """
    from aggregator.engine.recovery.rebuild import rebuild  # imported here: few programs need it

    return rebuild(_layout(path), now_us, progress or (lambda done, total: None), store)


def _store_settings(
    address: str | None,
    keep_local: Any,
    cache: int | str | None,
    shipping: tuple[str | None, str | None, str | None],
    before: StoreSettings | None,
) -> StoreSettings | None:
    """The store settings: the new ones where set, else the previous ones."""
    if before is None and address is None:
        if any(given is not None for given in (keep_local, cache, *shipping)):
            raise InvalidRequestError(
                "keep_local, store_cache, ship_interval, lease and history require a store",
                hint="give `store`",
            )
        return None
    settings = before or StoreSettings(address or "")
    if address is not None:
        settings = replace(settings, address=address.rstrip("/"))
    if keep_local is not None:
        given = dict(keep_local) if isinstance(keep_local, Mapping) else keep_local
        settings = replace(settings, keep_local=KeepLocal.of(given))
    if cache is not None:
        settings = replace(settings, cache_bytes=checked_size(cache, "store_cache"))
    for name, given in zip(("interval", "lease", "history"), shipping, strict=True):
        if given is not None:
            changed = {f"{name}_us": checked_duration(given, name)}
            settings = replace(settings, shipping=replace(settings.shipping, **changed))
    return settings


def promote(path: AnyPath) -> dict[str, Any]:
    """Turn a directory that followed a server into an independent catalog. Return how far the copy had come, in the
    form of `Catalog.stats()["follows"]`. The follower must have been stopped.

    The catalog reuses none of the server's record indexes: each partition skips 2^32 of them after the last one that
    was copied, because the server may have assigned some since. Nothing stops the server: stop it first, or its later
    events are in no copy.
    Raises CatalogNotFoundError, InvalidRequestError (it follows nobody, or is incomplete), CatalogLockedError (the
    follower runs), OSError.
    """
    from aggregator.engine.recovery.promote import promote as promote_follower  # imported here: few programs need it

    return promote_follower(_layout(path), now_us).lag(now_us())


def make_directory_tree(root: Path) -> None:
    """Create the root of a catalog and its parents. Raises CatalogNotFoundError if a file is in the way."""
    try:
        create_directory(root)
    except FileExistsError:
        raise CatalogNotFoundError("expected a directory, found a file", path=str(root)) from None


def _layout(path: AnyPath) -> Layout:
    """The layout of a catalog, with an absolute path: the process may change its working directory."""
    given = os.fsdecode(path)
    if "\0" in given:
        raise InvalidRequestError(f"invalid directory name {given!r}", hint="remove the NUL character")
    if _ADDRESS.match(given):
        raise InvalidRequestError(
            "a catalog can be written only in a directory of a local disk, not at an address",
            path=given,
            hint="use the address as its store: open(directory, store=address), or read it with read_only=True",
        )
    return Layout(Path(given).absolute())
