"""Packed integers are read back and small; bytes that no writer makes are refused."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from damage import assert_refused_or_read
from effort import examples
from event_strategies import HIGHEST, LOWEST
from hypothesis import given
from hypothesis import strategies as st

from esformat.errors import CorruptSegmentError
from esformat.format.codec import Codec, Decompressor, make_compressor
from esformat.format.packing import (
    BITS,
    SPARE_BITS,
    best_raw,
    decode_ints,
    decode_many,
    encode_int_slices,
    encode_ints,
    encode_planes,
    plane_bytes,
    read_pack,
)

PLAIN = Decompressor()
NONE = make_compressor(Codec.NONE)
ZSTD = make_compressor(Codec.ZSTD)

PACKS = [  # numbers, the writer's bytes, their planes
    ([], "00 00 00 00 00000000", None),
    ([0, 0], "00 00 00 00 00000000", "00 00 00 00 00000000"),
    ([7, 7, 7], "00 00 08 00 00000000 07000000 00000000", "00 00 08 00 00000000 07000000 00000000"),
    ([1, 300, 5], "09 ff 00 00 04000000 01581600", "02 00 00 00 06000000 012c05 000100"),
    ([300, 301, 555], "0a ff 00 00 04000000 2cb5b422", "01 00 08 00 03000000 2c010000 00000000 0001ff"),
    ([-1, 1], "02 ff 08 00 01000000 ffffffff ffffffff 08", "01 00 08 00 02000000 ffffffff ffffffff 0002"),
    (
        [LOWEST, HIGHEST],
        "40 ff 08 00 10000000 00000000 00000080" + " 00" * 8 + " ff" * 8,
        "08 00 08 00 10000000 00000000 00000080" + " 00ff" * 8,
    ),
]


@pytest.mark.parametrize(("numbers", "stored", "planes"), PACKS, ids=lambda x: str(x)[:12])
def test_pack_bytes(numbers, stored, planes):
    """Numbers have the expected bytes, packed and as planes, and both are read back."""
    assert encode_ints(np.array(numbers, np.int64), NONE).hex() == stored.replace(" ", "")
    assert unpacked(bytes.fromhex(stored), len(numbers)) == numbers
    if planes is not None:
        assert encode_planes(np.array(numbers, np.int64), NONE) == bytes.fromhex(planes)
        assert unpacked(bytes.fromhex(planes), len(numbers)) == numbers


def unpacked(stored: bytes, count: int) -> list[int]:
    """The numbers of a whole pack."""
    body = memoryview(stored)
    pack = read_pack(body, 0, count)
    assert pack.end == len(stored)
    return decode_ints(body, pack, PLAIN).tolist()


int64s = st.lists(
    st.one_of(st.integers(LOWEST, HIGHEST), st.integers(-3, 3), st.sampled_from([255, 256, 65535, LOWEST, HIGHEST])),
    max_size=40,
)


@examples(200)
@given(int64s, st.integers(0, 8), st.sampled_from(Codec), st.sampled_from([0.0, 1.0, 99.0]), st.data())
def test_any_numbers_come_back(numbers, raw, codec, bits_cost, data):
    """Any numbers are read back: all or some, several packs at a time, as bits and as planes with any number raw."""
    stored = encode_ints(np.array(numbers, np.int64), make_compressor(codec), raw=raw, bits_cost=bits_cost)
    body = memoryview(b"before" + stored + b"after")
    pack = read_pack(body, 6, len(numbers))
    assert pack.end == 6 + len(stored)
    assert decode_ints(body, pack, PLAIN).tolist() == numbers
    low = data.draw(st.integers(0, len(numbers)))
    high = data.draw(st.integers(low, len(numbers)))
    assert decode_ints(body, pack, PLAIN, low, high).tolist() == numbers[low:high]


@examples(100)
@given(st.lists(int64s, min_size=1, max_size=6), st.sampled_from(Codec), st.integers(0, 8))
def test_many_packs_at_a_time(runs, codec, raw):
    """Each run is packed as if alone, and decoding several packs yields their numbers in order."""
    compressor = make_compressor(codec)
    bounds = [0, *np.cumsum([len(run) for run in runs]).tolist()]
    together = encode_int_slices(np.array([n for run in runs for n in run], np.int64), bounds, compressor, raw=raw)
    assert together == [encode_ints(np.array(run, np.int64), compressor, raw=raw) for run in runs]
    parts = [
        (memoryview(pack), read_pack(memoryview(pack), 0, len(run))) for pack, run in zip(together, runs, strict=True)
    ]
    assert decode_many(parts, PLAIN).tolist() == [n for run in runs for n in run]


@examples(100)
@given(st.lists(st.lists(st.integers(0, 255), min_size=1, max_size=9), min_size=1, max_size=4), st.integers(0, 3))
def test_bytes_as_planes_or_bits(runs, wide):
    """Numbers below 256 are returned as bytes if all packs have one plane, otherwise as int64."""
    arrays = [np.array(run, np.int64) for run in runs]
    bits = [
        encode_ints(run, NONE, bits_cost=99) if n < wide else encode_planes(run, NONE) for n, run in enumerate(arrays)
    ]
    parts = [(memoryview(pack), read_pack(memoryview(pack), 0, len(run))) for pack, run in zip(bits, runs, strict=True)]
    found = decode_many(parts, PLAIN)
    narrow = all(pack.width == 1 and not pack.base and not pack.bits for _, pack in parts)
    assert found.dtype == (np.uint8 if narrow else np.int64)
    assert found.tolist() == [n for run in runs for n in run]
    for (body, pack), run in zip(parts, runs, strict=True):
        if pack.width == 1:
            assert [n + pack.base for n in plane_bytes(body, pack, PLAIN)] == run


@pytest.mark.parametrize(("bits", "skew", "cost", "taken"), [
    (3, 0.9, 1.0, False), (3, 0.6, 1.01, True), (3, 0.9, 1.01, False), (3, 0.9, 9.0, True),
    (12, 0.6, 1.01, False), (12, 0.6, 9.0, True), (12, 0.0, 1.0, True),
])  # fmt: skip
def test_when_bits_are_taken(bits, skew, cost, taken):
    """Bits are chosen if they cost no more than allowed, for small numbers even if they are larger than planes."""
    rnd = np.random.default_rng(4)
    numbers = np.where(rnd.random(4096) < skew, 1, rnd.integers(0, 1 << bits, 4096))
    stored = encode_ints(numbers, make_compressor(Codec.ZSTD), bits_cost=cost)
    assert bool(read_pack(memoryview(stored), 0, 4096).bits) == taken
    in_bits, planes = 8 + bits * 512, len(encode_planes(numbers, make_compressor(Codec.ZSTD)))
    assert (in_bits <= cost * planes or (cost > 1 and in_bits <= planes + SPARE_BITS * 512)) == taken


@pytest.mark.parametrize("bits", range(1, 65))
def test_every_width_of_bits(bits):
    """Numbers of every width are read at any position, even if their bits span nine bytes."""
    top = (1 << bits) - 1
    unsigned = [0, top, top // 3, 1 % (top + 1)] * 5
    numbers = [number - (1 << 64) if number >> 63 else number for number in unsigned]
    array = np.array(unsigned, np.uint64).view(np.int64)
    stored = memoryview(encode_ints(array, NONE, bits_cost=99))
    pack = read_pack(stored, 0, 20)
    assert pack.bits == bits or bits == 64  # of signed numbers, which a base makes smaller
    for low in range(20):
        assert decode_ints(stored, pack, PLAIN, low).tolist() == numbers[low:]


@pytest.mark.parametrize("codecs", [(Codec.NONE, Codec.ZSTD), (Codec.ZSTD, Codec.LZ4, Codec.ZSTD)], ids=str)
def test_packs_of_different_codecs_decode_together(codecs):
    """Packs of different codecs, as in merged files, are decoded together."""
    numbers = np.arange(1000) % 7
    stored = [memoryview(encode_planes(numbers, make_compressor(codec))) for codec in codecs]
    parts = [(body, read_pack(body, 0, 1000)) for body in stored]
    assert [pack.codec for _, pack in parts] == list(codecs)
    assert decode_many(parts, PLAIN).tolist() == numbers.tolist() * len(codecs)


@pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.uint16, np.int16, np.uint32, np.int32, np.int64, np.uint64])
def test_every_integer_type(dtype):
    """The limits of each integer type are preserved; uint64 is read as the int64 with the same bits."""
    ends = np.array([np.iinfo(dtype).min, 0, np.iinfo(dtype).max], dtype)
    assert unpacked(encode_ints(ends, ZSTD), 3) == ends.astype(np.int64).tolist()


def test_planes_stand_lowest_first():
    """Planes are ordered from the lowest: byte k of number i is at k times the count plus i."""
    stored = memoryview(encode_planes(np.array([0x0102, 0x0304]), ZSTD, raw=1))
    assert plane_bytes(stored, read_pack(stored, 0, 2), PLAIN) == b"\x02\x04\x01\x03"


def test_bytes_that_do_not_compress_are_stored():
    """Bytes that compression would enlarge are stored uncompressed."""
    noise = np.random.default_rng(2).integers(0, 256, 100)
    stored = encode_planes(noise, ZSTD)
    assert stored[3] == Codec.NONE
    assert len(stored) == 8 + 100


@pytest.mark.parametrize("noisy_planes", [0, 1, 2])
def test_best_raw_is_the_smallest(noisy_planes):
    """The best number of raw planes gives the smallest pack; planes of noise stay raw."""
    rng = np.random.default_rng(3)
    numbers = np.repeat(np.arange(512) // 100, 2) << (8 * noisy_planes)
    if noisy_planes:
        numbers += rng.integers(0, 1 << 8 * noisy_planes, 1024)
    sizes = [len(encode_planes(numbers, ZSTD, raw=raw)) for raw in range(9)]
    assert sizes[best_raw(numbers, ZSTD)] == min(sizes)
    assert best_raw(numbers, ZSTD) >= noisy_planes


WRONG_HEADERS = [
    ("width of 9", (9, 0, 0, 0, 0), b""),
    ("more raw planes than planes", (1, 2, 0, 0, 0), bytes(9)),
    ("base of 4 bytes", (1, 0, 4, 0, 1), bytes(9)),
    ("planes beyond the body", (1, 0, 0, 0, 99), bytes(9)),
    ("raw planes beyond the body", (8, 8, 0, 0, 0), bytes(9)),
    ("numbers of no bits", (0, BITS, 0, 0, 0), bytes(9)),
    ("numbers of 65 bits", (65, BITS, 0, 0, 33), bytes(40)),
    ("bits that are compressed", (2, BITS, 0, 1, 1), bytes(9)),
    ("fewer bits than numbers", (3, BITS, 0, 0, 1), bytes(9)),
    ("more bits than numbers", (1, BITS, 0, 0, 2), bytes(9)),
    ("bits beyond the body", (64, BITS, 0, 0, 32), bytes(31)),
]


@pytest.mark.parametrize(
    ("head", "rest"), [case[1:] for case in WRONG_HEADERS], ids=[case[0] for case in WRONG_HEADERS]
)
def test_wrong_headers(head, rest):
    """A header that no writer makes is refused when it is read."""
    with pytest.raises(CorruptSegmentError, match="packed numbers"):
        read_pack(memoryview(struct.pack("<4BI", *head) + rest), 0, 4)


def test_planes_of_another_size():
    """Planes with more or fewer bytes than the count requires are refused."""
    stored = memoryview(encode_planes(np.arange(100) % 5, ZSTD))
    for count in (99, 101):
        for decode in (
            lambda pack: decode_ints(stored, pack, PLAIN),
            lambda pack: decode_many([(stored, pack)], PLAIN),
        ):
            with pytest.raises(CorruptSegmentError):
                decode(read_pack(stored, 0, count))


@pytest.mark.parametrize("raw", [0, 1, 8, BITS])
@pytest.mark.parametrize("codec", Codec)
def test_damaged_packs(codec, raw):
    """A pack that is cut or flipped is refused or has other numbers, never another error."""
    numbers = np.array([1000, 1001, 70000, 1000, 1000, 1000, 1000, 1000])
    plain = make_compressor(codec)
    stored = encode_ints(numbers, plain, bits_cost=99) if raw == BITS else encode_planes(numbers, plain, raw=raw)

    def read(damaged: bytes) -> None:
        body = memoryview(damaged)
        pack = read_pack(body, 0, len(numbers))
        assert len(decode_ints(body, pack, PLAIN)) == len(numbers)
        assert len(decode_many([(body, pack)], PLAIN)) == len(numbers)

    assert_refused_or_read(stored, read)
