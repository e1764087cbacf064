"""`Store`: objects under one prefix of an object store, with conditional puts. Independent of the objects' contents.

`obstore` accesses S3, GCS, Azure and directories, pools connections, and retries requests that a busy store refuses.
This module adds what obstore cannot know: whether a conditional put succeeded whose response was lost. It reads the
object back, so callers of conditional puts must write bytes that nobody else would write under that name.
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
"""Timeout of one request with its response. A connection that needs longer for one part is too slow."""
PATIENCE_S = 60.0
"""How long a failed request is retried before it becomes an error."""
BROKEN_S = 3.0
"""How long an interrupted list is retried; short, because the response of a wrong region looks the same."""
PART_BYTES = 8 << 20
"""Larger files are uploaded and downloaded in parts of this size."""
READS = 3
"""How many times an object with unexpected bytes is read, because the bytes may have been damaged in transit."""
PAGE = 1000
"""Objects per list request."""
_PAUSES_S = (0.1, 5.0)  # pauses between attempts: the first, which doubles each time, and the longest
_REFUSALS = (NotSupportedError, PermissionDeniedError, UnauthenticatedError)
_DENIED = "(code: AccessDenied)"


def is_address(given: str) -> bool:
    """Whether a text is an address in a store rather than a path."""
    return _ADDRESS.fullmatch(given) is not None


@dataclass(frozen=True, slots=True)
class Stored:
    """An object as listed by the store. modified_us: by the store's clock."""

    name: str
    size_bytes: int
    etag: str
    modified_us: int


@dataclass(slots=True)
class Traffic:
    """Number of requests, and bytes in each direction: what stores charge for."""

    puts: int = 0
    gets: int = 0
    lists: int = 0
    deletes: int = 0
    bytes_up: int = 0
    bytes_down: int = 0


class Store:
    """Objects under one prefix. Thread-safe; a forked process must open its own.

    Every method raises StoreUnreachableError if the store cannot be reached or is busy, after retries, and StoreError
    if it refuses.
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
        settings: those of obstore, such as {"endpoint": …}; it reads others from the environment (AWS_REGION …).

        Raises InvalidRequestError. Sends no request yet.
        """
        if not is_address(address):
            raise InvalidRequestError(
                f"{address!r} is not an address of an object store",
                hint=f"addresses begin with {', '.join(f'{each}://' for each in SCHEMES)}",
            )
        if set("?#") & set(address):
            raise InvalidRequestError(
                f"{address!r} has a ? or #, and anything after it would be ignored",
                hint="in a prefix, write them as %3F and %23",
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
        """The `obstore` object for the store. Raises FileNotFoundError if the directory does not exist."""
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
        """Create the directory before the first put. If it disappears later, as with a disk, it is not recreated."""
        if self._root is not None and self._local is None:
            try:
                self._root.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise InvalidRequestError(f"the store cannot be used: {error.strerror}", path=self.address) from None

    def _open(self, settings: dict[str, Any], timeout_s: float) -> Any:
        endpoint = settings.get("endpoint") or settings.get("aws_endpoint") or os.environ.get("AWS_ENDPOINT_URL", "")
        first, most = _PAUSES_S
        opened: Callable[..., Any] = from_url  # its own types distinguish the kinds of stores
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
        """Put a whole object; return its ETag.

        create: only if there is none. etag: only to replace the object with this ETag. Both raise ObjectConflictError
        if another object is there. After a StoreUnreachableError the object may be there, or appear later; putting the
        same bytes again finds out.
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
                        "it is unknown whether the object was uploaded", path=self.path_of(name), hint="upload it again"
                    ) from None
            time.sleep(pause)
            pause = min(most, 2 * pause)

    def _settled(self, name: str, data: bytes, etag: str | None) -> str | None:
        """After a conditional put that was refused or got no response: the ETag if it succeeded, None if a retry can
        help. Raises ObjectConflictError if it cannot.
        """
        for _ in range(READS):
            try:
                known, known_etag = self.get_tagged(name)
            except ObjectMissingError:
                if etag is None:
                    return None
                message = "the object to be replaced no longer exists"
                raise ObjectConflictError(message, path=self.path_of(name)) from None
            if known == data:
                return known_etag
            if known_etag == etag:
                return None
        raise ObjectConflictError("another object exists", path=self.path_of(name))

    def _put(self, name: str, data: bytes, mode: Any) -> str:
        self._count(puts=1, bytes_up=len(data))
        if self._root is None:
            return str(obstore.put(self._store, name, data, mode=mode, use_multipart=False)["e_tag"])
        return self._put_local(self._root, name, data, mode)

    def _put_local(self, root: Path, name: str, data: bytes, mode: Any) -> str:
        """Put into a directory, durably. obstore cannot replace files conditionally, so a lock guards that. The lock is
        held for nothing else, because a process that is paused with it blocks all other conditional replacements.
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
                    raise ObjectConflictError("another object exists", path=self.path_of(name))
                result = obstore.put(self._store, name, data, mode="overwrite", use_multipart=False)
        _sync_local(root, name)
        return str(result["e_tag"])

    def put_file(self, name: str, path: Path, *, at_once: int = 4) -> None:
        """Upload a file, replacing any object of that name; a large file in parts, `at_once` of them in parallel."""
        path.stat()  # fail early if the file is missing
        with contextlib.suppress(ObjectMissingError):
            return self._asking(name, lambda: self._put_file(name, path, at_once))
        # a missing object can also mean a multipart upload that was completed, but whose response was lost
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
        """Bytes [start, end) of an object that is at least that long. Raises ObjectMissingError."""
        self._count(gets=1)
        data = memoryview(self._asking(name, lambda: obstore.get_range(self._store, name, start=start, end=end)))
        self._count(bytes_down=len(data))
        return data

    def stream(self, name: str) -> Iterator[bytes]:
        """The bytes of a nonempty object, in parts. Raises ObjectMissingError, even between parts.

        Each part is a separate request, so a large object may take any time.
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
        """The store's metadata of an object. Raises ObjectMissingError."""
        self._count(gets=1)
        return _stored(self._asking(name, lambda: obstore.head(self._store, name)))

    def list(self, folder: str = "", *, after: str | None = None) -> Iterator[Stored]:
        """Objects below a folder, in any order; some stores list recently written objects late.

        after: only objects whose names sort after it.
        """
        if self._is_absent():
            return
        pages: Iterator[Any] | None = None

        def next_page() -> Any:
            nonlocal pages
            going_on = pages or iter(obstore.list(self._store, folder or None, offset=after, chunk_size=PAGE))
            pages = None  # an interrupted list cannot continue; a new one begins after the last name
            page = next(going_on, None)
            pages = going_on
            return page

        asking = self._asking_again if self._root is None else self._asking  # only remote stores list in order
        while (page := asking(folder, next_page)) is not None:
            self._count(lists=1)
            yield from (found for found in map(_stored, page) if not found.name.endswith(PARTIAL))
            after = page[-1]["path"]

    def folders(self, folder: str = "") -> Sequence[str]:
        """The full names of the folders directly below a folder; skips a folder without a name, from `//`."""
        if self._is_absent():
            return []
        self._count(lists=1)
        found = self._asking_again(folder, lambda: obstore.list_with_delimiter(self._store, folder or None))
        return [each for each in found["common_prefixes"] if each not in ("", folder)]

    def delete(self, names: Iterable[str], *, at_once: int = 1) -> None:
        """Delete objects, in order unless `at_once` is more than 1; missing objects are not an error."""
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

    # ------------------------------------------------------------ requests

    def _count(self, **more: int) -> None:
        with self._counting:
            for name, number in more.items():
                setattr(self.traffic, name, getattr(self.traffic, name) + number)

    def _putting(self, name: str, put: Callable[[], _T]) -> _T:
        """Like `_asking`, for a put, which needs no object: if the store misses something, it is the bucket."""
        try:
            return self._asking(name, put)
        except ObjectMissingError:
            raise StoreError(
                "the store has no such bucket", path=self.address, hint="create it, or check the address"
            ) from None

    def _asking_again(self, name: str, ask: Callable[[], _T], patience_s: float = BROKEN_S) -> _T:
        """Repeat a request until the store answers, because obstore does not retry after an interrupted response."""
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
        """Send a request, and translate the store's errors."""
        path = self.path_of(name)
        try:
            return ask()
        except (AlreadyExistsError, PreconditionError):
            raise ObjectConflictError("another object exists", path=path) from None
        except FileNotFoundError as error:
            if isinstance(error, ObjectMissingError):
                raise
            raise ObjectMissingError("no such object", path=path) from None
        except _REFUSALS as error:
            raise _refused(path, error) from None
        except InvalidPathError as error:
            raise StoreError(
                f"the name of an object cannot be read: {_first_line(error)}",
                path=path,
                hint="delete or rename it: no part between slashes may be empty, '.' or '..'",
            ) from None
        except (BaseError, OSError) as error:
            if _DENIED in str(error):  # one object of many, in a response that is not itself a refusal
                raise _refused(path, error) from None
            raise StoreUnreachableError(
                f"the store does not answer: {_first_line(error)}", path=path, hint="try again"
            ) from None


def _refused(path: str, error: BaseException) -> StoreError:
    message = f"the store refuses: {_first_line(error)}"
    return StoreError(message, path=path, hint="check the credentials and their permissions")


def _stored(meta: Any) -> Stored:
    modified = int(meta["last_modified"].timestamp() * 1e6)
    return Stored(meta["path"], meta["size"], meta["e_tag"] or "", modified)


def _first_line(error: BaseException) -> str:
    """The first line of an obstore message; the rest is for its developers."""
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
