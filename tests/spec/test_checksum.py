"""The checksum of the independent reader equals xxh3-64 of the package `xxhash`."""

from __future__ import annotations

import random

from xxh3 import xxh3
from xxhash import xxh3_64_intdigest


def test_all_lengths():
    """Checksums agree at all lengths to 2,200 bytes, over every change of method, and around stripes and blocks."""
    data = random.Random(5).randbytes(5000)
    for length in (*range(2201), 3071, 3072, 3073, 3135, 3136, 3137, 4095, 4096, 4097, 4160, 4161, 5000):
        assert xxh3(data[:length]) == xxh3_64_intdigest(data[:length]), length


def test_same_bytes():
    """Checksums agree for repeated bytes, for which all lanes are equal."""
    for byte in (b"\x00", b"\xff", b"\x80"):
        for length in (0, 1, 3, 4, 8, 9, 16, 17, 128, 129, 240, 241, 1024, 1025, 4096):
            assert xxh3(byte * length) == xxh3_64_intdigest(byte * length)
