"""Bytes cut short and flipped, and checks of the results of reading them."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from esformat.errors import CorruptSegmentError, UnsupportedVersionError

REFUSALS = (CorruptSegmentError, UnsupportedVersionError)


def cuts(stored: bytes) -> Iterator[bytes]:
    """The bytes cut at each length."""
    return (stored[:length] for length in range(len(stored)))


def flips(stored: bytes) -> Iterator[bytes]:
    """The bytes with each bit flipped in turn."""
    for place in range(8 * len(stored)):
        flipped = bytearray(stored)
        flipped[place // 8] ^= 1 << place % 8
        yield bytes(flipped)


def assert_refused(stored: bytes, read: Callable[[bytes], object]) -> None:
    """Assert that every cut and every flip is refused with one of REFUSALS."""
    for damaged in (*cuts(stored), *flips(stored)):
        try:
            found = read(damaged)
        except REFUSALS:
            continue
        raise AssertionError(f"{damaged.hex(' ')} was read as {found!r}, made from {stored.hex(' ')}")


def assert_refused_or_read(stored: bytes, read: Callable[[bytes], object]) -> None:
    """Assert that every cut and flip beneath a checksum is refused or read without another error; some are refused."""
    refused = 0
    for damaged in (*cuts(stored), *flips(stored)):
        try:
            read(damaged)
        except REFUSALS:
            refused += 1
    assert refused, "no damage was noticed"
    read(stored)
