"""Files of other formats as inputs of jobs: path resolution, formats and groups."""

from __future__ import annotations

import glob
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from esformat.convert.formats import COMPRESSED
from esformat.errors import UsageError
from esformat.io.location import local_path
from esformat.spark.identity import content_identity, origin_of

GROUP_BYTES = 8 << 30
"""The size of input that is read, sorted and published together: a stopped job repeats at most this much."""
GROUP_FILES = 1000
"""The most files in a group, whose record lists them all."""

INPUT_FORMATS = ("parquet", "orc", "json", "csv", "arrow", "customerio")
_IN_A_STORE = "jobs read other formats from directories that all machines share, not from a store"
_SUFFIXES = {
    ".parquet": "parquet", ".pq": "parquet", ".orc": "orc", ".json": "json", ".jsonl": "json", ".ndjson": "json",
    ".csv": "csv", ".tsv": "csv", ".arrow": "arrow", ".arrows": "arrow", ".feather": "arrow", ".ipc": "arrow",
    ".esdb": "esdb",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class InputFile:
    """A file as recorded by a commit. identities: of the files its events come from, if already determined."""

    path: str
    size_bytes: int
    modified_ns: int
    identities: tuple[str, ...] = ()

    @classmethod
    def at(cls, path: str) -> InputFile:
        """Return the file in its current state."""
        found = Path(path).stat()
        return cls(str(Path(path).resolve()), found.st_size, found.st_mtime_ns)

    def identified(self, kind: str) -> InputFile:
        """Return the file with its identities. kind: its format. Raises OSError, CorruptSegmentError."""
        found = origin_of(self.path).identities if kind == "esdb" else (content_identity(self.path),)
        return replace(self, identities=found)


def choose_groups(files: Sequence[InputFile], group_bytes: int) -> list[list[InputFile]]:
    """Divide files, in order, into groups of up to `group_bytes` and GROUP_FILES, each with at least one file."""
    groups: list[list[InputFile]] = []
    size = 0
    for file in files:
        if groups and size + file.size_bytes <= group_bytes and len(groups[-1]) < GROUP_FILES:
            groups[-1].append(file)
            size += file.size_bytes
        else:
            groups.append([file])
            size = file.size_bytes
    return groups


def input_files(inputs: str | Sequence[str]) -> list[str]:
    """List the files named by paths, directories and patterns, each once. Raises UsageError if one names nothing."""
    found: dict[str, None] = {}
    for path in (local_path(path, _IN_A_STORE) for path in ([inputs] if isinstance(inputs, str) else inputs)):
        here = sorted(_expand(path))
        if not here:
            raise UsageError("no such file", path=path)
        found.update(dict.fromkeys(here))
    return list(found)


def _expand(path: str) -> Iterator[str]:
    if Path(path).is_dir():
        for file in Path(path).rglob("*"):
            if file.is_file() and not any(part.startswith((".", "_")) for part in file.relative_to(path).parts):
                yield str(file)
    else:
        for name in [path] if Path(path).exists() else glob.glob(path, recursive=True):  # noqa: PTH207 - `**`
            yield from [name] if Path(name).is_file() else _expand(name)


def format_of(files: Sequence[InputFile]) -> str:
    """The common format of the files by their names. Raises UsageError if there is none."""
    kinds = set()
    for file in files:
        suffixes = [suffix for suffix in Path(file.path).suffixes if suffix.lower() not in COMPRESSED]
        kinds.add(_SUFFIXES.get(suffixes[-1]) if suffixes else None)
    kind = kinds.pop() if len(kinds) == 1 else None
    if kind is None:
        raise UsageError(
            "cannot tell a single format from the file names", path=files[0].path, hint="choose it with format"
        )
    return kind
