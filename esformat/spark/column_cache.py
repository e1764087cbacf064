"""The united columns of a directory's segments, cached in it so that frequent writers open only new segments."""

from __future__ import annotations

import base64
import contextlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import pyarrow as pa

from esformat.format.checksum import checksum64
from esformat.io.commit_folder import CommitFolder
from esformat.io.location import Place
from esformat.spark.files import listed_below
from esformat.spark.scan_plan import read_schemas
from esformat.spark.types import unify_schemas

CACHE_FILE = "_columns"
FEW_SEGMENTS = 32
"""Up to this many segments are opened each time, without a cache."""

_OF_A_COMMIT = re.compile(r"(?:.*/)?part-\d{5}-[0-9a-z]{8,64}\.esdb")

Named = tuple[str, pa.Schema]


@dataclass(frozen=True, slots=True)
class _Cache:
    """stamps: of the covered segments, by name. schema: their united columns; None if there are none."""

    stamps: Mapping[str, str] = field(default_factory=dict)
    schema: pa.Schema | None = None

    @classmethod
    def read(cls, folder: CommitFolder) -> Self:
        """Read the cache of a directory; an empty one if it is missing or damaged."""
        try:
            check, _, content = folder.read(CACHE_FILE).partition(b"\n")
            if check != _check(content):
                return cls()
        except FileNotFoundError:
            return cls()
        found = json.loads(content)
        return cls(found["stamps"], pa.ipc.read_schema(pa.py_buffer(base64.b64decode(found["schema"]))))

    def write(self, folder: CommitFolder) -> None:
        """Write the cache to the directory. Concurrent writers are harmless: every cache is correct."""
        if self.schema is None:
            return
        schema = base64.b64encode(self.schema.serialize()).decode()
        content = json.dumps({"stamps": self.stamps, "schema": schema}).encode()
        with contextlib.suppress(FileNotFoundError):
            folder.put(CACHE_FILE, _check(content) + b"\n" + content)


def cached_columns(folder: CommitFolder, *, refresh: bool = False) -> list[Named]:
    """The columns of the segments below a directory or prefix, united if a cache covers them; empty without segments.

    May include columns of deleted segments, unless `refresh`, which opens all segments.
    Raises UsageError if segments are incompatible.
    """
    existing = listed_below(folder)
    if len(existing) <= FEW_SEGMENTS:
        return read_schemas(list(existing.values()))
    cached = _Cache() if refresh else _Cache.read(folder)
    stamps = {name: stamp for name, place in existing.items() if (stamp := _stamp(name, place)) is not None}
    known = {name: stamp for name, stamp in stamps.items() if cached.stamps.get(name) == stamp}
    schemas = [(folder.name, cached.schema)] if known and cached.schema is not None else []
    schemas += read_schemas([place for name, place in existing.items() if name not in known])
    if known != stamps:
        _Cache(stamps, unify_schemas(schemas)).write(folder)
    return schemas


def _stamp(name: str, place: Place) -> str | None:
    """A stamp that changes when a segment is replaced; None if only a request for the object would tell."""
    if isinstance(place, str):
        with contextlib.suppress(FileNotFoundError):
            found = Path(place).stat()
            return f"{found.st_size}-{found.st_mtime_ns}"
        return None
    return "" if _OF_A_COMMIT.fullmatch(name) else None  # names of commits are unique


def _check(content: bytes) -> bytes:
    return f"{checksum64(content):016x}".encode()
