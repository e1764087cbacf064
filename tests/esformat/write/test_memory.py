"""Sizes as text, and a budget's shares."""

from __future__ import annotations

import pytest

import esformat
from esformat.errors import UsageError
from esformat.write.memory import DEFAULT_MEMORY, Budget, parse_bytes

SIZES = [
    (0, 0), (1234567, 1234567), ("1048576", 1 << 20), ("100B", 100), ("64k", 64_000), ("64KB", 64_000),
    ("64KiB", 65_536), ("256MiB", 256 << 20), ("256 mib", 256 << 20), ("1GB", 10**9), ("1.5 GiB", 3 << 29),
    (" 2TiB ", 2 << 40), ("0.25MB", 250_000), ("1Mi", 1 << 20),
]  # fmt: skip


@pytest.mark.parametrize(("text", "size"), SIZES, ids=str)
def test_sizes(text, size):
    """Decimal and binary units, in any case, with or without a space."""
    assert parse_bytes(text) == size


@pytest.mark.parametrize(
    "text", ["", "MiB", "-1", "1,5GB", "1 XB", "1iB", "ten", "1e9", "١MB", None, 1.5, True, b"1"], ids=str
)
def test_no_sizes(text):
    """Each is refused, with examples of what would do."""
    with pytest.raises(UsageError, match='is not a size; give bytes, or text like "256MiB"'):
        parse_bytes(text)


def test_shares_fit():
    """What is alive at one time is less than the whole: three steps, what is encoded, a chunk of each run, postings."""
    assert Budget.of(None).memory == DEFAULT_MEMORY
    for memory in ("16MiB", "256MiB", "1GiB", "64GiB"):
        budget = Budget.of(memory)
        assert budget.held < budget.memory
        assert 3 * budget.step + budget.flight + 128 * budget.chunk + budget.postings <= budget.memory


@pytest.mark.parametrize("memory", [0, -5, "1023KiB"], ids=str)
def test_too_little(tmp_path, memory):
    """Refused before anything is there."""
    with pytest.raises(UsageError, match="is too little; give at least 1 MiB"):
        esformat.create(tmp_path / "a.esdb", memory=memory)
    assert list(tmp_path.iterdir()) == []
