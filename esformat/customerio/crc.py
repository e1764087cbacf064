"""The checksum of sorted tables: CRC-32C, masked as LevelDB does. Owns the library that computes it."""

from __future__ import annotations

from typing import Any

from esformat.errors import ChecksumMismatchError, UnsupportedVersionError

_MASK_DELTA = 0xA282EAD8  # LevelDB's: a checksum of bytes that hold checksums would otherwise be weak


def _crc32c() -> Any:
    """The library, imported when a checksum is needed: conversions of other files do without."""
    try:
        import google_crc32c
    except ModuleNotFoundError:
        hint = 'pip install "esformat[customerio]"'
        raise UnsupportedVersionError("files of the Go ESDB need google-crc32c", hint=hint) from None
    return google_crc32c


def masked_crc(data: bytes) -> int:
    """The masked CRC-32C of `data`. Raises UnsupportedVersionError where the library is not installed."""
    value: int = _crc32c().value(data)
    return ((value >> 15 | value << 17) + _MASK_DELTA) & 0xFFFFFFFF


def check_crc(data: bytes, stored: int, offset: int) -> None:
    """Raise ChecksumMismatchError unless `data` has that checksum; `offset` is its place in the file."""
    found = masked_crc(data)
    if found != stored:
        raise ChecksumMismatchError(
            f"a block of a sorted table has checksum {found:08x}, expected {stored:08x}", offset=offset
        )
