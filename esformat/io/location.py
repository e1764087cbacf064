"""Locations of segments: turn what callers pass (a path, a URI, a filesystem and a path) into a source or publication.

The filesystems of Arrow and fsspec are imported on first use.
"""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path, PurePath
from typing import Any
from urllib.parse import unquote

from esformat.errors import UsageError
from esformat.io.commit_folder import CommitFolder, LocalFolder, StoredFolder
from esformat.io.commits import committed, committed_objects
from esformat.io.handles import SharedFile
from esformat.io.publish import Publication
from esformat.io.remote import RemoteSource
from esformat.io.retry import retry
from esformat.io.source import FileSource, Source
from esformat.io.store import ArrowStore, FsspecStore, StoredAt
from esformat.io.upload import Upload

SUFFIX = ".esdb"

_URI = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+)://")
_HADOOP = re.compile(
    r"(file|dbfs|hdfs|viewfs|s3[an]?|gs|abfss?|wasbs?|maprfs|oss|cosn?|adl):(?P<rest>/.*)", re.I | re.S
)
_SAME_STORE = {"s3a": "s3", "s3n": "s3", "wasb": "abfs", "wasbs": "abfss"}  # Hadoop's names, and ours
_DBFS = "/dbfs"  # Databricks mounts its file system there
_QUERY = re.compile(r"\?(?=[A-Za-z_]+=)")
_ARROW_SCHEMES = ("s3", "gs", "gcs", "abfs", "abfss", "hdfs", "viewfs")
_SETTINGS = ("AWS_", "AZURE_", "GOOGLE_", "STORAGE_EMULATOR_")  # environment variables that determine how to connect
_WILD = re.compile(r"[*?[]")
_CONNECTIONS = 32
_PATHS = (str, bytes, PurePath, os.PathLike)  # checking the last one is slow
_LOCAL = (str, bytes, type(Path()))
"""Types that never refer to an fsspec file."""
_AZURE = re.compile(r"(?P<container>[^@/]+)@(?P<account>[^@/.]+)\.(?:dfs|blob)\.core\.windows\.net")
_AZURE_SCHEMES = ("abfs", "abfss", "az")
_AZURE_ACCOUNT = re.compile(r"(?P<account>[^@/.]+)\.(?:dfs|blob)\.core\.windows\.net/|(?P<user>[^@/.:]+)@(?=[^@/.]+/)")
"""The account in front of the container, as Arrow accepts it."""


LocalPath = str | bytes | os.PathLike[str] | os.PathLike[bytes]
Target = LocalPath | tuple[Any, str] | StoredAt | Source | Any
"""A path, as text or bytes, a URI, a pair of a filesystem and a path in it, a path or open file of fsspec (such as a
`UPath`), a place in a store, or a source."""
Options = Mapping[str, Any] | None
"""How fsspec connects to the store of a URI: keyword arguments of its filesystem."""
Place = str | StoredAt
"""A local path, or a place in a store."""


def apply_options(storage_options: Options, *targets: Any) -> list[Any]:
    """The targets as a list; with options, each URI is replaced by the place that fsspec opens with them.

    Raises UsageError for options without a URI.
    """
    if storage_options is None:
        return list(targets)
    if not isinstance(storage_options, Mapping):
        raise UsageError(f"storage_options must be a mapping, not {type(storage_options).__name__}")
    targets = tuple(_normalised(target) if isinstance(target, str) else target for target in targets)
    schemes = [_URI.match(target) if isinstance(target, str) else None for target in targets]
    named = [None if found is None else found[1].lower() for found in schemes]
    if targets and not any(named):
        raise UsageError(f"storage_options need a URI, not {targets[0]!r}", hint="such as s3://bucket/key")
    return [
        target if scheme is None else _through_fsspec(target, scheme, storage_options)
        for target, scheme in zip(targets, named, strict=True)
    ]


def _of_fsspec(target: Any) -> bool:
    """Whether a target refers to a file in an fsspec filesystem, like a `UPath` or an `fsspec.core.OpenFile`."""
    return hasattr(target, "fs") and hasattr(target, "path") and hasattr(target.fs, "cat_file")


def locate(target: Any) -> Place:
    """The place that a path, a URI or a pair of filesystem and path names. Raises UsageError for anything else."""
    if isinstance(target, StoredAt):
        return target
    if type(target) not in _LOCAL and _of_fsspec(target):
        return _in_filesystem(target.fs, str(target.path))
    if isinstance(target, tuple) and len(target) == 2 and isinstance(target[1], _PATHS):
        return _in_filesystem(target[0], os.fsdecode(target[1]))
    if not isinstance(target, _PATHS):
        raise UsageError(f"cannot open {target!r}", hint="give a path, a URI, (filesystem, path) or a Source of bytes")
    path = target if type(target) is str else os.fsdecode(target)
    if "\0" in path:
        raise UsageError(f"invalid file name {path!r}", hint="it contains a NUL character")
    if ":" not in path or not isinstance(target, str):  # URIs have one
        return path
    path = _normalised(path)
    found = _URI.match(path)
    return path if found is None else _in_uri(path, found[1].lower())


def local_path(location: str, otherwise: str) -> str:
    """The local path that a location names. Raises UsageError with the message `otherwise` if it is in a store."""
    path = _normalised(location)
    if _URI.match(path):
        raise UsageError(otherwise, path=location)
    return path


def _normalised(location: str) -> str:
    """Normalise a location to a local path or `scheme://…`. Spark and Hadoop have other spellings for both.

    Raises UsageError if the location is invalid.
    """
    found = _HADOOP.match(location)
    if found is None:
        return location
    scheme, rest = found[1].lower(), found["rest"]
    authority, _, path = rest[2:].partition("/") if rest.startswith("//") else ("", "", rest[1:])
    if scheme in ("file", "dbfs"):
        if authority not in ("", "localhost"):
            raise UsageError(
                f"{scheme}:// cannot have a host", path=location, hint=f"write {scheme}:///{authority}/{path}"
            )
        if scheme == "dbfs" and not Path(_DBFS).is_dir():
            raise UsageError(f"dbfs:/ needs the directory {_DBFS}, which does not exist", path=location)
        return f"{_DBFS}/{path}" if scheme == "dbfs" else "/" + unquote(path)
    if not authority and scheme not in ("hdfs", "viewfs"):
        raise UsageError("the URI has no bucket or container", path=location, hint=f"write {scheme}://bucket/path")
    return f"{_SAME_STORE.get(scheme, scheme)}://{authority}/{path}"


def portable(target: Any) -> Any:
    """The target by a name that is valid in other processes, too: a local path becomes absolute."""
    place = locate(target) if isinstance(target, _PATHS) else None
    return _from_root(place) if isinstance(place, str) else target


def _from_root(path: str) -> str:
    return path if os.path.isabs(path) else os.path.abspath(path)  # noqa: PTH100, PTH117 - symbolic links stay


def source_of(target: Any) -> Source:
    """A source of the bytes that `target` names: see `locate`. A Source is returned unchanged. Raises OSError."""
    return portable_source(target)[0]


def portable_source(target: Any) -> tuple[Source, Any]:
    """Like `source_of`, and the target by a name that is valid in other processes: see `portable`. Raises OSError."""
    if type(target) not in _LOCAL:
        if isinstance(target, (SharedFile, FileSource, RemoteSource)):  # fast, unlike a check for a protocol
            return target, target
        if not isinstance(target, (*_PATHS, tuple)) and isinstance(target, Source) and not _of_fsspec(target):
            return target, target
    place = locate(target)
    if isinstance(place, StoredAt):
        return RemoteSource(place.store, place.path), target
    return FileSource(place), _from_root(place)


def publication_of(target: Any, *, overwrite: bool) -> Publication | Upload:
    """A publication that makes a finished file appear at `target`. Raises UsageError, OSError."""
    place = locate(target)
    if isinstance(place, StoredAt):
        return Upload(place.store, place.path, overwrite=overwrite)
    return Publication(Path(place), overwrite=overwrite)


def folder_at(target: Any) -> CommitFolder:
    """The directory or prefix at `target`, for committing writes of several files. Raises UsageError."""
    place = locate(target)
    return StoredFolder(place.store, place.path.rstrip("/")) if isinstance(place, StoredAt) else LocalFolder(place)


def join_path(directory: Any, name: str) -> Path | str | tuple[Any, str] | StoredAt:
    """A target for the file `name` in a directory, below a URI, or in a pair of filesystem and directory.

    Raises UsageError.
    """
    if isinstance(directory, tuple):
        filesystem, path = directory
        return filesystem, "/".join([*filter(None, [os.fsdecode(path).rstrip("/")]), name])
    directory = _normalised(directory) if isinstance(directory, str) else directory
    if isinstance(directory, str) and _URI.match(directory):
        uri, *query = _QUERY.split(directory, maxsplit=1)
        return "?".join([f"{uri.rstrip('/')}/{name}", *query])
    place = locate(directory)
    if isinstance(place, str):
        return Path(place) / name
    return StoredAt(place.store, "/".join([*filter(None, [place.path.rstrip("/")]), name]))


def _in_filesystem(filesystem: Any, path: str) -> Place:
    from pyarrow import fs

    if isinstance(filesystem, fs.SubTreeFileSystem) and isinstance(filesystem.base_fs, fs.LocalFileSystem):
        return str(Path(filesystem.base_path) / path)
    if isinstance(filesystem, fs.LocalFileSystem):
        return path
    if isinstance(filesystem, fs.PyFileSystem) and isinstance(filesystem.handler, fs.FSSpecHandler):
        filesystem = filesystem.handler.fs
    if isinstance(filesystem, fs.FileSystem):
        return StoredAt(ArrowStore(filesystem), path)
    if not all(hasattr(filesystem, name) for name in ("cat_file", "info", "protocol")):
        raise UsageError(f"invalid filesystem {filesystem!r}", hint="give one of pyarrow.fs or of fsspec")
    if "file" in filesystem.protocol:
        return path
    return StoredAt(FsspecStore(filesystem), str(filesystem._strip_protocol(path)))


def _in_uri(uri: str, scheme: str) -> Place:
    if scheme not in _ARROW_SCHEMES:
        return _through_fsspec(uri, scheme)
    rest, *query = _QUERY.split(uri, maxsplit=1)
    authority, _, path = rest[len(scheme) + 3 :].partition("/")
    if scheme in ("abfs", "abfss"):
        azure = _AZURE.fullmatch(authority)
        if azure is not None:  # both hosts of an account have the same files; Arrow takes the dfs one with a container
            authority = f"{azure['container']}@{azure['account']}.dfs.core.windows.net"
        elif "." not in authority and "@" not in authority:  # a container: adlfs finds the account in the environment
            return _through_fsspec(uri, scheme)
    settings = tuple(sorted(item for item in os.environ.items() if item[0].startswith(_SETTINGS)))
    filesystem, root = _connect("?".join([f"{scheme}://{authority}", *query]), settings)
    whole = f"{root.rstrip('/')}/{path}"
    return StoredAt(ArrowStore(filesystem), whole.lstrip("/") if scheme in ("abfs", "abfss") else whole)


@lru_cache(_CONNECTIONS)
def _connect(uri: str, _settings: tuple[tuple[str, str], ...]) -> tuple[Any, str]:
    """Arrow's filesystem for a URI, and the path of the URI's root in it; cached, with its open connections."""
    from pyarrow.fs import FileSystem

    try:
        found: tuple[Any, str] = FileSystem.from_uri(uri)
    except ValueError as error:
        raise UsageError(f"{uri}: {error}", hint="for example s3://bucket/key.esdb") from None
    except OSError as error:
        if not uri.startswith(("hdfs:", "viewfs:")):
            raise
        line = str(error).partition("\n")[0]
        raise UsageError(f"{uri}: {line}", hint="install a Hadoop client with libhdfs and set CLASSPATH") from None
    return found


def _through_fsspec(uri: str, scheme: str, options: Mapping[str, Any] | None = None) -> Place:
    try:
        import fsspec
    except ImportError:
        raise UsageError(f"{uri}: {scheme}:// needs the package fsspec", hint='pip install "esformat[cloud]"') from None
    try:
        known, options = _for_adlfs(uri, scheme, options or {})
        filesystem, path = fsspec.core.url_to_fs(known, **options)
    except (ValueError, ImportError, TypeError) as error:  # no such scheme or option; a package for it is missing
        raise UsageError(f"{uri}: {error}") from None
    return StoredAt(FsspecStore(filesystem), path)


def _for_adlfs(uri: str, scheme: str, options: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
    """An Azure URI in the form that adlfs takes, with the account among the options; other URIs unchanged."""
    if scheme not in _AZURE_SCHEMES:
        return uri, options
    authority, _, path = uri[len(scheme) + 3 :].partition("/")
    found = _AZURE.fullmatch(authority)
    if found is not None:
        account, rest = found["account"], f"{found['container']}/{path}"
    else:
        rest = f"{authority}/{path}"
        before = _AZURE_ACCOUNT.match(rest)
        account = None if before is None else before["account"] or before["user"]
        rest = rest if before is None else rest[before.end() :]
    named = {} if account is None or "connection_string" in options else {"account_name": account}
    return f"abfs://{rest}", {**named, **options}  # all schemes mean one store, and adlfs always uses TLS


# ------------------------------------------------------------ many files


def as_list(targets: Any) -> list[Any]:
    """A single target, or several, as a list."""
    one = (
        isinstance(targets, (*_PATHS, StoredAt, Source))
        or _of_fsspec(targets)
        or (isinstance(targets, tuple) and len(targets) == 2 and not isinstance(targets[0], (*_PATHS, Source)))
    )
    return [targets] if one else list(targets)


def segments_at(targets: Any, storage_options: Options = None) -> Iterator[Place | Source]:
    """The places of the segments that files, directories, patterns and prefixes name, each once.

    targets: one or several, whose order is kept; files of a directory or pattern are sorted by name. Raises UsageError
    for a target without segments.
    """
    return files_at(targets, is_segment, f"{SUFFIX} file", storage_options)


def files_at(
    targets: Any, wanted: Callable[[str], bool], what: str, storage_options: Options = None
) -> Iterator[Place | Source]:
    """Like `segments_at`, for files of any kind. wanted: selects files of a directory by name. what: names the kind."""
    seen: set[str] = set()
    for target in apply_options(storage_options, *as_list(targets)):
        if target == "-" and not Path(target).exists():
            raise UsageError(
                f"a {what} cannot be read from standard input, because it is not read sequentially",
                hint="save it to a file first",
            )
        if isinstance(target, Source) and not isinstance(target, _PATHS) and not _of_fsspec(target):
            yield target
            continue
        for place in _all_at(locate(target), wanted, what):
            name = place.name if isinstance(place, StoredAt) else os.path.realpath(place)
            if name not in seen:
                seen.add(name)
                yield place


def names_one_file(target: Any) -> bool:
    """Whether a path or URI is that of a single file, not a directory or a pattern. Sends no request to a store."""
    place = locate(target)
    if isinstance(place, StoredAt):
        return _WILD.search(place.path) is None and "." in place.path.rpartition("/")[2]
    return Path(place).is_file() or not (Path(place).is_dir() or _WILD.search(place))


def name_of(place: Place) -> str:
    """The name of a place in messages."""
    return place.name if isinstance(place, StoredAt) else place


def exists(place: Place) -> bool:
    """Whether a file exists. Raises OSError if a store does not answer."""
    return Path(place).exists() if isinstance(place, str) else retry(place.store.facts, place.path) is not None


def is_same_place(one: Place, other: Place) -> bool:
    """Whether two places are the same: a local file, perhaps under two names, or an object."""
    if isinstance(one, str) and isinstance(other, str):
        return Path(one).exists() and Path(other).exists() and Path(one).samefile(other)
    return not isinstance(one, str) and not isinstance(other, str) and one.name == other.name


def name_below(target: Any, place: Place) -> str:
    """The path of a found file relative to the directory `target`, or to the one before its pattern; else its name."""
    root, path = _path_in(locate(target)), _path_in(place)
    wild = _WILD.search(root)
    if wild is not None and root != path:
        root = root[: wild.start()].rpartition("/")[0]
    below = PurePath(path)
    if below != PurePath(root) and below.is_relative_to(root):
        below = below.relative_to(root)
        if ".." not in below.parts:
            return below.as_posix()
    return below.name


def _path_in(place: Place) -> str:
    return place.path if isinstance(place, StoredAt) else place


def _all_at(place: Place, wanted: Callable[[str], bool], what: str) -> Sequence[Place]:
    found: Sequence[Place]
    found = _in_store(place, wanted) if isinstance(place, StoredAt) else _on_disk(place, wanted)
    if not found:
        name, hint = name_of(place), "name a file, a directory or a pattern"
        if isinstance(place, str) and Path(place, "manifest.sqlite").exists():
            hint = f"it is a catalog: `aggregator stats {name}` shows its contents"
        raise UsageError(f"no {what}", path=name, hint=hint)
    return found


def _on_disk(path: str, wanted: Callable[[str], bool]) -> Sequence[Place]:
    if Path(path).is_dir():
        return sorted(committed(lambda: files_below(path, wanted), [path]))
    if _WILD.search(path) and not Path(path).exists():
        return sorted(file for file in glob.glob(path, recursive=True) if not Path(file).is_dir())  # noqa: PTH207 - `**`
    return [path]


def segments_below(directory: str) -> list[str]:
    """The segments in a directory and below. Skips directories that disappear meanwhile because a write ends."""
    return files_below(directory, is_segment)


def files_below(directory: str, wanted: Callable[[str], bool]) -> list[str]:
    """Like `segments_below`, for files of any kind that are not hidden."""

    def passed_over(error: OSError) -> None:
        if not isinstance(error, FileNotFoundError):
            raise error

    return [
        str(Path(folder, name))
        for folder, _, names in os.walk(directory, onerror=passed_over)
        for name in names
        if wanted(name) and not _is_hidden(name)
    ]


def _in_store(place: StoredAt, wanted: Callable[[str], bool]) -> list[Place]:
    path = place.path
    wild = _WILD.search(path)
    if wild is None and "." in path.rpartition("/")[2] and wanted(path):
        return [place]
    directory = path[: wild.start()].rpartition("/")[0] if wild else path.rstrip("/")
    pattern = _as_expression(path) if wild else None

    def matches(name: str) -> bool:
        return not _is_hidden(name) and (pattern.fullmatch(name) is not None if pattern else wanted(name))

    found = [StoredAt(place.store, name) for name in committed_objects(place.store, directory, matches)]
    return [place] if not found and not wild and not path.endswith("/") else list(found)


def is_segment(path: str) -> bool:
    """Whether a path's last component is the name of a segment."""
    return path.endswith(SUFFIX) and not _is_hidden(path)


def _is_hidden(path: str) -> bool:
    """Whether a file is hidden, as files being written are; a hidden file is not a segment of its directory."""
    return path.rpartition("/")[2].startswith(".")


def _as_expression(pattern: str) -> re.Pattern[str]:
    """A pattern of paths as a regular expression: `*` and `?` match within a directory, `**/` across directories."""
    pieces = re.split(r"(\*\*/|\*|\?|\[[^\]]+\])", pattern)
    known = {"**/": "(?:.*/)?", "*": "[^/]*", "?": "[^/]"}
    return re.compile(
        "".join(known.get(piece, piece if piece[:1] == "[" else re.escape(piece)) for piece in pieces), re.DOTALL
    )
