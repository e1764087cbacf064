"""Resolution of the paths of a read to segments, as places that can be sent to tasks."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from esformat.errors import UsageError
from esformat.io.commit_folder import CommitFolder, LocalFolder, StoredFolder
from esformat.io.commits import committed, committed_objects
from esformat.io.location import SUFFIX, Place, is_segment, locate, segments_below
from esformat.io.location import segments_at as places_at
from esformat.io.remote import RemoteSource
from esformat.io.retry import retry
from esformat.io.store import StoredAt
from esformat.read.segment import Segment, open_segment
from esformat.spark.segment_cache import SegmentCache

REMOTE_CACHE_BYTES = 8 << 20  # of an object: a task reads each block once, so a larger cache is useless
_known = SegmentCache()


def segments_at(paths: str | Sequence[str], names: re.Pattern[str] | None = None) -> list[Place]:
    """List the segments named by files, directories, patterns and prefixes of object stores, each once, in order.

    For directories that are being written to, the state of the last commit. names: a pattern for file names; None: any.
    Raises UsageError if a path or `names` matches no segment.
    """
    paths = [paths] if isinstance(paths, str) else paths
    named = [locate(path) for path in paths]
    local = [place for place in named if isinstance(place, str)]
    stored = [place for place in named if isinstance(place, StoredAt)]
    places: list[Place] = [place for place in places_at(stored) if isinstance(place, StoredAt)]
    roots = [_directory_of(path) for path in local]
    places += committed(lambda: [place for place in places_at(local) if isinstance(place, str)], roots)
    found = [place for place in places if names is None or names.fullmatch(folder_of(place)[1])]
    if not found:
        raise UsageError(
            f"no {SUFFIX} file" + (" with such a name" if places else ""),
            path=", ".join(paths),
            hint="name a file, a directory or a pattern",
        )
    return found


def listed_below(folder: CommitFolder) -> dict[str, Place]:
    """The segments of a directory or prefix, by relative name; empty if there are none."""
    if isinstance(folder, StoredFolder):
        found = committed_objects(folder.store, folder.prefix, is_segment)
        before = len(folder.prefix) + 1
        return {path[before:]: StoredAt(folder.store, path) for path in found}
    here = Path(folder.name)
    paths = committed(lambda: segments_below(str(here)), [here]) if here.is_dir() else []
    return {str(Path(path).relative_to(here)): path for path in sorted(paths)}


def folder_of(place: Place) -> tuple[CommitFolder, str]:
    """The parent directory or prefix of a segment, and its name there."""
    if isinstance(place, StoredAt):
        prefix, _, name = place.path.rpartition("/")
        return StoredFolder(place.store, prefix), name
    return LocalFolder(str(Path(place).parent)), Path(place).name


def size_of(place: Place) -> int:
    """The size of a segment in bytes. Raises OSError."""
    if isinstance(place, str):
        return Path(place).stat().st_size
    facts = retry(place.store.facts, place.path)
    if facts is None:
        raise FileNotFoundError(f"{place.name} is gone")
    return facts.size


def _directory_of(path: str) -> Path:
    """The deepest existing directory that contains all files of a path."""
    plain = Path(path)
    while not plain.is_dir() and plain != plain.parent:
        plain = plain.parent
    return plain


@contextmanager
def opened(place: Place) -> Iterator[Segment]:
    """Open the segment at a place until the block ends. Raises OSError, EsdbError."""
    if isinstance(place, str):
        with _known.opened(place) as segment:
            yield segment
    else:
        with open_segment(RemoteSource(place.store, place.path), cache_bytes=REMOTE_CACHE_BYTES) as segment:
            yield segment


def name_of(place: Place) -> str:
    """The name of a place in messages."""
    return place.name if isinstance(place, StoredAt) else place
