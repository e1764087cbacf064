"""`Store`: objects under one prefix of an object store, with conditional puts. What they hold is others' business.

`obstore` speaks to S3, GCS, Azure and directories, pools connections, and tries again what a busy store refuses. Here
it is settled what it cannot know: whether a conditional put whose answer was lost came through. That is read back, so
whoever puts conditionally puts bytes that nobody else would put under that name.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from threading import Lock
from typing import Any, TypeVar
from urllib.parse import unquote, urlsplit

import obstore
from obstore.exceptions import (
    AlreadyExistsError,
    BaseError,
    InvalidPathError,
    NotSupportedError,
    PermissionDeniedError,
    PreconditionError,
    UnauthenticatedError,
)
from obstore.store import from_url

from aggregator.errors import (
    InvalidRequestError,
    ObjectConflictError,
    ObjectMissingError,
    StoreError,
    StoreUnreachableError,
)
from aggregator.storage.files.layout import PARTIAL
from esformat.parts import sync_directory

_T = TypeVar("_T")

SCHEMES = ("s3", "gs", "az", "file")
_ADDRESS = re.compile(rf"(?:{'|'.join(SCHEMES)})://.+")
TIMEOUT_S = 20.0
"""Of one request, its answer included: on a line on which a part takes longer, nothing would work."""
PATIENCE_S = 60.0
"""For so long a request that failed is tried again before it is an error."""
BROKEN_S = 3.0
"""For so long a list that broke off is asked for again: what a wrong region answers looks the same."""
PART_BYTES = 8 << 20
"""Larger files are put, and read, in parts of that size."""
READS = 3
"""So often an object is read whose bytes are other ones than they should be: perhaps they were damaged on their way."""
PAGE = 1000
"""Objects that one request lists."""
_PAUSES_S = (0.1, 5.0)  # between attempts: the first, twice as long each time, and at most
_REFUSALS = (NotSupportedError, PermissionDeniedError, UnauthenticatedError)
_DENIED = "(code: AccessDenied)"


def is_address(given: str) -> bool:
    """Whether a text is the address of a place in a store, and not a path."""
    return _ADDRESS.fullmatch(given) is not None


@dataclass(frozen=True, slots=True)
class Stored:
    """An object as the store lists it. modified_us: by the store's own clock."""

    name: str
    size_bytes: int
    etag: str
    modified_us: int


@dataclass(slots=True)
class Traffic:
    """Requests that were made, and bytes that went each way: what a store takes money for."""

    puts: int = 0
    gets: int = 0
    lists: int = 0
    deletes: int = 0
    bytes_up: int = 0
    bytes_down: int = 0


class Store:
    """Objects under one prefix. Safe to share between threads; a forked process opens its own.

    Every method raises StoreUnreachableError where the store cannot be reached or is busy, after trying for a while,
    and StoreError where it refuses.
    """

    def __init__(
        self,
        address: str,
        *,
        settings: Mapping[str, str] | None = None,
        timeout_s: float = TIMEOUT_S,
        patience_s: float = PATIENCE_S,
    ) -> None:
        """address: s3://bucket/prefix, gs://bucket/prefix, az://account/container/prefix, or file:///directory.
        settings: those of obstore, such as {"endpoint": …}; it looks for others in the environment (AWS_REGION …).

        Raises InvalidRequestError. Nothing is asked of the store yet.
        """
        if not is_address(address):
            raise InvalidRequestError(
                f"{address!r} is no address of an object store",
                hint=f"one begins with {', '.join(f'{each}://' for each in SCHEMES)}",
            )
        if set("?#") & set(address):
            raise InvalidRequestError(
                f"{address!r} has a ? or #, behind which nothing counts", hint="a prefix has them as %3F and %23"
            )
        self.address = address.rstrip("/")
        self.traffic = Traffic()
        self._counting = Lock()
        self._patience_s = patience_s
        self._root = Path(unquote(urlsplit(address).path)).absolute() if address.startswith("file:") else None
        self._local: Any = None
        if self._root is not None:
            return
        try:
            self._remote = self._open(dict(settings or {}), timeout_s)
        except (BaseError, ValueError) as error:
            raise InvalidRequestError(f"the store cannot be used: {_first_line(error)}", path=self.address) from None

    def __repr__(self) -> str:
        return f"Store({self.address!r})"

    @property
    def _store(self) -> Any:
        """The store as obstore has it. Raises FileNotFoundError for a directory that is not there."""
        if self._root is None:
            return self._remote
        if self._local is None:
            if self._is_absent():
                raise FileNotFoundError(self._root)
            self._local = from_url(self._root.as_uri())
        return self._local

    def _is_absent(self) -> bool:
        return self._root is not None and not self._root.is_dir()

    def _make_root(self) -> None:
        """Make the directory before the first object is put; one that goes later, as of a disk, is not made again."""
        if self._root is not None and self._local is None:
            try:
                self._root.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise InvalidRequestError(f"the store cannot be used: {error.strerror}", path=self.address) from None

    def _open(self, settings: dict[str, Any], timeout_s: float) -> Any:
        endpoint = settings.get("endpoint") or settings.get("aws_endpoint") or os.environ.get("AWS_ENDPOINT_URL", "")
        first, most = _PAUSES_S
        opened: Callable[..., Any] = from_url  # whose types tell apart the kinds of stores
        return opened(
            self.address,
            config=settings,
            client_options={
                "timeout": timedelta(seconds=timeout_s),
                "connect_timeout": timedelta(seconds=min(5.0, timeout_s)),
                "allow_http": endpoint.startswith("http://"),
            },
            retry_config={
                "retry_timeout": timedelta(seconds=self._patience_s),
                "backoff": {"init_backoff": timedelta(seconds=first), "max_backoff": timedelta(seconds=most)},
            },
        )

    def path_of(self, name: str) -> str:
        """The address of an object."""
        return f"{self.address}/{name}"

    # ------------------------------------------------------------ writing

    def put(self, name: str, data: bytes, *, create: bool = False, etag: str | None = None) -> str:
        """Put an object whole; gives its ETag.

        create: only where there is none. etag: only in the place of the one that has this. Then it raises
        ObjectConflictError where another one is there. After a StoreUnreachableError it may be there, or come yet:
        who puts the same bytes again finds out.
        """
        if not create and etag is None:
            return self._putting(name, lambda: self._put(name, data, "overwrite"))
        mode = "create" if create else {"e_tag": etag}
        asking = self._putting if create else self._asking
        give_up = time.monotonic() + self._patience_s
        pause, most = _PAUSES_S
        while True:
            try:
                return asking(name, lambda: self._put(name, data, mode))
            except (ObjectConflictError, StoreUnreachableError):
                with contextlib.suppress(StoreUnreachableError):
                    found = self._settled(name, data, etag)
                    if found is not None:
                        return found
                if time.monotonic() > give_up:
                    raise StoreUnreachableError(
                        "it is not known whether the object was put", path=self.path_of(name), hint="put it again"
                    ) from None
            time.sleep(pause)
            pause = min(most, 2 * pause)

    def _settled(self, name: str, data: bytes, etag: str | None) -> str | None:
        """After a conditional put that was refused or got no answer: the ETag where it came through, None where
        trying again can help. Raises ObjectConflictError where it cannot.
        """
        for _ in range(READS):
            try:
                known, known_etag = self.get_tagged(name)
            except ObjectMissingError:
                if etag is None:
                    return None
                message = "the object that was to be replaced is gone"
                raise ObjectConflictError(message, path=self.path_of(name)) from None
            if known == data:
                return known_etag
            if known_etag == etag:
                return None
        raise ObjectConflictError("another object is there", path=self.path_of(name))

    def _put(self, name: str, data: bytes, mode: Any) -> str:
        self._count(puts=1, bytes_up=len(data))
        if self._root is None:
            return str(obstore.put(self._store, name, data, mode=mode, use_multipart=False)["e_tag"])
        return self._put_local(self._root, name, data, mode)

    def _put_local(self, root: Path, name: str, data: bytes, mode: Any) -> str:
        """The same in a directory, durable when it is done. obstore replaces no file conditionally: a lock does, which
        is held for nothing else, as a process that is paused with it keeps all others from replacing anything.
        """
        self._make_root()
        if not isinstance(mode, dict):
            result = obstore.put(self._store, name, data, mode=mode, use_multipart=False)
        else:
            with _locked(root):
                try:
                    found = self.head(name).etag
                except ObjectMissingError:
                    found = ""
                if found != mode["e_tag"]:
                    raise ObjectConflictError("another object is there", path=self.path_of(name))
                result = obstore.put(self._store, name, data, mode="overwrite", use_multipart=False)
        _sync_local(root, name)
        return str(result["e_tag"])

    def put_file(self, name: str, path: Path, *, at_once: int = 4) -> None:
        """Put an object that has the bytes of a file, in the place of any other, in parts where it is large, so many of
        them at once.
        """
        path.stat()  # of what is not there no store is asked
        with contextlib.suppress(ObjectMissingError):
            return self._asking(name, lambda: self._put_file(name, path, at_once))
        # of an upload in parts that was completed, and whose answer was lost, the store knows nothing any more, either
        return self._putting(name, lambda: self._put_file(name, path, at_once))

    def _put_file(self, name: str, path: Path, at_once: int) -> None:
        size = path.stat().st_size
        parts = -(-size // PART_BYTES)
        self._count(puts=1 if parts <= 1 else parts + 2, bytes_up=size)
        self._make_root()
        obstore.put(self._store, name, path, chunk_size=PART_BYTES, max_concurrency=at_once)
        if self._root is not None:
            _sync_local(self._root, name)

    # ------------------------------------------------------------ reading

    def get(self, name: str) -> bytes:
        """The bytes of an object. Raises ObjectMissingError."""
        return self.get_tagged(name)[0]

    def get_tagged(self, name: str) -> tuple[bytes, str]:
        """The bytes of an object, and its ETag. Raises ObjectMissingError."""
        self._count(gets=1)
        found = self._asking(name, lambda: self._get(name))
        self._count(bytes_down=len(found[0]))
        return found

    def _get(self, name: str) -> tuple[bytes, str]:
        found = obstore.get(self._store, name)
        return bytes(found.bytes()), found.meta["e_tag"] or ""

    def get_range(self, name: str, start: int, end: int) -> memoryview:
        """Bytes [start, end) of an object, which has so many. Raises ObjectMissingError."""
        self._count(gets=1)
        data = memoryview(self._asking(name, lambda: obstore.get_range(self._store, name, start=start, end=end)))
        self._count(bytes_down=len(data))
        return data

    def stream(self, name: str) -> Iterator[bytes]:
        """The bytes of an object that is not empty, in pieces. Raises ObjectMissingError, also on the way.

        Each is a request of its own: there is no limit to how long a large object may take.
        """
        at, size = 0, 1
        while at < size:
            self._count(gets=1)
            part, size = self._asking(name, lambda at=at: self._get_part(name, at))  # type: ignore[misc]
            self._count(bytes_down=len(part))
            yield part
            at += len(part)

    def _get_part(self, name: str, at: int) -> tuple[bytes, int]:
        found = obstore.get(self._store, name, options={"range": (at, at + PART_BYTES)})
        return bytes(found.bytes()), found.meta["size"]

    def head(self, name: str) -> Stored:
        """What the store tells of an object. Raises ObjectMissingError."""
        self._count(gets=1)
        return _stored(self._asking(name, lambda: obstore.head(self._store, name)))

    def list(self, folder: str = "", *, after: str | None = None) -> Iterator[Stored]:
        """Objects below a folder, in any order; some stores show late what was put just now.

        after: those whose names come behind it.
        """
        if self._is_absent():
            return
        pages: Iterator[Any] | None = None

        def next_page() -> Any:
            nonlocal pages
            going_on = pages or iter(obstore.list(self._store, folder or None, offset=after, chunk_size=PAGE))
            pages = None  # one that breaks off ends there; the next one begins behind the last name
            page = next(going_on, None)
            pages = going_on
            return page

        asking = self._asking_again if self._root is None else self._asking  # only remote ones have an order
        while (page := asking(folder, next_page)) is not None:
            self._count(lists=1)
            yield from (found for found in map(_stored, page) if not found.name.endswith(PARTIAL))
            after = page[-1]["path"]

    def folders(self, folder: str = "") -> Sequence[str]:
        """The folders right below a folder, by their whole names; one without a name, of `//`, is passed over."""
        if self._is_absent():
            return []
        self._count(lists=1)
        found = self._asking_again(folder, lambda: obstore.list_with_delimiter(self._store, folder or None))
        return [each for each in found["common_prefixes"] if each not in ("", folder)]

    def delete(self, names: Iterable[str], *, at_once: int = 1) -> None:
        """Delete objects, in their order unless several go at once; those that are gone are no error."""
        if at_once == 1:
            for name in names:
                self._delete(name)
            return
        with ThreadPoolExecutor(at_once, "aggregator-delete") as threads:
            for _ in threads.map(self._delete, names):
                pass

    def _delete(self, name: str) -> None:
        def delete() -> None:
            self._count(deletes=1)
            obstore.delete(self._store, name)

        with contextlib.suppress(ObjectMissingError):
            self._asking_again(name, delete, self._patience_s)

    # ------------------------------------------------------------ how

    def _count(self, **more: int) -> None:
        with self._counting:
            for name, number in more.items():
                setattr(self.traffic, name, getattr(self.traffic, name) + number)

    def _putting(self, name: str, put: Callable[[], _T]) -> _T:
        """The same of a put, which needs no object: where the store misses something, it is the bucket."""
        try:
            return self._asking(name, put)
        except ObjectMissingError:
            raise StoreError(
                "the store has no such bucket", path=self.address, hint="make it, or check the address"
            ) from None

    def _asking_again(self, name: str, ask: Callable[[], _T], patience_s: float = BROKEN_S) -> _T:
        """Ask the store something until it answers: where an answer breaks off, obstore asks no more."""
        give_up = time.monotonic() + min(patience_s, self._patience_s)
        pause, most = _PAUSES_S
        while True:
            try:
                return self._asking(name, ask)
            except StoreUnreachableError:
                if time.monotonic() > give_up:
                    raise
            time.sleep(pause)
            pause = min(most, 2 * pause)

    def _asking(self, name: str, ask: Callable[[], _T]) -> _T:
        """Ask the store something, and tell its errors in our words."""
        path = self.path_of(name)
        try:
            return ask()
        except (AlreadyExistsError, PreconditionError):
            raise ObjectConflictError("another object is there", path=path) from None
        except FileNotFoundError as error:
            if isinstance(error, ObjectMissingError):
                raise
            raise ObjectMissingError("no such object", path=path) from None
        except _REFUSALS as error:
            raise _refused(path, error) from None
        except InvalidPathError as error:
            raise StoreError(
                f"an object there has a name that cannot be read: {_first_line(error)}",
                path=path,
                hint="delete it, or give it another name: no part between slashes may be empty, '.' or '..'",
            ) from None
        except (BaseError, OSError) as error:
            if _DENIED in str(error):  # of one object of many, in an answer that is none of a refusal
                raise _refused(path, error) from None
            raise StoreUnreachableError(
                f"the store does not answer: {_first_line(error)}", path=path, hint="try again"
            ) from None


def _refused(path: str, error: BaseException) -> StoreError:
    message = f"the store refuses: {_first_line(error)}"
    return StoreError(message, path=path, hint="check its credentials and their rights")


def _stored(meta: Any) -> Stored:
    modified = int(meta["last_modified"].timestamp() * 1e6)
    return Stored(meta["path"], meta["size"], meta["e_tag"] or "", modified)


def _first_line(error: BaseException) -> str:
    """Of obstore's messages, which go on with what helps its authors."""
    return str(error).partition("\n")[0].strip()


@contextlib.contextmanager
def _locked(root: Path) -> Iterator[None]:
    descriptor = os.open(root, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _sync_local(root: Path, name: str) -> None:
    path = root / name
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    for folder in (path.parent, *path.parent.parents):
        sync_directory(folder)
        if folder == root:
            break
