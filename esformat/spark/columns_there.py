"""The columns that the segments of a directory have together, noted there: who writes often opens new ones only."""

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

NOTE = "_columns"
FEW_SEGMENTS = 32
"""Up to so many are opened each time, and nothing is noted."""

_OF_A_COMMIT = re.compile(r"(?:.*/)?part-\d{5}-[0-9a-z]{8,64}\.esdb")

Named = tuple[str, pa.Schema]


@dataclass(frozen=True, slots=True)
class _Note:
    """stamps: of the segments that it covers, by name. schema: their columns together; None: of none."""

    stamps: Mapping[str, str] = field(default_factory=dict)
    schema: pa.Schema | None = None

    @classmethod
    def read(cls, folder: CommitFolder) -> Self:
        """The note in a directory; an empty one where there is none, or it is damaged."""
        try:
            check, _, content = folder.read(NOTE).partition(b"\n")
            if check != _check(content):
                return cls()
        except FileNotFoundError:
            return cls()
        found = json.loads(content)
        return cls(found["stamps"], pa.ipc.read_schema(pa.py_buffer(base64.b64decode(found["schema"]))))

    def write(self, folder: CommitFolder) -> None:
        """Put it into the directory. Somebody else may do so at the same time: either note is right."""
        if self.schema is None:
            return
        schema = base64.b64encode(self.schema.serialize()).decode()
        content = json.dumps({"stamps": self.stamps, "schema": schema}).encode()
        with contextlib.suppress(FileNotFoundError):
            folder.put(NOTE, _check(content) + b"\n" + content)


def columns_there(folder: CommitFolder, *, afresh: bool = False) -> list[Named]:
    """Columns of the segments below a directory or prefix, united where a note has them; none where nothing is.

    Columns of segments that are gone by now may be among them, unless `afresh`, which opens all.
    Raises UsageError where segments do not go together.
    """
    there = listed_below(folder)
    if len(there) <= FEW_SEGMENTS:
        return read_schemas(list(there.values()))
    note = _Note() if afresh else _Note.read(folder)
    stamps = {name: stamp for name, place in there.items() if (stamp := _stamp(name, place)) is not None}
    known = {name: stamp for name, stamp in stamps.items() if note.stamps.get(name) == stamp}
    schemas = [(folder.name, note.schema)] if known and note.schema is not None else []
    schemas += read_schemas([place for name, place in there.items() if name not in known])
    if known != stamps:
        _Note(stamps, unify_schemas(schemas)).write(folder)
    return schemas


def _stamp(name: str, place: Place) -> str | None:
    """What changes when a segment is replaced; None where that cannot be told without asking for the object."""
    if isinstance(place, str):
        with contextlib.suppress(FileNotFoundError):
            found = Path(place).stat()
            return f"{found.st_size}-{found.st_mtime_ns}"
        return None
    return "" if _OF_A_COMMIT.fullmatch(name) else None  # no other commit has that name


def _check(content: bytes) -> bytes:
    return f"{checksum64(content):016x}".encode()
