"""The checksum of sorted tables: CRC-32C, masked as in LevelDB. Wraps the library that computes it."""

from __future__ import annotations

from typing import Any

from esformat.errors import ChecksumMismatchError, UnsupportedVersionError

_MASK_DELTA = 0xA282EAD8  # LevelDB's; without it, checksums of bytes that contain checksums would be weak


def _crc32c() -> Any:
    """Import the library on first use: conversions of other files do not need it."""
    try:
        import google_crc32c
    except ModuleNotFoundError:
        hint = 'pip install "esformat[customerio]"'
        raise UnsupportedVersionError("files of the Go ESDB need google-crc32c", hint=hint) from None
    return google_crc32c


def masked_crc(data: bytes) -> int:
    """Return the masked CRC-32C of `data`. Raises UnsupportedVersionError if the library is not installed."""
    value: int = _crc32c().value(data)
    return ((value >> 15 | value << 17) + _MASK_DELTA) & 0xFFFFFFFF


def check_crc(data: bytes, stored: int, offset: int) -> None:
    """Raise ChecksumMismatchError unless `data` has the checksum `stored`; `offset` is its position in the file."""
    found = masked_crc(data)
    if found != stored:
        raise ChecksumMismatchError(
            f"a block of a sorted table has checksum {found:08x}, expected {stored:08x}", offset=offset
        )
