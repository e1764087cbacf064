"""xxh3-64 with seed 0, the checksum of `.esdb` files, in plain Python: slow, but complete.

The algorithm depends on the length. It always ends with an "avalanche", after which every bit of the input affects
every bit of the output.
"""

from __future__ import annotations

import struct

M32, M64 = 2**32 - 1, 2**64 - 1
P32 = (0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D)
P64 = (0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5)
SECRET = bytes.fromhex(
    "b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671fcb79e64eccc0e578825ad07dccff7221"
    "b8084674f743248ee03590e6813a264c3c2852bb91c300cb88d0658b1b532ea371644897a20df94e3819ef46a9deacd8"
    "a8fa763fe39c343ff9dcbbc7c70b4f1d8a51e04bcdb45931c89f7ec9d9787364eac5ac8334d3ebc3c581a0fffa1363eb"
    "170ddd51b7f0da49d316552629d4689e2b16be587d47a1fc8ff8b8d17ad031ce45cb3a8f95160428afd7fbcabb4b407e"
)


def u32_at(data: bytes, at: int) -> int:
    return int.from_bytes(data[at : at + 4], "little")


def u64_at(data: bytes, at: int) -> int:
    return int.from_bytes(data[at : at + 8], "little")


def rotate(number: int, bits: int) -> int:
    return (number << bits | number >> (64 - bits)) & M64


def fold(a: int, b: int) -> int:
    """Multiply to 128 bits, and XOR the halves."""
    product = a * b
    return (product ^ product >> 64) & M64


def xxh3_avalanche(h: int) -> int:
    h = (h ^ h >> 37) * 0x165667919E3779F9 & M64
    return h ^ h >> 32


def xxh64_avalanche(h: int) -> int:
    h = (h ^ h >> 33) * P64[1] & M64
    h = (h ^ h >> 29) * P64[2] & M64
    return h ^ h >> 32


def xxh3(data: bytes) -> int:
    """Return the hash of some bytes."""
    if len(data) <= 16:
        return xxh3_short(data)
    if len(data) <= 240:
        return xxh3_medium(data)
    return xxh3_long(data)


def xxh3_short(data: bytes) -> int:
    size = len(data)
    if size == 0:
        return xxh64_avalanche(u64_at(SECRET, 56) ^ u64_at(SECRET, 64))
    if size <= 3:
        mixed = data[0] << 16 | data[size >> 1] << 24 | data[-1] | size << 8
        return xxh64_avalanche(mixed ^ u32_at(SECRET, 0) ^ u32_at(SECRET, 4))
    if size <= 8:
        h = (u32_at(data, size - 4) + (u32_at(data, 0) << 32)) ^ u64_at(SECRET, 8) ^ u64_at(SECRET, 16)
        h = (h ^ rotate(h, 49) ^ rotate(h, 24)) * 0x9FB21C651E98DF25 & M64
        h = (h ^ ((h >> 35) + size)) * 0x9FB21C651E98DF25 & M64
        return h ^ h >> 28
    low = u64_at(data, 0) ^ u64_at(SECRET, 24) ^ u64_at(SECRET, 32)
    high = u64_at(data, size - 8) ^ u64_at(SECRET, 40) ^ u64_at(SECRET, 48)
    swapped = int.from_bytes(low.to_bytes(8, "little"), "big")
    return xxh3_avalanche((size + swapped + high + fold(low, high)) & M64)


def xxh3_medium(data: bytes) -> int:
    size = len(data)

    def mix(at: int, key: int) -> int:
        return fold(u64_at(data, at) ^ u64_at(SECRET, key), u64_at(data, at + 8) ^ u64_at(SECRET, key + 8))

    h = size * P64[0]
    if size <= 128:  # pairs of 16 bytes, from both ends towards the middle
        for pair in range((size - 1) // 32 + 1):
            h += mix(16 * pair, 32 * pair) + mix(size - 16 * (pair + 1), 32 * pair + 16)
        return xxh3_avalanche(h & M64)
    for piece in range(8):
        h += mix(16 * piece, 16 * piece)
    h = xxh3_avalanche(h & M64)
    for piece in range(8, size // 16):
        h += mix(16 * piece, 16 * (piece - 8) + 3)
    return xxh3_avalanche((h + mix(size - 16, 119)) & M64)


def xxh3_long(data: bytes) -> int:
    """Hash over 240 bytes: eight lanes accumulate stripes of 64 bytes, and are scrambled after every 16 stripes."""
    size = len(data)
    lanes = [P32[2], *P64[:4], P32[1], P64[4], P32[0]]
    keys = [struct.unpack_from("<8Q", SECRET, at) for at in range(0, 129, 8)]

    def take_in(at: int, key: tuple[int, ...]) -> None:
        for lane, (number, secret) in enumerate(zip(struct.unpack_from("<8Q", data, at), key, strict=True)):
            mixed = number ^ secret
            lanes[lane ^ 1] += number
            lanes[lane] += (mixed & M32) * (mixed >> 32)

    for stripe in range((size - 1) // 64):
        take_in(64 * stripe, keys[stripe % 16])
        if stripe % 16 == 15:
            for lane, secret in enumerate(keys[16]):
                h = lanes[lane] & M64
                lanes[lane] = (h ^ h >> 47 ^ secret) * P32[0] & M64
    take_in(size - 64, struct.unpack_from("<8Q", SECRET, 121))
    h = size * P64[0]
    for lane in range(0, 8, 2):
        a, b = lanes[lane] & M64, lanes[lane + 1] & M64
        h += fold(a ^ u64_at(SECRET, 11 + 8 * lane), b ^ u64_at(SECRET, 19 + 8 * lane))
    return xxh3_avalanche(h & M64)
