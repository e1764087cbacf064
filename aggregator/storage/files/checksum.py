"""The checksum of log frames and segment files: xxh3-64."""

from __future__ import annotations

from xxhash import xxh3_64 as hasher64
from xxhash import xxh3_64_intdigest as checksum64

__all__ = ["checksum64", "hasher64"]
