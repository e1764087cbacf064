"""An independent reader of `.esdb` files, written from `format.md` alone and to be read beside it.

    python read_esdb.py FILE               every event, one JSON object a line, in file order
    python read_esdb.py FILE --facts       what is in the file, counted; compared with the file's own statistics
    python read_esdb.py FILE --index NAME  every value of an index with the rows that have it

It needs Python and the package `zstandard`, shares no code with `esformat`, reads the whole file into memory and verifies all it uses;
"§ 9" in a comment is section 9 of `format.md`. Where a rule is broken it raises `Corrupt`; where the file is newer, `TooNew`.

How a value looks in the output: text, numbers, booleans and nulls as in JSON; bytes as `{"hex": "00ff"}`; decimals and floats that are not
finite as text; dates, times and durations as the whole number of their unit; an interval as [months, days, nanoseconds]; a list as an
array, a struct as an object, a map as an array of [key, value] pairs.
"""

from __future__ import annotations

import argparse
import json
import struct
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

import zstandard

Json = Any  # what `json.loads` gives; types are its objects as § 15 describes them


class Corrupt(Exception):
    """The bytes break a rule of the format."""


class TooNew(Exception):
    """The bytes use something that version 1 does not know."""


def require(holds: bool, message: str) -> None:
    if not holds:
        raise Corrupt(message)


# ── The checksum: xxh3-64 with seed 0 ────────────────────────────────────────────────────────────────────────────────────────────────
# Four ways by length. All end in an "avalanche", which lets every bit of the input reach every bit of the output.

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
    """Multiply to 128 bits and lay the halves over each other."""
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
    """Eight lanes take in stripes of 64 bytes; after each 16 stripes they are scrambled."""
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


# ── Codecs (§ 7) ─────────────────────────────────────────────────────────────────────────────────────────────────────────────────────

NONE, ZSTD, LZ4 = 0, 1, 2
MOST_FRAME_BYTES = 2**31 - 1


def decompress(codec: int, frame: bytes, size: int, dictionary: zstandard.ZstdCompressionDict | None = None) -> bytes:
    """Give back the `size` bytes of one frame; any other size is corrupt."""
    require(size <= MOST_FRAME_BYTES, f"a frame claims {size} bytes")
    if codec == NONE:
        data = frame
    elif codec == ZSTD:
        data = zstd_frame(frame, size, dictionary)
    elif codec == LZ4:
        data = lz4_block(frame, size)
    else:
        raise TooNew(f"codec {codec} is unknown")
    require(len(data) == size, f"a frame holds {len(data)} bytes where {size} are expected")
    return data


def zstd_frame(frame: bytes, size: int, dictionary: zstandard.ZstdCompressionDict | None) -> bytes:
    try:
        facts = zstandard.get_frame_parameters(frame)
        require(facts.content_size == size, f"a zstd frame claims {facts.content_size} bytes where {size} are expected")
        require(not facts.has_checksum and not facts.dict_id, "a zstd frame has a checksum or a dictionary id")
        single_segment = bool(frame[4] & 0x20)
        require(single_segment or facts.window_size <= 8 << 20, f"a zstd frame needs a window of {facts.window_size} bytes")
        return zstandard.ZstdDecompressor(dict_data=dictionary).decompress(frame, allow_extra_data=False)
    except zstandard.ZstdError as error:
        raise Corrupt(f"zstd: {error}") from error


def lz4_block(block: bytes, size: int) -> bytes:
    """Undo LZ4: literals, then a copy of what was written `distance` bytes ago, again and again; literals end it."""
    out, at = bytearray(), 0

    def number(nibble: int) -> int:
        """A length of 15 or more goes on in bytes, until one is not 255."""
        nonlocal at
        total = nibble
        more = nibble == 15
        while more:
            total += block[at]
            more = block[at] == 255
            at += 1
        return total

    try:
        while True:
            token = block[at]
            at += 1
            literals = number(token >> 4)
            require(at + literals <= len(block), "lz4: literals are cut short")
            out += block[at : at + literals]
            at += literals
            if at == len(block):
                return bytes(out)
            distance = block[at] | block[at + 1] << 8
            at += 2
            length = number(token & 15) + 4
            require(0 < distance <= len(out), f"lz4: a copy from {distance} bytes ago")
            require(len(out) + length <= size, "lz4: more bytes than expected")
            pattern = bytes(out[-distance:])
            out += (pattern * (length // distance + 1))[:length]
    except IndexError as error:
        raise Corrupt("lz4: the block is cut short") from error


# ── Reading on through a body ────────────────────────────────────────────────────────────────────────────────────────────────────────


class Cursor:
    """A place in some bytes that moves on with what is read."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def take(self, size: int) -> bytes:
        require(size <= len(self.data) - self.at, f"cut short: {size} bytes wanted, {len(self.data) - self.at} are left")
        self.at += size
        return self.data[self.at - size : self.at]

    def fields(self, layout: str) -> tuple[Any, ...]:
        return struct.unpack("<" + layout, self.take(struct.calcsize("<" + layout)))

    def end(self) -> None:
        require(self.at == len(self.data), f"{len(self.data) - self.at} bytes are left over")


def signed(number: int, bits: int = 64) -> int:
    """Read the low `bits` bits as two's complement."""
    number &= (1 << bits) - 1
    return number - (1 << bits) if number >> (bits - 1) else number


# ── Packed integers (§ 8) ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def read_pack(cursor: Cursor, count: int, wide: int = 0) -> list[int]:
    """Read `count` numbers; with `wide`, unsigned ones of so many bytes."""
    width, raw, base_length, codec, stored = cursor.fields("BBBBI")
    if not count:
        require(not any((width, raw, base_length, codec, stored)), "a pack of no numbers is not eight zero bytes")
        return []
    require(width == wide if wide else width <= 8, f"a pack of width {width}")
    require(raw <= width, f"{raw} raw planes of {width}")
    require(base_length in ((0,) if wide else (0, 8)), f"a base of {base_length} bytes")
    base = cursor.fields("q")[0] if base_length else 0
    planes = cursor.take(raw * count)
    if raw < width:
        planes += decompress(codec, cursor.take(stored), (width - raw) * count)
    else:
        require(stored == 0 and codec == NONE, "a pack without stored planes has some")
    if not width:
        return [base] * count
    # Plane k holds byte k of every number, so the bytes of number i stand `count` apart.
    numbers = [int.from_bytes(planes[i::count], "little") for i in range(count)]
    return numbers if wide else [signed(base + number) for number in numbers]


def read_counts(cursor: Cursor, count: int) -> list[int]:
    """Read a pack of lengths or counts."""
    numbers = read_pack(cursor, count)
    require(all(number >= 0 for number in numbers), "a length is negative")
    return numbers


# ── Types (§ 15) and how the bits of one value read ──────────────────────────────────────────────────────────────────────────────────

NULL_SHAPE, INTS, WIDE, CODES, BYTES, LIST, FIXED, STRUCT = range(8)

BINARY_TYPES = ("binary", "large_binary")
TEXT_TYPES = ("string", "large_string")
MOST_VALUES = 2**31 - 1


def float_text(bits: int, layout: str) -> float | str:
    number = struct.unpack("<" + layout, bits.to_bytes(struct.calcsize(layout), "little"))[0]
    if number != number:
        return "NaN"
    return number if abs(number) != float("inf") else "Infinity" if number > 0 else "-Infinity"


def integer(bits: int, is_signed: bool) -> Callable[[int], int]:
    """How to read an integer type from the 64 bits in a pack, which must be what such a value extends to."""

    def read(number: int) -> int:
        value = signed(number, bits) if is_signed else number & ((1 << bits) - 1)
        require(value == (number if is_signed else number & M64), f"{number} does not fit {bits} bits")
        return value

    return read


def floating(bits: int, layout: str) -> Callable[[int], float | str]:
    read_bits = integer(bits, is_signed=False)
    return lambda number: float_text(read_bits(number), layout)


def boolean(number: int) -> bool:
    require(number in (0, 1), f"{number} is no boolean")
    return number == 1


INTS_TYPES: dict[str, Callable[[int], Any]] = {
    "bool": boolean,
    **{f"int{bits}": integer(bits, is_signed=True) for bits in (8, 16, 32, 64)},
    **{f"uint{bits}": integer(bits, is_signed=False) for bits in (8, 16, 32, 64)},
    "float16": floating(16, "e"),
    "float32": floating(32, "f"),
    "float64": floating(64, "d"),
    "date32": integer(32, is_signed=True),
    "date64": integer(64, is_signed=True),
}


def ints_reader(kind: Json) -> Callable[[int], Any] | None:
    if isinstance(kind, str):
        return INTS_TYPES.get(kind)
    if "time" in kind:
        return integer(32 if kind["time"] in ("s", "ms") else 64, is_signed=True)
    return integer(64, is_signed=True) if "timestamp" in kind or "duration" in kind else None


def wide_reader(kind: Json) -> tuple[int, Callable[[int], Any]] | None:
    """Bytes of a wide type and how to read it, or None if `kind` is none."""
    if kind == "month_day_nano_interval":
        return 16, lambda n: [signed(n, 32), signed(n >> 32, 32), signed(n >> 64)]
    if isinstance(kind, dict) and "decimal" in kind:
        bits, scale = kind["bits"], kind["decimal"][1]
        return bits // 8, lambda n: decimal_text(signed(n, bits), scale)
    return None


def decimal_text(unscaled: int, scale: int) -> str:
    if scale <= 0:
        return str(unscaled * 10**-scale)
    digits = str(abs(unscaled)).rjust(scale + 1, "0")
    return f"{'-' if unscaled < 0 else ''}{digits[:-scale]}.{digits[-scale:]}"


def shape_of(kind: Json) -> int:
    """The one shape, codes apart, that a type is stored in."""
    if kind == "null":
        return NULL_SHAPE
    if ints_reader(kind):
        return INTS
    if wide_reader(kind):
        return WIDE
    if kind in (*BINARY_TYPES, *TEXT_TYPES) or (isinstance(kind, dict) and "fixed_size_binary" in kind):
        return BYTES
    for name, shape in (("list", LIST), ("large_list", LIST), ("map", LIST), ("fixed_size_list", FIXED), ("struct", STRUCT)):
        if isinstance(kind, dict) and name in kind:
            return shape
    raise TooNew(f"type {kind!r} is unknown")


# ── Column nodes (§ 9) ───────────────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass
class ColumnDictionary:
    """What a dictionary block (§ 14) says of one column."""

    zstd: zstandard.ZstdCompressionDict | None = None
    values: list[Any] | None = None


def read_node(cursor: Cursor, kind: Json, count: int, dictionary: ColumnDictionary | None = None, whole_column: bool = True) -> list[Any]:
    """Read a node of `count` values of a type. Codes stand only for whole values of a column, so not inside nested types."""
    require(count <= MOST_VALUES, f"a node of {count} values")
    shape, flags, frame_rows = cursor.fields("BBH")
    if flags & ~3:
        raise TooNew(f"node flags {flags:#x} are unknown")
    if shape > STRUCT:
        raise TooNew(f"shape {shape} is unknown")
    if shape == CODES:
        require(whole_column and not flags and not frame_rows, "a CODES node has flags, frame rows or a parent")
        values = dictionary.values if dictionary else None
        codes = read_pack(cursor, count)
        require(all(0 <= code <= len(values or ()) for code in codes), "a code is outside the dictionary")
        return [values[code - 1] if code and values else None for code in codes]
    require(shape == shape_of(kind), f"shape {shape} for type {kind!r}")
    require(1 <= frame_rows <= 1024 if shape == BYTES else frame_rows == 0, f"{frame_rows} frame rows in shape {shape}")
    require(shape == BYTES or not flags & 2, f"a dictionary for shape {shape}")
    valid = [1] * count
    if flags & 1:
        require(shape != NULL_SHAPE, "validity of nulls")
        valid = read_pack(cursor, count)
        require(all(bit in (0, 1) for bit in valid), "validity is neither 0 nor 1")
    if shape == NULL_SHAPE:
        return [None] * count
    if shape in (FIXED, STRUCT):
        present = iter(read_present(cursor, kind, sum(valid), shape, dictionary))
        return [next(present) if bit else None for bit in valid]
    if shape == INTS:
        read = ints_reader(kind)
        values = read_pack(cursor, count)
    elif shape == WIDE:
        size, read = wide_reader(kind)
        values = read_pack(cursor, count, wide=size)
    elif shape == BYTES:
        values, read = read_bytes(cursor, count, frame_rows, kind, dictionary if flags & 2 else None, flags), bytes_reader(kind)
    else:
        values, read = read_lists(cursor, kind, count, dictionary), list
    require(all(bit or not value for bit, value in zip(valid, values, strict=True)), "a null slot is not 0")
    return [read(value) if bit else None for bit, value in zip(valid, values, strict=True)]


def read_present(cursor: Cursor, kind: Json, count: int, shape: int, dictionary: ColumnDictionary | None) -> Iterator[Any]:
    """The values of a fixed-size list or struct node, of which only those that are not null are stored."""
    if shape == FIXED:
        child, size = kind["fixed_size_list"], kind["size"]
        elements = read_node(cursor, child["type"], count * size, dictionary, whole_column=False)
        return iter([elements[i * size : (i + 1) * size] for i in range(count)])
    fields = kind["struct"]
    columns = [read_node(cursor, child["type"], count, dictionary, whole_column=False) for child in fields]
    return iter([{child["name"]: column[i] for child, column in zip(fields, columns, strict=True)} for i in range(count)])


def read_lists(cursor: Cursor, kind: Json, count: int, dictionary: ColumnDictionary | None) -> list[list[Any]]:
    lengths = read_counts(cursor, count)
    if "map" in kind:
        key_kind, item = kind["map"]
        child = {"struct": [{"name": "key", "type": key_kind}, {"name": "value", "type": item["type"]}]}
        entries = read_node(cursor, child, sum(lengths), dictionary, whole_column=False)
        require(all(entry is not None and entry["key"] is not None for entry in entries), "an entry or a key of a map is null")
        elements = [[entry["key"], entry["value"]] for entry in entries]
    else:
        child = kind.get("list") or kind["large_list"]
        elements = read_node(cursor, child["type"], sum(lengths), dictionary, whole_column=False)
    return cut(elements, lengths)


def read_bytes(
    cursor: Cursor, count: int, frame_rows: int, kind: Json, dictionary: ColumnDictionary | None, flags: int
) -> list[bytes]:
    require(not flags & 2 or (dictionary is not None and dictionary.zstd is not None), "frames need a zstd dictionary that is not there")
    lengths = read_counts(cursor, count)
    codec, entry_width = cursor.fields("BB")
    require(entry_width in (2, 4), f"a frame table with entries of {entry_width} bytes")
    groups = [lengths[at : at + frame_rows] for at in range(0, count, frame_rows)]
    stored = cursor.fields(f"{len(groups)}{'H' if entry_width == 2 else 'I'}")
    values: list[bytes] = []
    for group, size in zip(groups, stored, strict=True):
        data = decompress(codec, cursor.take(size), sum(group), dictionary.zstd if dictionary else None)
        values += cut(data, group)
    return values


def bytes_reader(kind: Json) -> Callable[[bytes], Any]:
    if kind in TEXT_TYPES:
        return text
    if isinstance(kind, dict):
        size = kind["fixed_size_binary"]

        def fixed(value: bytes) -> bytes:
            require(len(value) == size, f"{len(value)} bytes of fixed size {size}")
            return value

        return fixed
    return bytes


def text(value: bytes) -> str:
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError as error:
        raise Corrupt(f"text is not UTF-8: {error}") from error


def cut(whole: Any, lengths: list[int]) -> list[Any]:
    """Cut a list or bytes into pieces of these lengths."""
    edges = [0, *accumulate(lengths)]
    return [whole[a:b] for a, b in pairwise(edges)]


# ── Handles, frames, trailer, footer (§ 2-6, 16) ─────────────────────────────────────────────────────────────────────────────────────

METADATA, DATA, DIRECTORY, DIRECTORY_ROOT, INDEX, INDEX_ROOT, POSTINGS, FILTER, DICTIONARY, FOOTER = range(1, 11)
KIND_NAMES = ("METADATA", "DATA", "DIRECTORY", "DIRECTORY_ROOT", "INDEX", "INDEX_ROOT", "POSTINGS", "FILTER", "DICTIONARY", "FOOTER")
MAGIC = b"\x89ESDB\r\n\x1a"
HEADER_SIZE, TRAILER_SIZE, FRAME_SIZE = 16, 48, 24
MOST_ENTRIES = 131_072  # of a leaf, an index page and the like
Handle = tuple[int, int, int]  # offset, length, check


@dataclass
class Block:
    """What was in a frame."""

    count: int
    dictionary: int
    body: bytes


def read_metadata(block: Block) -> Json:
    """The metadata, with all names that this reader uses in it (§ 15)."""
    try:
        metadata = json.loads(text(block.body))
        require(metadata["format"] == "esdb" and metadata["schema"]["keys"] in ("text", "binary"), "the metadata's format or keys")
        for name in ("codec", "level", "properties", "statistics"):
            require(name in metadata, f"the metadata lacks {name!r}")
        for column in metadata["schema"]["columns"]:
            require(isinstance(column["name"], str) and column["nullable"] in (True, False), "the schema is damaged")
            shape_of(column["type"])
        for name in ("events", "spaces", "runs", "data_blocks", "min_timestamp", "max_timestamp", "indexes"):
            require(name in metadata["statistics"], f"the statistics lack {name!r}")
    except (ValueError, KeyError, TypeError) as error:
        raise Corrupt(f"the metadata is damaged: {error!r}") from error
    return metadata


class File:
    """A whole segment in memory, opened: its footer read, its metadata parsed, its dictionaries ready."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.entries = self._open()
        copy = self.entries.get((METADATA, 0, 0))
        require(copy is not None and (DIRECTORY_ROOT, 0, 0) in self.entries, "the footer lacks metadata or directory")
        self.metadata = read_metadata(self.block(copy, METADATA))
        self.schema: list[Json] = self.metadata["schema"]["columns"]
        self.dictionaries = {
            ordinal: self._read_dictionary(handle)
            for (kind, ordinal, spare), handle in self.entries.items()
            if kind == DICTIONARY and not spare
        }

    def _open(self) -> dict[tuple[int, int, int], Handle]:
        """Check header and trailer and give back the footer's entries: (kind, ordinal, copy) -> handle."""
        data = self.data
        require(len(data) >= HEADER_SIZE + FRAME_SIZE + TRAILER_SIZE, f"{len(data)} bytes are too few for a segment")
        trailer = data[-TRAILER_SIZE:]
        require(trailer[40:] == MAGIC[::-1], "no trailer at the end: no segment, or cut short")
        opening, *footer, major, _minor, reserved, checksum = struct.unpack("<QQIIHHIQ", trailer[:40])
        if major != 1:
            raise TooNew(f"major version {major}")
        require(xxh3(trailer[:32]) == checksum, "the trailer's checksum does not match")
        require(reserved == 0, "a reserved field of the trailer is not 0")
        require(HEADER_SIZE <= opening <= footer[0] and footer[0] + footer[1] == len(data) - TRAILER_SIZE, "the footer's place")
        magic, major, _minor, reserved = struct.unpack_from("<8sHHI", data)
        require(magic == MAGIC and major == 1 and reserved == 0, "the header is damaged")
        block = self.block((footer[0], footer[1], footer[2]), FOOTER)
        cursor = Cursor(block.body)
        entries = {}
        for _ in range(block.count):
            kind, spare, ordinal, *handle = cursor.fields("BBHQII")
            entries[kind, ordinal, spare] = (handle[0], handle[1], handle[2])
        cursor.end()
        require(list(entries) == sorted(entries) and len(entries) == block.count, "the footer's entries are not in order")
        return entries

    def block(self, handle: Handle, kind: int) -> Block:
        """Read and verify the block that a handle leads to."""
        offset, length, check = handle
        name = f"{KIND_NAMES[kind - 1]} block at byte {offset}"
        fits = offset >= HEADER_SIZE and offset + length <= len(self.data) - TRAILER_SIZE
        require(fits and FRAME_SIZE <= length <= 2**30, f"{name}: {length} bytes do not fit")
        data = self.data[offset : offset + length]
        checksum = u64_at(data, length - 8)
        require(checksum & M32 == check, f"{name}: the handle is another block's")
        require(xxh3(data[:-8]) == checksum, f"{name}: the checksum does not match")
        magic, found, reserved, dictionary, size, count = struct.unpack_from("<4sBBHII", data)
        require(magic == b"ESBK" and found == kind and size == length - FRAME_SIZE, f"{name}: magic, kind {found} or length {size}")
        require(reserved == 0 and (kind == DATA or dictionary == 0), f"{name}: a reserved field is not 0")
        return Block(count, dictionary, data[16:-8])

    def _read_dictionary(self, handle: Handle) -> dict[int, ColumnDictionary]:
        block = self.block(handle, DICTIONARY)
        cursor, columns = Cursor(block.body), {}
        for _ in range(block.count):
            column, reserved, size, values = cursor.fields("HHII")
            require(reserved == 0 and column < len(self.schema), f"a dictionary for column {column}")
            columns[column] = entry = ColumnDictionary()
            if size:
                entry.zstd = zstandard.ZstdCompressionDict(cursor.take(size))
            require(values <= MOST_ENTRIES, f"a dictionary of {values} values")
            if values:
                entry.values = read_node(cursor, self.schema[column]["type"], values)
                require(None not in entry.values, "a null in a dictionary")
        cursor.end()
        return columns

    # ── Directory and events (§ 10, 11) ──────────────────────────────────────────────────────────────────────────────────────────────

    def leaves(self) -> Iterator[Leaf]:
        root = self.block(self.entries[DIRECTORY_ROOT, 0, 0], DIRECTORY_ROOT)
        require(root.count <= len(self.data), f"a directory of {root.count} leaves")
        cursor = Cursor(root.body)
        first_spaces = read_node(cursor, "binary", root.count)
        runs, rows, blocks = (read_counts(cursor, root.count) for _ in range(3))
        data_offsets = read_pack(cursor, root.count)
        handles = zip(*(read_pack(cursor, root.count) for _ in range(3)), strict=True)
        lows, spans = read_pack(cursor, root.count), read_pack(cursor, root.count)
        cursor.end()
        for i, handle in enumerate(handles):
            leaf = read_leaf(self.block(handle, DIRECTORY), data_offsets[i])
            counts = (len(leaf.run_rows), sum(leaf.run_rows), len(leaf.handles))
            require(counts == (runs[i], rows[i], blocks[i]), f"leaf {i}: counts {counts} differ from the root's")
            require(not leaf.spaces or leaf.spaces[0] == first_spaces[i], f"leaf {i}: another first space")
            times = (min(leaf.lows), max(leaf.highs))
            require(times == (lows[i], signed(lows[i] + spans[i])), f"leaf {i}: times {times} differ from the root's")
            yield leaf

    def data_blocks(self) -> Iterator[tuple[list[tuple[bytes, bytes]], list[int], list[list[Any]]]]:
        """Every data block as (key of each row, timestamps, columns)."""
        for leaf in self.leaves():
            keys = [key for key, n in zip(leaf.keys(), leaf.run_rows, strict=True) for _ in range(n)]
            at = 0
            for handle, rows, low, high in zip(leaf.handles, leaf.block_rows, leaf.lows, leaf.highs, strict=True):
                block_keys, times, columns = self._read_data(handle)
                require(len(times) == rows, f"data block at byte {handle[0]}: {len(times)} rows, the directory says {rows}")
                require(block_keys == keys[at : at + rows], f"data block at byte {handle[0]}: keys differ from the directory's")
                require((min(times), max(times)) == (low, high), f"data block at byte {handle[0]}: times differ from the directory's")
                yield block_keys, times, columns
                at += rows

    def _read_data(self, handle: Handle) -> tuple[list[tuple[bytes, bytes]], list[int], list[list[Any]]]:
        block = self.block(handle, DATA)
        cursor = Cursor(block.body)
        base, runs, chunks = cursor.fields("qII")
        require(1 <= runs <= block.count <= 65536 and chunks == 2 + len(self.schema), f"{block.count} rows, {chunks} chunks")
        lengths = cursor.fields(f"{chunks}I")
        key_chunk, time_chunk, *rest = (Cursor(cursor.take(length)) for length in lengths)
        cursor.end()

        run_rows = read_counts(key_chunk, runs)
        spaces, groupings = read_node(key_chunk, "binary", runs), read_node(key_chunk, "binary", runs)
        key_chunk.end()
        require(sum(run_rows) == block.count and 0 not in run_rows, "runs do not add up to the block's rows")
        keys = [(space, grouping) for n, space, grouping in zip(run_rows, spaces, groupings, strict=True) for _ in range(n)]

        times: list[int] = []
        for number, is_first in zip(read_pack(time_chunk, block.count), run_starts(run_rows), strict=True):
            times.append(signed((base if is_first else times[-1]) + number))
            require(is_first or times[-1] >= times[-2], "timestamps decrease within a run")
        time_chunk.end()
        require(min(times) == base, "the base is not the smallest timestamp")

        dictionary = self.dictionaries[block.dictionary] if block.dictionary else {}
        columns = []
        for i, (field, chunk) in enumerate(zip(self.schema, rest, strict=True)):
            values = read_node(chunk, field["type"], block.count, dictionary.get(i))
            chunk.end()
            require(field["nullable"] or None not in values, f"a null in column {field['name']!r}")
            columns.append(values)
        return keys, times, columns

    def events(self) -> Iterator[Json]:
        key_text = text if self.metadata["schema"]["keys"] == "text" else bytes
        names = [field["name"] for field in self.schema]
        for keys, times, columns in self.data_blocks():
            for i, (space, grouping) in enumerate(keys):
                event = {"space": key_text(space), "grouping": key_text(grouping), "timestamp": times[i]}
                yield event | {"columns": {name: column[i] for name, column in zip(names, columns, strict=True)}}

    # ── Indexes (§ 12) ───────────────────────────────────────────────────────────────────────────────────────────────────────────────

    def index(self, name: str) -> Iterator[tuple[Any, list[int]]]:
        """Every value of an index, ascending, with the rows that have it."""
        names = [field["name"] for field in self.schema]
        if name not in names or (INDEX_ROOT, names.index(name), 0) not in self.entries:
            raise Corrupt(f"there is no index {name!r}")
        column = names.index(name)
        blocks, first_row = [], 0  # what BLOCKS lists need: each block's column and the number of its first row
        for _, times, columns in self.data_blocks():
            blocks.append((first_row, columns[column]))
            first_row += len(times)
        for value, events, form, numbers in self._postings(column):
            rows = numbers
            if not form & 1:
                require(rows[-1] < first_row, f"index {name!r}: row {rows[-1]} of {first_row}")
            else:
                require(numbers[-1] < len(blocks), f"index {name!r}: block {numbers[-1]} of {len(blocks)}")
                held = [[start + i for i, found in enumerate(values) if found == value] for start, values in map(blocks.__getitem__, numbers)]
                require(all(held), f"index {name!r}: a block listed for {value!r} does not hold it")
                rows = [row for part in held for row in part]
            require(len(rows) == events, f"index {name!r}: {len(rows)} events of {value!r}, the page says {events}")
            yield value, rows

    def _postings(self, column: int) -> Iterator[tuple[Any, int, int, list[int]]]:
        """(value, events, form, numbers of its list) of every value."""
        kind = self.schema[column]["type"]
        root = self.block(self.entries[INDEX_ROOT, column, 0], INDEX_ROOT)
        require(root.count <= len(self.data), f"an index of {root.count} pages")
        cursor = Cursor(root.body)
        first_values = read_node(cursor, kind, root.count)
        counts = read_counts(cursor, root.count)
        handles = list(zip(*(read_pack(cursor, root.count) for _ in range(3)), strict=True))
        cursor.end()
        for first, count, handle in zip(first_values, counts, handles, strict=True):
            page = self.block(handle, INDEX)
            require(1 <= page.count <= MOST_ENTRIES, f"an index page of {page.count} values")
            cursor = Cursor(page.body)
            values = read_node(cursor, kind, page.count)
            require(page.count == count and values[0] == first, "an index page differs from the root")
            events, forms, lengths = read_counts(cursor, count), read_pack(cursor, count), read_counts(cursor, count)
            for value, n, form, length in zip(values, events, forms, lengths, strict=True):
                if not 0 <= form <= 3:
                    raise TooNew(f"posting list of form {form}")
                body = Cursor(cursor.take(length))
                yield value, n, form, list(self._chunks(body) if form & 2 else read_list(body))
                body.end()
            cursor.end()

    def _chunks(self, cursor: Cursor) -> Iterator[int]:
        (chunks,) = cursor.fields("I")
        require(1 <= chunks <= MOST_ENTRIES, f"a chunk table of {chunks} chunks")
        firsts, *handles = (read_pack(cursor, chunks) for _ in range(4))
        last = -1
        for first, handle in zip(firsts, zip(*handles, strict=True), strict=True):
            block = self.block(handle, POSTINGS)
            body = Cursor(block.body)
            numbers = read_list(body)
            body.end()
            require(numbers[0] == first > last and len(numbers) == block.count, "a chunk of a posting list differs from its table")
            last = numbers[-1]
            yield from numbers

    # ── Space filter (§ 13) ──────────────────────────────────────────────────────────────────────────────────────────────────────────

    def filter_pages(self) -> list[bytes]:
        handles = [handle for (kind, _, spare), handle in self.entries.items() if kind == FILTER and not spare]
        return [self.block(handle, FILTER).body for handle in handles]


def run_starts(run_rows: list[int]) -> Iterator[bool]:
    for rows in run_rows:
        yield True
        yield from [False] * (rows - 1)


@dataclass
class Leaf:
    spaces: list[bytes]
    groupings: list[bytes]
    run_rows: list[int]
    block_rows: list[int]
    handles: list[Handle]
    lows: list[int]
    highs: list[int]

    def keys(self) -> list[tuple[bytes, bytes]]:
        return list(zip(self.spaces, self.groupings, strict=True))


def read_leaf(block: Block, first_offset: int) -> Leaf:
    cursor = Cursor(block.body)
    (blocks,) = cursor.fields("I")
    require(1 <= blocks <= 256 and 1 <= block.count <= MOST_ENTRIES, f"a leaf of {blocks} blocks, {block.count} runs")
    run_rows = read_counts(cursor, block.count)
    spaces, groupings = read_node(cursor, "binary", block.count), read_node(cursor, "binary", block.count)
    block_rows, lengths, checks = (read_counts(cursor, blocks) for _ in range(3))
    lows, spans = read_pack(cursor, blocks), read_pack(cursor, blocks)
    cursor.end()
    offsets = accumulate(lengths[:-1], initial=first_offset)
    highs = [signed(low + span) for low, span in zip(lows, spans, strict=True)]
    leaf = Leaf(spaces, groupings, run_rows, block_rows, list(zip(offsets, lengths, checks, strict=True)), lows, highs)
    require(sum(run_rows) == sum(block_rows), "the runs of a leaf do not add up to its blocks' rows")
    require(all(a < b for a, b in pairwise(leaf.keys())), "the runs of a leaf do not ascend")
    return leaf


def read_list(cursor: Cursor) -> list[int]:
    count, first = cursor.fields("IQ")
    require(1 <= count <= 4096, f"a list of {count} numbers")
    steps = read_pack(cursor, count - 1)
    require(all(step >= 1 for step in steps), "a posting list does not ascend")
    return list(accumulate(steps, initial=first))


SALTS = (0x47B6137B, 0x44974D91, 0x8824AD5B, 0xA2B7289D, 0x705495C7, 0x2DF1424B, 0x9EFC4947, 0x5C6BFB31)


def may_hold(pages: list[bytes], space: bytes) -> bool:
    """Whether the filter lets a space pass. It never turns away one that is in the file."""
    buckets = sum(map(len, pages)) // 32
    h = xxh3(space)
    page, bucket = divmod((h >> 32) * buckets >> 32, 2048)
    words = struct.unpack_from("<8I", pages[page], 32 * bucket)
    return all(word >> ((h * salt & M32) >> 27) & 1 for word, salt in zip(words, SALTS, strict=True))


# ── What the command prints ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def facts(file: File) -> dict[str, Json]:
    """Count what is in the file and compare it with the statistics."""
    events = runs = blocks = 0
    last_key, spaces = None, set()
    low, high = None, None
    for keys, times, _ in file.data_blocks():
        blocks, events = blocks + 1, events + len(times)
        low, high = min(times[0] if low is None else low, *times), max(times[0] if high is None else high, *times)
        for key in keys:
            require(last_key is None or last_key <= key, "events are not sorted by space and grouping")
            runs += key != last_key
            spaces.add(key[0])
            last_key = key
    pages = file.filter_pages()
    require(not pages or all(may_hold(pages, space) for space in spaces), "the space filter turns away a space that is here")
    indexes = {}
    for (kind, ordinal, _), _ in file.entries.items():
        if kind == INDEX_ROOT:
            require(ordinal < len(file.schema), f"an index on column {ordinal}")
            name = file.schema[ordinal]["name"]
            sizes = [len(rows) for _, rows in file.index(name)]
            indexes[name] = {"values": len(sizes), "events": sum(sizes)}
    counted = {"events": events, "spaces": len(spaces), "runs": runs, "data_blocks": blocks}
    counted |= {"min_timestamp": low, "max_timestamp": high, "indexes": indexes}
    stated = file.metadata["statistics"]
    for name, number in counted.items():
        require(stated[name] == number, f"the statistics say {name} = {stated[name]}, counted {number}")
    return {"size": len(file.data), **counted, **{name: file.metadata[name] for name in ("codec", "level", "properties", "schema")}}


def line(value: Json) -> str:
    return json.dumps(value, ensure_ascii=False, default=lambda data: {"hex": data.hex()})


def main() -> int:
    parser = argparse.ArgumentParser(description="Read an .esdb file as the specification says.")
    parser.add_argument("file", type=Path)
    parser.add_argument("--facts", action="store_true", help="counts instead of events")
    parser.add_argument("--index", metavar="NAME", help="values of an index with their rows instead of events")
    arguments = parser.parse_args()
    try:
        file = File(arguments.file.read_bytes())
        if arguments.facts:
            print(line(facts(file)))
        elif arguments.index:
            for value, rows in file.index(arguments.index):
                print(line({"value": value, "rows": rows}))
        else:
            for event in file.events():
                print(line(event))
    except (Corrupt, TooNew) as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
