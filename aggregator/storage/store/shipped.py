"""Names and bytes of a catalog's objects in a store: the log, and the announcements of manifests. See `spec/store.md`.

Encodes and decodes values; does not access a store.
"""

from __future__ import annotations

import json
import re
import secrets
import struct
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import zstandard

from aggregator.errors import CorruptLogError, CorruptManifestError, UnknownVersionError
from aggregator.storage.files.checksum import checksum64, hasher64

CATALOG, LEASE = "catalog.json", "lease.json"
LOG, MANIFESTS, SEGMENTS, QUARANTINE = "log", "manifest", "segments", "quarantine"
VERSION = 1
MAGIC = b"\x89ESS\r\n\x1a\n"
_FIXED = struct.Struct(
    "<"  # little-endian, no padding
    "8s"  # magic
    "H"  # version
    "H"  # reserved
    "I"  # length of the head
)
_CHECK = struct.Struct("<Q")
PIECES_BYTES = 64 << 20
"""Limit for the total size of the pieces of one object, and so for the memory of a reader."""
_LEVEL = 1
"""Level of zstd: the fastest one that entropy-codes unrepeated bytes, so that hexadecimal digits take half a byte each.
"""
_LOG_NAME = re.compile(rf"{LOG}/(\d{{20}})")
_MANIFEST_NAME = re.compile(rf"{MANIFESTS}/(\d{{20}})-\d{{10}}-[0-9a-f]{{16}}\.zst")

LogSlice = tuple[int, bytes]
"""The position of the first byte in the log, and the bytes."""


@dataclass(frozen=True, slots=True)
class Announced:
    """A copy of the manifest, announced by an object of the log.

    sequence: of the oldest log object with frames needed in addition to the copy. position: of the oldest such frame.
    change: the manifest's last one. checksum: xxh3-64 of the stored object.
    """

    name: str
    size_bytes: int
    checksum: str
    change: int
    sequence: int
    position: int


@dataclass(frozen=True, slots=True)
class LogObject:
    """One object of the log. A fence has neither pieces nor a manifest.

    run: the writer's, unique to each run. shipped_us: by its clock, never less than in the previous object. end: the
    position after the last frame shipped so far. whole: whether nothing was acknowledged after it.
    """

    epoch: int
    sequence: int
    run: str
    shipped_us: int
    end: int
    whole: bool = False
    pieces: Sequence[LogSlice] = ()
    manifest: Announced | None = None

    def encode(self) -> bytes:
        """The bytes of the object."""
        compress = zstandard.ZstdCompressor(level=_LEVEL).compress
        frames = [compress(data) for _, data in self.pieces]
        facts = {
            "epoch": self.epoch,
            "sequence": self.sequence,
            "run": self.run,
            "shipped_us": self.shipped_us,
            "end": self.end,
            "whole": self.whole,
            "pieces": [
                [position, len(data), len(frame)] for (position, data), frame in zip(self.pieces, frames, strict=True)
            ],
            "manifest": None if self.manifest is None else asdict(self.manifest),
        }
        head = json.dumps(facts).encode()
        parts = [_FIXED.pack(MAGIC, VERSION, 0, len(head)), head, *frames]
        hasher = hasher64()
        for part in parts:
            hasher.update(part)
        return b"".join((*parts, _CHECK.pack(hasher.intdigest())))

    @classmethod
    def decode(cls, stored: bytes, sequence: int) -> LogObject:
        """Read the object of that sequence. Raises CorruptLogError, UnknownVersionError."""
        if len(stored) < _FIXED.size + _CHECK.size:
            raise CorruptLogError(f"the object has {len(stored)} bytes, fewer than its header")
        magic, version, _, length = _FIXED.unpack_from(stored)
        if magic != MAGIC:
            raise CorruptLogError(f"not an object of a log: it begins with {magic!r}")
        if version != VERSION:
            raise UnknownVersionError(
                f"the log has version {version}, this program knows {VERSION}", hint="open it with a newer version"
            )
        end = len(stored) - _CHECK.size
        if _CHECK.unpack_from(stored, end)[0] != checksum64(stored[:end]):
            raise CorruptLogError("the checksum of the object does not match", offset=end)
        try:
            found = cls._of(json.loads(stored[_FIXED.size : _FIXED.size + length]), stored, _FIXED.size + length, end)
        except (KeyError, TypeError, ValueError, zstandard.ZstdError) as error:
            raise CorruptLogError(f"the head of the object cannot be read: {error!r}") from None
        if found.sequence != sequence:
            raise CorruptLogError(f"the object has number {found.sequence}, but its name says {sequence}")
        return found

    @classmethod
    def _of(cls, facts: dict[str, Any], stored: bytes, at: int, end: int) -> LogObject:
        pieces: list[LogSlice] = []
        room = PIECES_BYTES
        for position, length, size in facts["pieces"]:
            if not (0 <= length <= room and 0 < size <= end - at):
                raise ValueError(f"no piece can have {length} bytes in {size}")
            room -= length
            pieces.append((int(position), _decompressed(stored[at : at + size], length)))
            at += size
        if at != end:
            raise ValueError(f"its pieces end at {at}, not {end}")
        manifest = None if facts["manifest"] is None else Announced(**facts["manifest"])
        return cls(
            int(facts["epoch"]),
            int(facts["sequence"]),
            str(facts["run"]),
            int(facts["shipped_us"]),
            int(facts["end"]),
            bool(facts["whole"]),
            pieces,
            manifest,
        )


def _decompressed(frame: bytes, length: int) -> bytes:
    """Decompress a zstd frame of this many bytes. Raises ValueError, ZstdError."""
    found = zstandard.frame_content_size(frame)
    if found != length:
        raise ValueError(f"a piece of {length} bytes claims to have {found}")
    return zstandard.ZstdDecompressor().decompress(frame, allow_extra_data=False)


def log_name(sequence: int) -> str:
    """The name of an object of the log."""
    return f"{LOG}/{sequence:020d}"


def log_sequence(name: str) -> int | None:
    """The sequence of a log object, from its name; None for other objects."""
    found = _LOG_NAME.fullmatch(name)
    return None if found is None else int(found[1])


def manifest_name(sequence: int, epoch: int) -> str:
    """A unique name for a copy of the manifest that a log object with this or a later sequence will announce."""
    return f"{MANIFESTS}/{sequence:020d}-{epoch:010d}-{secrets.token_hex(8)}.zst"


def manifest_sequence(name: str) -> int | None:
    """The first sequence of a log object that may announce the copy, from its name; None for other objects."""
    found = _MANIFEST_NAME.fullmatch(name)
    return None if found is None else int(found[1])


def packed(image: bytes) -> bytes:
    """Compress a copy of the manifest for the store."""
    return zstandard.ZstdCompressor(level=3).compress(image)


def unpacked(stored: bytes) -> bytes:
    """Decompress such a copy. Raises CorruptManifestError."""
    try:
        return zstandard.ZstdDecompressor().decompress(stored)
    except zstandard.ZstdError as error:
        raise CorruptManifestError(f"it cannot be decompressed: {error}") from None


def quarantined_object(number: int, checksum: int) -> str:
    """The name of the object of a batch that could not be sealed."""
    return f"{QUARANTINE}/{number:012d}-{checksum:016x}.arrow"
