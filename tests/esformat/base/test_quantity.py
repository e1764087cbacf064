"""Sizes and durations as text."""

from __future__ import annotations

import datetime as dt

import pytest

from esformat.base.quantity import parse_duration, parse_size

SIZES = [
    (0, 0), (1234567, 1234567), ("0", 0), ("1048576", 1 << 20), ("100B", 100), ("64k", 64_000), ("64KB", 64_000),
    ("64KiB", 65_536), ("256MiB", 256 << 20), ("256 mib", 256 << 20), ("1GB", 10**9), ("1.5 GiB", 3 << 29),
    (" 2TiB ", 2 << 40), ("0.25MB", 250_000), ("1Mi", 1 << 20), ("1PiB", 1 << 50), ("0.1m", 100_000), (".5k", 500),
    ("9007199254740993", 2**53 + 1),
]  # fmt: skip


@pytest.mark.parametrize(("text", "size"), SIZES, ids=str)
def test_sizes(text, size):
    """Sizes have decimal and binary units in any case, with or without a space; they are exact where a float is not."""
    assert parse_size(text) == size


NO_SIZES = ["", "MiB", "k", "-1", -1, "1,5GB", "1 XB", "1iB", "1kbb", "1 2", "ten", "1e9", "١MB", "9" * 40, None, 1.5]


@pytest.mark.parametrize("text", [*NO_SIZES, "9" * 17 + "G", True, b"1"], ids=str)
def test_no_sizes(text):
    """Text that is not a size is refused with a message."""
    with pytest.raises(ValueError, match="invalid size"):
        parse_size(text)


LENGTHS = [
    ("90s", 90_000_000), ("1h 30m", 5_400_000_000), ("1h30m", 5_400_000_000), (" 7d ", 604_800_000_000),
    ("250 ms", 250_000), ("1500ns", 1), ("2 weeks", 1_209_600_000_000), ("1w", 604_800_000_000), ("0s", 0),
    ("1M", 2_630_016_000_000), ("1m", 60_000_000), ("0.1s", 100_000),
    (dt.timedelta(days=1, microseconds=1), 86_400_000_001),
]  # fmt: skip


@pytest.mark.parametrize(("text", "length"), LENGTHS, ids=str)
def test_lengths_of_time(text, length):
    """Durations may have several parts; `m` for minutes and `M` for months differ in case."""
    assert parse_duration(text) == length


@pytest.mark.parametrize(
    "text",
    ["", "7", "soon", "1h-30m", "2 fortnights", "-1s", "1 S", "1h 30", "9" * 18 + "y", None, 5, dt.timedelta(-1)],
    ids=str,
)
def test_no_lengths_of_time(text):
    """Text that is not a duration is refused."""
    with pytest.raises(ValueError, match="invalid length of time"):
        parse_duration(text)
