"""Filesystems other than the local disk, mainly object stores: read ranges, upload whole files, list.

Arrow's filesystems and fsspec's have one interface here. A path is the filesystem's own, without a scheme. Nothing here
retries.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import os
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, BinaryIO, Protocol

from esformat.errors import UsageError
from esformat.io.stale_files import partial_name

ReadRange = Callable[[int, int], bytes]
"""Reads bytes (offset, length); returns fewer if the object is shorter."""

_STAMPS = ("ETag", "etag", "generation", "Last-Modified", "LastModified", "last_modified", "mtime", "created")
_TIMES = ("LastModified", "last_modified", "mtime", "updated", "created")
_WHOLE_ARROW = ("s3", "gcs")  # a file written there appears when the stream is closed
_WHOLE_FSSPEC = ("s3", "s3a", "gs", "gcs", "abfs", "az", "memory")  # one call uploads a file, which appears whole
_COPY_BYTES = 8 << 20
_BY_PARTS = ("s3", "gcs", "abfs")
"""Stores whose keys may be any text, although Arrow treats them as paths."""


@dataclass(frozen=True, slots=True)
class ObjectFacts:
    """Facts that distinguish an object from another one that replaces it."""

    size: int
    stamp: str
    """Its entity tag, generation or modification time; whatever the store has."""


class Store(Protocol):
    """The interface that this package needs of a filesystem."""

    def name_of(self, path: str) -> str:
        """The name of a path in messages."""
        ...

    def open(self, path: str) -> tuple[ObjectFacts, ReadRange]:
        """An object's facts, and a function that reads its bytes. Raises FileNotFoundError or another OSError."""
        ...

    def facts(self, path: str) -> ObjectFacts | None:
        """An object's current facts; None if it does not exist."""
        try:
            return self.open(path)[0]
        except FileNotFoundError:
            return None

    def put(self, path: str, file: BinaryIO) -> None:
        """Upload a local file as an object, which becomes visible only when it is complete."""
        ...

    def delete(self, path: str) -> None:
        """Remove an object. Raises OSError."""
        ...

    def copy(self, source: str, target: str) -> None:
        """Copy an object within the store. The copy appears whole, and replaces an existing object."""
        ...

    def delete_below(self, directory: str) -> None:
        """Remove all objects below a directory. Raises OSError."""
        ...

    def list(self, directory: str) -> list[str]:
        """The paths of all objects below a directory."""
        ...

    def times(self, directory: str) -> dict[str, float]:
        """The paths of all objects below a directory, and when each was written, in seconds since 1970."""
        ...


@dataclass(frozen=True, slots=True)
class StoredAt:
    """A place in a store."""

    store: Store
    path: str

    @property
    def name(self) -> str:
        """The name of the place in messages."""
        return self.store.name_of(self.path)


def _partial(path: str) -> str:
    folder, slash, name = path.rpartition("/")
    return folder + slash + partial_name(name, secrets.token_hex(6))


def _stamp(facts: Mapping[str, Any]) -> str:
    found = (facts[name] for name in _STAMPS if facts.get(name))
    return next((value.decode("latin-1") if isinstance(value, bytes) else str(value) for value in found), "")


class ArrowStore(Store):
    """A `pyarrow.fs.FileSystem`."""

    def __init__(self, filesystem: Any) -> None:
        self._filesystem = filesystem
        base = filesystem
        while base.type_name == "subtree":
            base = base.base_fs
        self._kind: str = base.type_name

    def name_of(self, path: str) -> str:
        """The name of a path in messages."""
        return f"{'gs' if self._kind == 'gcs' else self._kind}://{path}"

    def _checked(self, path: str) -> str:
        """The path. Raises UsageError for a key that Arrow cannot treat as a path."""
        parts = path.rstrip("/").split("/") if self._kind in _BY_PARTS else []
        if parts != [""] and not {"", ".", ".."}.isdisjoint(parts):
            raise UsageError(
                "a part of its name between slashes is empty, '.' or '..'",
                path=self.name_of(path),
                hint="rename it, or pass storage_options so that fsspec reads it instead of Arrow",
            )
        return path

    def open(self, path: str) -> tuple[ObjectFacts, ReadRange]:
        """An object's facts, and a function that reads its bytes. On S3, opening and each range are one request."""
        file = self._filesystem.open_input_file(self._checked(path))
        stamp = _stamp(file.metadata() or {})
        size = int(file.size())
        if not stamp:
            stamp = str(self._filesystem.get_file_info(path).mtime_ns)
        return ObjectFacts(size, stamp), lambda offset, length: file.read_at(length, offset)

    def put(self, path: str, file: BinaryIO) -> None:
        """Upload a local file as an object."""
        self._checked(path)
        if self._kind in _WHOLE_ARROW:
            self._write(path, file)
            return
        partial = _partial(path)
        try:
            self._write(partial, file)
            self._move(partial, path)
        except BaseException:
            with contextlib.suppress(OSError):
                self._filesystem.delete_file(partial)
            raise

    def _write(self, path: str, file: BinaryIO) -> None:
        stream = self._filesystem.open_output_stream(path, buffer_size=0)
        try:
            while piece := file.read(_COPY_BYTES):
                stream.write(piece)
        except BaseException:
            # Arrow cannot abort an upload: closing discards it after a failed write, but publishes it after a failed
            # read, so delete the object.
            with contextlib.suppress(OSError):
                stream.close()
                self._filesystem.delete_file(path)
            raise
        stream.close()

    def _move(self, source: str, target: str) -> None:
        try:
            self._filesystem.move(source, target)
        except NotImplementedError:  # stores without renaming
            self._filesystem.copy_file(source, target)
            self._filesystem.delete_file(source)

    def delete(self, path: str) -> None:
        """Remove an object."""
        self._filesystem.delete_file(self._checked(path))

    def copy(self, source: str, target: str) -> None:
        """Copy an object; via a partial name if a copy would not appear whole."""
        if self._kind in _WHOLE_ARROW:
            self._filesystem.copy_file(self._checked(source), self._checked(target))
            return
        with self._filesystem.open_input_file(source) as file:
            self.put(target, file)

    def delete_below(self, directory: str) -> None:
        """Remove a directory and all objects below it; on S3, a thousand objects per request."""
        self._filesystem.delete_dir(self._checked(directory))

    def list(self, directory: str) -> list[str]:
        """The paths of all objects below a directory."""
        return [info.path for info in self._files(directory)]

    def times(self, directory: str) -> dict[str, float]:
        """The paths of all objects below a directory, and when each was written."""
        return {info.path: (info.mtime_ns or 0) / 1e9 for info in self._files(directory)}

    def _files(self, directory: str) -> Sequence[Any]:
        from pyarrow.fs import FileSelector, FileType

        selector = FileSelector(self._checked(directory.rstrip("/")), recursive=True, allow_not_found=True)
        return [info for info in self._filesystem.get_file_info(selector) if info.type == FileType.File]


class FsspecStore(Store):
    """An fsspec filesystem. The buffers of its files are not used: ranges are requested as needed."""

    def __init__(self, filesystem: Any) -> None:
        self._filesystem = filesystem
        protocol = filesystem.protocol
        self._kind: str = protocol if isinstance(protocol, str) else protocol[0]

    def name_of(self, path: str) -> str:
        """The name of a path in messages."""
        return str(self._filesystem.unstrip_protocol(path))

    def open(self, path: str) -> tuple[ObjectFacts, ReadRange]:
        """An object's facts, and a function that reads its bytes."""
        filesystem = self._filesystem
        filesystem.invalidate_cache(path)  # a cached listing may be out of date
        with _answering(self.name_of(path)):
            info = filesystem.info(path)
        if info["type"] == "directory":
            raise IsADirectoryError(f"{self.name_of(path)} is a directory")
        if info.get("size") is None:
            raise UsageError("its size is unknown, so its end cannot be found", path=self.name_of(path))

        def read(offset: int, length: int) -> bytes:
            with _answering(self.name_of(path)):
                data: bytes = filesystem.cat_file(path, start=offset, end=offset + length)
            if len(data) > length:
                raise UsageError(
                    "the server ignores range requests and sends the whole file",
                    path=self.name_of(path),
                    hint="download it and open the copy",
                )
            return data

        return ObjectFacts(int(info["size"]), _stamp(info)), read

    def put(self, path: str, file: BinaryIO) -> None:
        """Upload a local file as an object."""
        filesystem = self._filesystem
        stored = f"/dev/fd/{file.fileno()}"  # the file may have no name
        if not os.path.exists(stored):  # noqa: PTH110 - no path, but a question to the operating system
            raise UsageError("writing through fsspec needs /dev/fd", hint="use a pyarrow.fs filesystem")
        if self._kind in _WHOLE_FSSPEC:
            filesystem.put_file(stored, path)
            return
        partial = _partial(path)
        try:
            filesystem.put_file(stored, partial)
            filesystem.mv(partial, path)
        except BaseException:
            with contextlib.suppress(OSError):
                filesystem.rm_file(partial)
            raise

    def delete(self, path: str) -> None:
        """Remove an object."""
        self._filesystem.rm_file(path)

    def copy(self, source: str, target: str) -> None:
        """Copy an object; via a partial name if the copy would not appear whole."""
        if self._kind in _WHOLE_FSSPEC:
            self._filesystem.cp_file(source, target)
            return
        partial = _partial(target)
        self._filesystem.cp_file(source, partial)
        self._filesystem.mv(partial, target)

    def delete_below(self, directory: str) -> None:
        """Remove a directory and all objects below it."""
        self._filesystem.invalidate_cache(directory)
        self._filesystem.rm(directory, recursive=True)

    def list(self, directory: str) -> list[str]:
        """The paths of all objects below a directory."""
        self._filesystem.invalidate_cache(directory)
        with _answering(self.name_of(directory)):
            return list(self._filesystem.find(directory))

    def times(self, directory: str) -> dict[str, float]:
        """The paths of all objects below a directory, and when each was written; now if the filesystem does not say."""
        self._filesystem.invalidate_cache(directory)
        found = self._filesystem.find(directory, detail=True)
        return {path: _seconds(next((facts[n] for n in _TIMES if facts.get(n)), None)) for path, facts in found.items()}


@contextlib.contextmanager
def _answering(name: str) -> Iterator[None]:
    """Raise failures of a connection to a web server as OSError: some aiohttp errors are not, and fsspec reports any
    failure of its first request for a file as a missing file.
    """
    try:
        yield
    except Exception as error:
        met = error.__cause__ if isinstance(error, FileNotFoundError) else error
        known = type(met).__module__.startswith("aiohttp") or (met is not error and isinstance(met, TimeoutError))
        status = getattr(met, "status", None)
        if not known or status == HTTPStatus.NOT_FOUND or (met is error and isinstance(error, OSError)):
            raise
        what = f"HTTP status {status}" if status is not None else str(met) or type(met).__name__
        raise OSError(f"{name}: {what}") from error


def _seconds(moment: Any) -> float:
    return moment.timestamp() if isinstance(moment, dt.datetime) else float(moment or time.time())
