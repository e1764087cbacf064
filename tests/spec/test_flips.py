"""Reliability promises R11 and R12: every bit of ten small files is flipped, and they are cut to every length.

Every query of a damaged file is refused or has the result of the whole file, and `verify` reports every flip.

`make test-all` takes a fixed selection: a bit of every third byte, every length, 60 flips of larger files; `make test`
takes a fourteenth of it. `ESFORMAT_ALL_FLIPS=1` takes all, and 100,000 flips of the larger files, in about an hour on
one core.
"""

from __future__ import annotations

import os
import random
from functools import cache

import make_damaged
import make_golden
import pyarrow as pa
import pytest
from effort import share_of
from spec_questions import Sound

import esformat

ALL = bool(os.environ.get("ESFORMAT_ALL_FLIPS"))
FLIPS_OF_LARGE_FILES = 100_000 if ALL else len(share_of(range(60), 5))
LARGE = ("zstd-dictionary", "indexes", "lz4", "uncompressed")
T0 = 1_403_534_919_000_000


def _write(path, events, **options) -> bytes:
    with esformat.create(path, **options) as writer:
        if isinstance(events, pa.Table):
            writer.add_table(events)
        else:
            for space, data, timestamp, grouping, indexes in events:
                writer.add(space, data, timestamp=timestamp, grouping=grouping, indexes=indexes)
    return path.read_bytes()


def _events(count: int) -> list[tuple]:
    rnd = random.Random(count)
    return [
        (f"s{rnd.randrange(4)}", b"%d" % rnd.randrange(10**6), T0 + rnd.randrange(9999), rnd.choice("ab"), {})
        for _ in range(count)
    ]


def _indexed(count: int) -> list[tuple]:
    return [(*event[:4], {"type": random.Random(i).choice("xyz")}) for i, event in enumerate(_events(count))]


TYPES = pa.table(
    {
        "space": ["a", "a", "b"],
        "timestamp": pa.array([3, -1, 2], pa.int64()),
        "flag": [True, None, False],
        "price": pa.array([None, 1, 2], pa.decimal128(9, 2)),
        "tags": [["x", None], [], None],
    }
)

SMALL = {
    "no events": lambda path: _write(path, []),
    "one event": lambda path: _write(path, [("s", b"payload", T0, None, {})]),
    "one event, index": lambda path: _write(path, [("s", b"payload", T0, None, {"type": "x"})], indexes=["type"]),
    "zstd": lambda path: _write(path, _events(20)),
    "zstd, index": lambda path: _write(path, _indexed(12), indexes=["type"]),
    "lz4": lambda path: _write(path, _events(20), codec="lz4"),
    "uncompressed": lambda path: _write(path, _events(20), codec="none"),
    "uncompressed, index": lambda path: _write(path, _indexed(12), codec="none", indexes=["type"]),
    "binary keys": lambda path: _write(path, [(b"\x00", b"1", 1, b"\xff", {}), (b"", b"", 2, b"", {})], keys="binary"),
    "types": lambda path: _write(path, TYPES, codec="none"),
}


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """The ten small files, made once."""
    folder = tmp_path_factory.mktemp("small")
    return {name: Sound(make(folder / f"{i}.esdb")) for i, (name, make) in enumerate(SMALL.items())}


@cache
def _large(name: str) -> Sound:
    return Sound((make_golden.FOLDER / f"{name}.esdb").read_bytes())


def _bits(size: int) -> list[int]:
    """The bits to flip: all, or one in every third byte that varies from byte to byte, or a share of those."""
    return list(range(8 * size)) if ALL else share_of((8 * at + at * 5 % 8 for at in range(0, size, 3)), 14)


def test_there_are_ten_small_files(small):
    """The number of files is the promised one; they are small, because each bit costs time."""
    assert len(small) == 10
    assert all(len(sound.data) < 2500 for sound in small.values())


@pytest.mark.slow
@pytest.mark.parametrize("name", SMALL)
def test_every_bit(small, name):
    """A flipped bit is detected or changes no result."""
    sound = small[name]
    bits = _bits(len(sound.data))
    unnoticed = [bit >> 3 for bit in bits if not sound.errors_of(make_damaged.flip(sound.data, bit))]
    assert _unprotected(sound.data, unnoticed) == []


def _unprotected(data: bytes, offsets: list[int]) -> list[int]:
    """The bytes whose damage no query noticed, without those that the specification excludes: there should be none."""
    unread = make_damaged.blocks_of(data, make_damaged.METADATA)[:1]  # the spare copy
    unread += make_damaged.blocks_of(data, make_damaged.FILTER)  # without it the directory is used
    unread += make_damaged.blocks_of(data, make_damaged.DICTIONARY)  # each of two copies replaces the other
    ranges = [range(make_damaged.HEADER_BYTES), *(range(block.offset, block.end) for block in unread)]
    ranges += [make_damaged.keys_of(data, block) for block in make_damaged.blocks_of(data, make_damaged.DATA)]
    return [offset for offset in offsets if not any(offset in named for named in ranges)]


@pytest.mark.slow
@pytest.mark.parametrize("name", SMALL)
def test_verify_reports_every_bit(small, name):
    """`verify` reports exactly one problem for one flipped bit, wherever it is."""
    data = small[name].data
    for bit in _bits(len(data)):
        report = esformat.verify(esformat.BytesSource(make_damaged.flip(data, bit)))
        assert len(report.problems) == 1, (bit, *map(str, report.problems))


@pytest.mark.slow
@pytest.mark.parametrize("name", SMALL)
def test_every_truncation(small, name):
    """A file cut at any length is refused with a clear error; `verify` reports it and does not fail."""
    data = small[name].data
    for size in share_of(range(len(data)), 1 if ALL else 14):
        with pytest.raises(esformat.CorruptSegmentError) as caught:
            esformat.open(esformat.BytesSource(data[:size], "cut.esdb"))
        assert str(caught.value).startswith("cut.esdb: ")
        assert not esformat.verify(esformat.BytesSource(data[:size])).ok


@pytest.mark.slow
@pytest.mark.parametrize("name", LARGE)
def test_flips_of_large_files(name):
    """After a random flip in a larger file, every query that reads the damaged block is refused; all others have the
    same result as before.
    """
    sound = _large(name)
    rnd = random.Random(name)
    bits = [rnd.randrange(8 * len(sound.data)) for _ in range(FLIPS_OF_LARGE_FILES // len(LARGE))]
    unnoticed = [bit >> 3 for bit in bits if not sound.errors_of(make_damaged.flip(sound.data, bit))]
    assert _unprotected(sound.data, unnoticed) == []
