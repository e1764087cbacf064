"""Detection of an input's format: as requested, by its name, or by its first bytes."""

from __future__ import annotations

from pathlib import PurePath
from typing import TYPE_CHECKING

from esformat.convert.errors import InputError
from esformat.errors import UsageError

if TYPE_CHECKING:  # commands import this module for their options, and pyarrow is slow to import
    from esformat.convert.source import Source

FORMATS = ("csv", "tsv", "jsonl", "parquet", "arrow")
"""The formats that `Load` reads."""
CONVERSION_FORMATS = ("esdb", "parquet", "arrow", "csv", "jsonl", "go-esdb", "go-stream")
"""The formats that `convert_file` reads and writes."""

COMPRESSED = {".gz", ".bz2", ".zst", ".zstd", ".xz"}
"""The extensions of compressed inputs."""

_EXTENSIONS = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".arrow": "arrow",
    ".arrows": "arrow",
    ".feather": "arrow",
    ".ipc": "arrow",
}
_MAGIC = (
    (b"PAR1", "parquet"),
    (b"ARROW1", "arrow"),
    (b"\xff\xff\xff\xff", "arrow"),  # the marker before the first message of a stream
)
_SEGMENT_MAGIC = b"\x89ESDB\r\n\x1a"
SEGMENT_HINT = "take its events out with `esdb scan --format parquet -o FILE` first"


def format_by_name(path: str) -> str | None:
    """Return the format for the extension of `path`, ignoring compression; None if it is unknown."""
    suffixes = [suffix.lower() for suffix in PurePath(path).suffixes]
    while suffixes and suffixes[-1] in COMPRESSED:
        suffixes.pop()
    return _EXTENSIONS.get(suffixes[-1]) if suffixes else None


def refuse_compressed(path: str) -> None:
    """Raise UsageError if the name of an output ends like that of a compressed file: outputs are not compressed."""
    ending = PurePath(path).suffix
    if ending.lower() in COMPRESSED:
        raise UsageError(
            f"{path}: output is not compressed",
            hint=f"choose a name without {ending}, or compress standard output with a pipe",
        )


def without_extension(path: str) -> str:
    """Remove the extensions of a format and of compression from a name."""
    while PurePath(path).suffix.lower() in COMPRESSED:
        path = path.removesuffix(PurePath(path).suffix)
    suffix = PurePath(path).suffix
    return path.removesuffix(suffix) if suffix.lower() in {*_EXTENSIONS, ".esdb", ".esdbstream"} else path


def format_of(source: Source, requested: str | None = None) -> str:
    """Return the format of `source`. Raises InputError if neither its name nor its first bytes tell."""
    known = requested or format_by_name(source.path)
    if known is not None:
        return known
    if source.start(1) == b"{":  # one byte, since a pipe may deliver more much later
        return "jsonl"
    start = source.start(16)
    by_magic = next((name for magic, name in _MAGIC if start.startswith(magic)), None)
    if start.startswith(_SEGMENT_MAGIC) or PurePath(source.path).suffix == ".esdb":
        raise InputError("is a segment, not an input", path=source.path, hint=SEGMENT_HINT)
    if by_magic is None:
        raise InputError(
            "cannot tell the format from the file name",
            path=source.path,
            hint=f"give --input-format {'|'.join(FORMATS)}; lines of logs are for `aggregator collect`",
        )
    return by_magic
