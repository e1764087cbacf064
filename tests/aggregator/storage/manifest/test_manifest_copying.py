"""Copies of a manifest by blocks: the same file again, from any earlier copy or none."""

from __future__ import annotations

import contextlib

import pytest

import aggregator
from aggregator.errors import CorruptManifestError
from aggregator.storage.files.checksum import checksum64
from aggregator.storage.manifest import Manifest
from aggregator.storage.manifest.copying import BLOCK_BYTES, block_sums, differing, put_together, take_copy


def sent(path, known):
    """What is transferred for a copy: pieces, the number of blocks, and the checksum of their sums."""
    sums = block_sums(path)
    return list(differing(path, sums, known)), len(sums) // 8, checksum64(sums)


def test_only_what_changed_goes_over(tmp_path):
    """Only changed blocks are transferred; the copy opens as a manifest without any other file."""
    with aggregator.open(tmp_path / "data") as catalog:
        for number in range(100):
            catalog.create_topic(f"topic {number}")
        manifest = tmp_path / "data" / "manifest.sqlite"
        take_copy(manifest, tmp_path / "first")
        catalog.create_topic("one more")
        take_copy(manifest, tmp_path / "second")
    whole, blocks, check = sent(tmp_path / "second", b"")
    assert len(whole) == blocks
    known = block_sums(tmp_path / "first")
    pieces, blocks, check = sent(tmp_path / "second", known)
    assert len(pieces) < blocks / 3
    cut = [b"".join(pieces)[at : at + 1000] for at in range(0, len(b"".join(pieces)), 1000)]
    with (tmp_path / "made").open("w+b") as file:
        assert put_together(file, tmp_path / "first", cut, blocks, check) == block_sums(tmp_path / "second")
    assert (tmp_path / "made").read_bytes() == (tmp_path / "second").read_bytes()
    with contextlib.closing(Manifest(tmp_path / "made", read_only=True)) as copy:
        assert [topic.name for topic in copy.load().topics][-1] == "one more"
    assert not list(tmp_path.glob("made-*"))


@pytest.mark.parametrize("damage", ["flipped", "cut", "missing", "elsewhere"])
def test_what_is_not_the_manifest_is_refused(tmp_path, damage):
    with aggregator.open(tmp_path / "data"):
        take_copy(tmp_path / "data" / "manifest.sqlite", tmp_path / "copy")
    pieces, blocks, check = sent(tmp_path / "copy", b"")
    if damage == "flipped":
        pieces[1] = pieces[1][:100] + bytes([pieces[1][100] ^ 1]) + pieces[1][101:]
    elif damage == "cut":
        pieces[-1] = pieces[-1][:-1]
    elif damage == "missing":
        del pieces[0]
    else:
        pieces[0] = blocks.to_bytes(8, "little") + pieces[0][8:]
    with (tmp_path / "made").open("w+b") as file, pytest.raises(CorruptManifestError):
        put_together(file, None, pieces, blocks, check)
    assert all(len(piece) <= 8 + BLOCK_BYTES for piece in pieces)
