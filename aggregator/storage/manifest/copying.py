"""Copy the manifest elsewhere: a consistent snapshot, transferring only the blocks that the copy lacks.

A copy is one file without side files, and is never modified in place: the next copy replaces it.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import sqlite3
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

from aggregator.errors import CorruptManifestError
from aggregator.storage.files.checksum import checksum64
from aggregator.storage.manifest.database import errors_of, open_database

BLOCK_BYTES = 4096
_SUM_BYTES = _NUMBER_BYTES = 8
_RECORD_BYTES = _NUMBER_BYTES + BLOCK_BYTES
_VERSIONS_AT, _ALONE = 18, b"\1\1"  # in SQLite's header: no write-ahead log beside the file


def take_copy(manifest: Path, to: Path) -> None:
    """Copy a manifest that may be written to meanwhile. Raises ManifestFailedError, CorruptManifestError, OSError."""
    with (
        errors_of(manifest),
        contextlib.closing(open_database(manifest, read_only=True)) as source,
        contextlib.closing(sqlite3.connect(to)) as target,
    ):
        source.backup(target)  # in one step: a consistent snapshot
    with to.open("r+b") as file:
        file.seek(_VERSIONS_AT)
        file.write(_ALONE)


def block_sums(path: Path) -> bytes:
    """The xxh3-64 of each block of a file, 8 bytes each. Raises OSError."""
    with path.open("rb") as file:
        return b"".join(_sum(block) for block in _blocks(file))


def _blocks(file: BinaryIO) -> Iterator[bytes]:
    while block := file.read(BLOCK_BYTES):
        yield block


def _sum(block: bytes) -> bytes:
    return checksum64(block).to_bytes(_SUM_BYTES, "little")


def differing(path: Path, sums: bytes, known: bytes) -> Iterator[bytes]:
    """The number and bytes of each block whose sum differs from `known`. sums: of the file. Raises OSError."""
    with path.open("rb") as file:
        for number in range(len(sums) // _SUM_BYTES):
            place = slice(number * _SUM_BYTES, (number + 1) * _SUM_BYTES)
            if sums[place] != known[place]:
                file.seek(number * BLOCK_BYTES)
                yield number.to_bytes(_NUMBER_BYTES, "little") + file.read(BLOCK_BYTES)


def put_together(file: BinaryIO, base: Path | None, pieces: Iterable[bytes], blocks: int, check: int) -> bytes:
    """Write a file from the blocks of `base`, replaced by the blocks in `pieces`; return the sums of its blocks.

    check: the xxh3-64 of those sums. Raises CorruptManifestError if it does not match; OSError.
    """
    if base is not None:
        with base.open("rb") as source:
            for block in itertools.islice(_blocks(source), blocks):
                file.write(block)
    file.truncate(blocks * BLOCK_BYTES)
    waiting = bytearray()
    for piece in pieces:
        waiting += piece
        whole = len(waiting) - len(waiting) % _RECORD_BYTES
        for at in range(0, whole, _RECORD_BYTES):
            number = int.from_bytes(waiting[at : at + _NUMBER_BYTES], "little")
            if number >= blocks:
                raise CorruptManifestError(f"no block {number} of {blocks}")
            file.seek(number * BLOCK_BYTES)
            file.write(waiting[at + _NUMBER_BYTES : at + _RECORD_BYTES])
        del waiting[:whole]
    file.seek(0)
    sums = b"".join(_sum(block) for block in _blocks(file))
    if waiting or checksum64(sums) != check:
        raise CorruptManifestError("the received blocks do not form the copied manifest", offset=0)
    file.seek(0, os.SEEK_END)
    return sums
