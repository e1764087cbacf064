"""The checksum of sorted tables: CRC-32C, masked as LevelDB does. Owns the library that computes it."""

from __future__ import annotations

from esformat.errors import ChecksumMismatchError

try:
    import google_crc32c
except ModuleNotFoundError as error:
    if error.name != "google_crc32c":
        raise
    raise ModuleNotFoundError(
        "files of the Go ESDB need a library: pip install 'esformat[customerio]'", name=error.name
    ) from None

_MASK_DELTA = 0xA282EAD8  # LevelDB's: a checksum of bytes that hold checksums would otherwise be weak


def masked_crc(data: bytes) -> int:
    """The masked CRC-32C of `data`."""
    value: int = google_crc32c.value(data)
    return ((value >> 15 | value << 17) + _MASK_DELTA) & 0xFFFFFFFF


def check_crc(data: bytes, stored: int, offset: int) -> None:
    """Raise ChecksumMismatchError unless `data` has that checksum; `offset` is its place in the file."""
    found = masked_crc(data)
    if found != stored:
        raise ChecksumMismatchError(
            f"a block of a sorted table has checksum {found:08x}, expected {stored:08x}", offset=offset
        )
