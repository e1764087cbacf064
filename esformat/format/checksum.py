"""The one checksum of the format: xxh3-64, seed 0 (xxHash specification, version 0.1.1)."""

from __future__ import annotations

from xxhash import xxh3_64_intdigest as checksum64

__all__ = ["SHORT_MASK", "checksum64"]

SHORT_MASK = 0xFFFF_FFFF
"""A handle keeps the low 32 bits of a block's checksum: enough to detect that it points to the wrong block."""
