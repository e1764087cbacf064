"""Other people's files as inputs of jobs: what a path names, in which format, in groups."""

from __future__ import annotations

import glob
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from esformat.errors import UsageError
from esformat.io.location import local_path
from esformat.spark.identity import content_identity, origin_of

GROUP_BYTES = 8 << 30
"""Input that is read, sorted and published together: what a job that is stopped has to do again, at most."""
GROUP_FILES = 1000
"""So many files are in a group at most: what is kept of it names them all."""

INPUT_FORMATS = ("parquet", "orc", "json", "csv", "arrow", "customerio")
_IN_A_STORE = "jobs read other formats from directories that all machines share, not from a store"
_SUFFIXES = {
    ".parquet": "parquet", ".pq": "parquet", ".orc": "orc", ".json": "json", ".jsonl": "json", ".ndjson": "json",
    ".csv": "csv", ".tsv": "csv", ".arrow": "arrow", ".arrows": "arrow", ".feather": "arrow", ".ipc": "arrow",
    ".esdb": "esdb",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class InputFile:
    """A file as the record of a commit knows it. identities: of what its events come from, once that was looked up."""

    path: str
    size_bytes: int
    modified_ns: int
    identities: tuple[str, ...] = ()

    @classmethod
    def at(cls, path: str) -> InputFile:
        """The file as it is now."""
        found = Path(path).stat()
        return cls(str(Path(path).resolve()), found.st_size, found.st_mtime_ns)

    def identified(self, kind: str) -> InputFile:
        """The same with its identities. kind: its format. Raises OSError, CorruptSegmentError."""
        found = origin_of(self.path).identities if kind == "esdb" else (content_identity(self.path),)
        return replace(self, identities=found)


def choose_groups(files: Sequence[InputFile], group_bytes: int) -> list[list[InputFile]]:
    """Cut files, in their order, into groups of up to so many bytes and GROUP_FILES; each has one at least."""
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
    """The files that paths, directories and patterns name, each once. Raises UsageError where one names nothing."""
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
    """The one format that the names tell. Raises UsageError."""
    kinds = set()
    for file in files:
        suffixes = [suffix for suffix in Path(file.path).suffixes if suffix not in (".gz", ".bz2", ".zst", ".zstd")]
        kinds.add(_SUFFIXES.get(suffixes[-1]) if suffixes else None)
    kind = kinds.pop() if len(kinds) == 1 else None
    if kind is None:
        raise UsageError(
            "the names of the files do not tell one format", path=files[0].path, hint="say which with format"
        )
    return kind
