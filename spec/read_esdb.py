"""An independent reader of `.esdb` files, written from `format.md` alone and meant to be read alongside it.

    python read_esdb.py FILE               every event, one JSON object per line, in file order
    python read_esdb.py FILE --facts       counts of the contents, after comparing them with the file's statistics
    python read_esdb.py FILE --index NAME  every value of an index with the rows that have it

It needs Python, the package `zstandard`, and `xxh3.py` in the same folder. It shares no code with `esformat`, reads the
whole file into memory, and verifies everything that it uses. "§ 9" in a comment is section 9 of `format.md`. It raises
`Corrupt` if a rule is broken, and `TooNew` if the file is newer.

Values in the output: text, numbers, booleans and nulls as in JSON; bytes as `{"hex": "00ff"}`; decimals, and floats
that are not finite, as text; dates, times and durations as a whole number of their unit; an interval as [months, days,
nanoseconds]; a list as an array, a struct as an object, a map as an array of [key, value] pairs.
"""

from __future__ import annotations

import argparse
import json
import struct
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any, NamedTuple

import zstandard
from xxh3 import M32, M64, u64_at, xxh3

Json = Any  # a result of `json.loads`; types are such objects, as described in § 15


class Corrupt(Exception):  # noqa: N818 - describes the bytes, as in `format.md`
    """The bytes violate a rule of the format."""


class TooNew(Exception):  # noqa: N818 - as above
    """The bytes use a feature that version 1 does not know."""


def require(holds: bool, message: str) -> None:
    if not holds:
        raise Corrupt(message)


@contextmanager
def inside(where: str) -> Iterator[None]:
    """Prefix the message of `Corrupt` with the place."""
    try:
        yield
    except Corrupt as error:
        raise Corrupt(f"{where}: {error}") from error


# ── Codecs (§ 7) ────────────────────────────────────────────────────────────────────────────────────────────────────

NONE, ZSTD, LZ4 = range(3)
MOST_BYTES = 2**31 - 1
MOST_ELEMENTS = 2**28 - 1
MOST_WINDOW = 8 << 20
SINGLE_SEGMENT = 0x20  # a bit in the fifth byte of a zstd frame


def decompress(codec: int, frame: bytes, size: int, dictionary: zstandard.ZstdCompressionDict | None = None) -> bytes:
    """Decompress one frame to `size` bytes; any other size is corrupt."""
    require(size <= MOST_BYTES, f"a frame claims {size} bytes")
    if codec > LZ4:
        raise TooNew(f"codec {codec} is unknown")
    if codec == NONE or not size:
        data = frame
    elif codec == ZSTD:
        data = zstd_frame(frame, size, dictionary)
    else:
        data = lz4_block(frame, size)
    require(len(data) == size, f"a frame holds {len(data)} bytes where {size} are expected")
    return data


def zstd_frame(frame: bytes, size: int, dictionary: zstandard.ZstdCompressionDict | None) -> bytes:
    try:
        facts = zstandard.get_frame_parameters(frame)
        require(facts.content_size == size, f"a zstd frame claims {facts.content_size} bytes where {size} are expected")
        require(not facts.has_checksum and not facts.dict_id, "a zstd frame has a checksum or a dictionary id")
        require(facts.window_size <= MOST_WINDOW or frame[4] & SINGLE_SEGMENT > 0, "a zstd frame's window is too large")
        return zstandard.ZstdDecompressor(dict_data=dictionary).decompress(frame, allow_extra_data=False)
    except zstandard.ZstdError as error:
        raise Corrupt(f"zstd: {error}") from error


def lz4_block(block: bytes, size: int) -> bytes:
    """Decompress LZ4: repeated pairs of literals and a copy from `distance` bytes ago; literals end the block."""
    out, at = bytearray(), 0

    def number(nibble: int) -> int:
        """Read a length: if the nibble is 15, more bytes follow, until one is not 255."""
        nonlocal at
        total, more = nibble, nibble == 15
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
            pattern = bytes(out[-distance:])  # repeated if the copy is longer than the distance
            out += (pattern * (length // distance + 1))[:length]
    except IndexError as error:
        raise Corrupt("lz4: the block is cut short") from error


# ── Reading a body in sequence ──────────────────────────────────────────────────────────────────────────────────────


class Cursor:
    """A position in some bytes that advances with each read."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def take(self, size: int) -> bytes:
        require(size <= len(self.data) - self.at, f"{size} bytes wanted, {len(self.data) - self.at} are left")
        self.at += size
        return self.data[self.at - size : self.at]

    def fields(self, layout: str) -> tuple[Any, ...]:
        return struct.unpack("<" + layout, self.take(struct.calcsize("<" + layout)))

    def end(self) -> None:
        require(self.at == len(self.data), f"{len(self.data) - self.at} bytes are left over")


class Handle(NamedTuple):
    """The position of a block, and the check that identifies it (§ 3)."""

    offset: int
    length: int
    check: int


def signed(number: int, bits: int = 64) -> int:
    """Read the low `bits` bits as two's complement."""
    number &= (1 << bits) - 1
    return number - (1 << bits) if number >> (bits - 1) else number


def cut(whole: Any, lengths: list[int]) -> list[Any]:
    """Cut a list or bytes into pieces of these lengths."""
    return [whole[a:b] for a, b in pairwise(accumulate(lengths, initial=0))]


# ── Packed integers (§ 8) ───────────────────────────────────────────────────────────────────────────────────────────


OF_BITS = 255  # in place of the number of raw planes


def read_pack(cursor: Cursor, count: int) -> list[int]:
    """Read `count` numbers."""
    width, raw, base_length, codec, stored = cursor.fields("BBBBI")
    if not count:
        require((width, raw, base_length, codec, stored) == (0,) * 5, "a pack of no numbers is not eight zero bytes")
        return []
    require(base_length in (0, 8), f"a base of {base_length} bytes")
    base = cursor.fields("q")[0] if base_length else 0
    if raw == OF_BITS:
        return read_bits(cursor.take(stored), count, width, base, codec)
    require(width <= 8, f"a pack of width {width}")
    require(raw <= width, f"{raw} raw planes of {width}")
    planes = cursor.take(raw * count)
    if raw < width:
        planes += decompress(codec, cursor.take(stored), (width - raw) * count)
    else:
        require(stored == 0 and codec == NONE, "a pack without stored planes has some")
    if not width:
        return [base] * count
    # Plane k has byte k of every number, so the bytes of number i are `count` apart.
    numbers = [int.from_bytes(planes[i::count], "little") for i in range(count)]
    return [signed(base + number) for number in numbers]


def read_bits(stored: bytes, count: int, bits: int, base: int, codec: int) -> list[int]:
    """Read `count` bit-packed numbers of `bits` bits."""
    require(1 <= bits <= 64 and codec == NONE, f"a pack of {bits} bits with codec {codec}")
    require(len(stored) == (bits * count + 7) // 8, f"{len(stored)} bytes of {count} times {bits} bits")
    numbers = []
    for i in range(count):
        first, last = bits * i, bits * (i + 1)
        word = int.from_bytes(stored[first // 8 : (last + 7) // 8], "little") >> first % 8
        numbers.append(signed(base + (word & (1 << bits) - 1)))
    unused = 8 * len(stored) - bits * count
    require(stored[-1] >> (8 - unused) == 0, "bits behind packed numbers are not 0")
    return numbers


def read_counts(cursor: Cursor, count: int) -> list[int]:
    """Read a pack of lengths or counts, which cannot be negative."""
    numbers = read_pack(cursor, count)
    require(min(numbers, default=0) >= 0, "a length is negative")
    return numbers


def read_handles(cursor: Cursor, count: int) -> list[Handle]:
    """Read three packs: the offsets, lengths and checks of some blocks."""
    columns = [read_pack(cursor, count) for _ in range(3)]
    return [Handle(*parts) for parts in zip(*columns, strict=True)]


# ── Types (§ 15) and the conversion of single values ────────────────────────────────────────────────────────────────

NULL, INTS, WIDE, CODES, BYTES, LIST, FIXED, STRUCT, TEMPLATES, FRONT_CODED = range(10)
Storage = tuple[int, Callable[[Any], Any], int]  # shape; conversion from stored to shown value; bytes of a number


def integer(bits: int, *, unsigned: bool = False) -> Storage:
    """An integer type: a packed number must be the value, sign-extended to 64 bits."""

    def read(number: int) -> int:
        value = number & (1 << bits) - 1 if unsigned else signed(number, bits)
        require(signed(value) == number, f"{number} does not fit {bits} bits")
        return value

    return INTS, read, 8


def floating(bits: int, layout: str) -> Storage:
    _, bits_of, _ = integer(bits, unsigned=True)

    def read(number: int) -> float | str:
        (value,) = struct.unpack("<" + layout, bits_of(number).to_bytes(bits // 8, "little"))
        if value != value:
            return "NaN"
        return value if abs(value) != float("inf") else "Infinity" if value > 0 else "-Infinity"

    return INTS, read, 8


def boolean(number: int) -> bool:
    require(number in (0, 1), f"{number} is no boolean")
    return number == 1


def text(value: bytes) -> str:
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError as error:
        raise Corrupt(f"text is not UTF-8: {error}") from error


def fixed_size(size: int) -> Storage:
    def read(value: bytes) -> bytes:
        require(len(value) == size, f"{len(value)} bytes of fixed size {size}")
        return value

    return BYTES, read, 0


def decimal(bits: int, scale: int) -> Storage:
    def read(number: int) -> str:
        number = signed(number, bits)
        if scale <= 0:
            return str(number * 10**-scale)
        digits = str(abs(number)).rjust(scale + 1, "0")
        return f"{'-' if number < 0 else ''}{digits[:-scale]}.{digits[-scale:]}"

    return WIDE, read, bits // 8


SIMPLE_TYPES: dict[str, Storage] = {
    "null": (NULL, list, 0),
    "bool": (INTS, boolean, 8),
    **{f"int{bits}": integer(bits) for bits in (8, 16, 32, 64)},
    **{f"uint{bits}": integer(bits, unsigned=True) for bits in (8, 16, 32, 64)},
    **{f"float{bits}": floating(bits, layout) for bits, layout in ((16, "e"), (32, "f"), (64, "d"))},
    "date32": integer(32),
    "date64": integer(64),
    "month_day_nano_interval": (WIDE, lambda n: [signed(n, 32), signed(n >> 32, 32), signed(n >> 64)], 16),
    **dict.fromkeys(("binary", "large_binary"), (BYTES, bytes, 0)),
    **dict.fromkeys(("string", "large_string"), (BYTES, text, 0)),
}

INDEXED_TYPES = (
    "string",
    "large_string",
    "bool",
    *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)),
)


def storage(kind: Json) -> Storage:
    """The storage of values of a type that are not stored as codes."""
    if isinstance(kind, str) and kind in SIMPLE_TYPES:
        return SIMPLE_TYPES[kind]
    match kind:
        case {"time": "s" | "ms"}:
            return integer(32)
        case {"time": "us" | "ns"} | {"duration": "s" | "ms" | "us" | "ns"}:
            return integer(64)
        case {"timestamp": "s" | "ms" | "us" | "ns", "zone": None | str()}:
            return integer(64)
        case {"decimal": [_, scale], "bits": 128 | 256 as bits}:
            return decimal(bits, scale)
        case {"fixed_size_binary": size}:
            return fixed_size(size)
        case {"list": _} | {"large_list": _} | {"map": [_, {"name": str()}], "sorted": bool()}:
            return LIST, list, 0
        case {"fixed_size_list": _, "size": size} if size >= 0:
            return FIXED, list, 0
        case {"struct": _}:
            return STRUCT, dict, 0
    raise TooNew(f"type {kind!r} is unknown")


def children(kind: Json) -> list[Json]:
    """The children of a nested type. A map has one child: a struct of key and value."""
    match kind:
        case {"list": child} | {"large_list": child} | {"fixed_size_list": child}:
            return [child]
        case {"map": [key, item]}:
            pair = [{"name": "key", "type": key, "nullable": False}, {**item, "name": "value"}]
            return [{"name": "entries", "type": {"struct": pair}, "nullable": False}]
        case {"struct": fields}:
            return list(fields)
    return []


def check_type(kind: Json, depth: int = 0) -> None:
    """Reject a type that has an unknown part or is nested too deeply."""
    require(depth <= 32, "types nest too deep")
    storage(kind)
    for child in children(kind):
        name = child["name"]
        require(isinstance(name, str) and "\0" not in name, "a name is damaged")
        name.encode()  # lone surrogates raise ValueError
        nullable = child["nullable"]
        require(nullable is True or (nullable is False and child["type"] != "null"), "a child is damaged")
        pair = isinstance(kind, dict) and "map" in kind  # the depth of a map includes its pair
        check_type(child["type"], depth + (not pair))


# ── Column nodes (§ 9) ──────────────────────────────────────────────────────────────────────────────────────────────


STRING, ENUM, INTEGER, PADDED, DECIMAL, HEX, DATE = range(7)
MOST_TEMPLATES, MOST_VARIABLES, MOST_SLOTS = 4096, 4096, 1024
MOST_SLOTS_SHOWN, MOST_NODE_BYTES = 1 << 20, 16 << 20
MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
# For each date form: layout without the fraction, units per day, digits after the point.
DATE_FORMS = [
    ("%Y-%m-%d", 1, 0),
    *((f"%Y-%m-%d{between}{time}", units, digits) for between in "T " for time, units, digits in (
        ("%H:%M", 1440, 0), ("%H:%M:%S", 86_400, 0), ("%H:%M:%S", 86_400_000, 3), ("%H:%M:%S", 86_400_000_000, 6))),
    ("%d/%b/%Y:%H:%M:%S", 86_400, 0),
]  # fmt: skip


class Variable(NamedTuple):
    """A variable that the slots of templates show."""

    kind: int
    parameter: int
    values: list[bytes]

    def text(self, value: Any) -> bytes:
        """Format a value of the variable as it appears in a row."""
        if self.kind == STRING:
            return bytes(value)
        if self.kind == ENUM:
            require(0 <= value < len(self.values), f"value {value} of an enumeration of {len(self.values)}")
            return self.values[value]
        if self.kind == DATE:
            return date_text(self.parameter, value)
        if self.kind == INTEGER:
            return b"%d" % value
        if self.kind == HEX:
            number = value & 2**64 - 1
            require(number < 16**self.parameter, f"{number:#x} with {self.parameter} digits")
            return b"%0*x" % (self.parameter, number)
        if self.kind == PADDED:
            require(0 <= value < 10**self.parameter, f"{value} with {self.parameter} digits")
            return b"%0*d" % (self.parameter, value)
        whole, fraction = divmod(abs(value), 10**self.parameter)
        return b"%s%d.%0*d" % (b"-" if value < 0 else b"", whole, self.parameter, fraction)


def date_text(form: int, value: int) -> bytes:
    layout, units, digits = DATE_FORMS[form]
    seconds, fraction = divmod(value * 86_400, units) if units <= 86_400 else divmod(value, units // 86_400)
    try:
        moment = datetime(1970, 1, 1) + timedelta(seconds=seconds)
    except OverflowError as error:
        raise Corrupt(f"a date of {value} units") from error
    shown = layout.replace("%Y", f"{moment.year:04}").replace("%b", MONTHS[moment.month - 1])
    return (moment.strftime(shown) + (f".{fraction:0{digits}}" if digits else "")).encode()


class Template(NamedTuple):
    """Literals with slots between them; each slot shows a variable, given by its number."""

    literals: list[bytes]
    slots: list[int]


class Templates(NamedTuple):
    """The templates of a column, and their variables."""

    variables: list[Variable]
    templates: list[Template]


def read_templates(cursor: Cursor, count: int) -> Templates:
    """Read a column's templates from a dictionary block (§ 14)."""
    size, variables = cursor.fields("II")
    require(count <= MOST_TEMPLATES and variables <= MOST_VARIABLES, f"{count} templates, {variables} variables")
    cursor = Cursor(cursor.take(size))
    kinds, parameters, value_counts = (read_counts(cursor, variables) for _ in range(3))
    require(sum(value_counts) <= MOST_ENTRIES, "too many values of enumerations")
    values = read_texts(cursor, sum(value_counts))
    slot_counts = read_counts(cursor, count)
    require(max(slot_counts) <= MOST_SLOTS and sum(slot_counts) <= MOST_ENTRIES, "too many slots")
    slots = read_counts(cursor, sum(slot_counts))
    literals = read_texts(cursor, sum(slot_counts) + count)
    cursor.end()
    require(max(slots, default=-1) < variables, "a slot shows a variable that is not there")
    for kind, parameter, n in zip(kinds, parameters, value_counts, strict=True):
        if kind > DATE or (kind == DATE and parameter >= len(DATE_FORMS)):
            raise TooNew(f"a variable of kind {kind} with parameter {parameter}")
        most = {PADDED: 18, DECIMAL: 18, HEX: 16}.get(kind)
        require(1 <= parameter <= most if most else kind == DATE or parameter == 0, f"the parameter of kind {kind}")
        require(kind == ENUM or n == 0, f"a variable of kind {kind} has values")
    facts = zip(kinds, parameters, cut(values, value_counts), strict=True)
    texts = cut(literals, [n + 1 for n in slot_counts])
    return Templates(
        [Variable(*each) for each in facts],
        [Template(*each) for each in zip(texts, cut(slots, slot_counts), strict=True)],
    )


@dataclass
class ColumnDictionary:
    """The entry of a dictionary block (§ 14) for one column."""

    zstd: zstandard.ZstdCompressionDict | None = None
    values: list[Any] | None = None
    templates: Templates | None = None


NO_DICTIONARY = ColumnDictionary()


def read_node(cursor: Cursor, kind: Json, count: int, dictionary: ColumnDictionary = NO_DICTIONARY) -> list[Any]:
    """Read a node of `count` values of a type."""
    require(count <= MOST_ELEMENTS, f"a node of {count} values")
    shape, flags, frame_rows = cursor.fields("BBH")
    if shape > FRONT_CODED or flags & ~3:
        raise TooNew(f"a node of shape {shape} with flags {flags:#x}")
    if shape == BYTES:
        require(1 <= frame_rows <= 1024, f"frames of {frame_rows} rows")
    else:
        require(not frame_rows and not flags & 2, f"frame rows or a dictionary for shape {shape}")
    valid = [1] * count
    if flags & 1:
        require(shape not in (NULL, CODES, TEMPLATES), f"validity in shape {shape}")
        valid = read_pack(cursor, count)
        require(set(valid) <= {0, 1}, "validity is neither 0 nor 1")
    if shape == CODES:
        return read_codes(cursor, count, dictionary.values)
    expected, convert, width = storage(kind)
    if shape == TEMPLATES and expected == BYTES:
        return [None if value is None else convert(value) for value in read_templated(cursor, count, dictionary)]
    require(shape == expected, f"shape {shape} for type {kind!r}")
    inner = ColumnDictionary(dictionary.zstd)  # codes replace whole values of a column, not parts
    if shape == NULL:
        return [None] * count
    if shape in (FIXED, STRUCT):
        read = read_fixed_lists if shape == FIXED else read_structs
        present = iter(read(cursor, kind, sum(valid), inner))
        return [next(present) if bit else None for bit in valid]
    if shape == BYTES:
        stored: list[Any] = read_bytes(cursor, count, frame_rows, dictionary.zstd if flags & 2 else None, flags & 2 > 0)
    elif shape == LIST:
        stored = read_lists(cursor, kind, count, inner)
    else:
        words = [read_pack(cursor, count) for _ in range(width // 8)]
        stored = words[0] if shape == INTS else [wide(parts) for parts in zip(*words, strict=True)]
    require(all(bit or not value for bit, value in zip(valid, stored, strict=True)), "the slot of a null is not 0")
    return [convert(value) if bit else None for bit, value in zip(valid, stored, strict=True)]


def read_texts(cursor: Cursor, count: int) -> list[bytes]:
    """Read keys, or texts of templates: binary without nulls, possibly front-coded."""
    if cursor.data[cursor.at : cursor.at + 1] != bytes([FRONT_CODED]):
        texts = read_node(cursor, "binary", count)
        require(None not in texts, "a key or a text is null")
        return texts
    require(cursor.fields("BBH") == (FRONT_CODED, 0, 0), "the head of a front-coded node")
    shared = read_counts(cursor, count)
    rests = read_node(cursor, "binary", count)
    require(None not in rests, "a key or a text is null")
    made = [b""]
    for size, rest in zip(shared, rests, strict=True):
        require(size <= len(made[-1]), "a text shares more bytes than the previous one has")
        made.append(made[-1][:size] + rest)
    return made[1:]


def wide(words: tuple[int, ...]) -> int:
    """Combine 64-bit words, lowest first, to an unsigned number."""
    return sum((word & M64) << 64 * place for place, word in enumerate(words))


def read_codes(cursor: Cursor, count: int, values: list[Any] | None) -> list[Any]:
    codes = read_pack(cursor, count)
    require(values is not None, "codes without a dictionary of values")
    with_null = [None, *(values or ())]
    require(all(0 <= code < len(with_null) for code in codes), "a code is outside the dictionary")
    return [with_null[code] for code in codes]


def read_templated(cursor: Cursor, count: int, dictionary: ColumnDictionary) -> list[bytes | None]:
    """Read values that are stored with the column's templates."""
    codes = read_pack(cursor, count)
    require(dictionary.templates is not None, "a node of templates without a dictionary of them")
    variables, templates = dictionary.templates or Templates([], [])
    require(all(0 <= code <= len(templates) for code in codes), "a template is not in the dictionary")
    rows = Counter(code for code in codes if code)
    shown = sum(n * len(templates[code - 1].slots) for code, n in rows.items())
    require(shown <= MOST_SLOTS_SHOWN, f"the rows show {shown} slots")
    counts = Counter(dict.fromkeys(range(len(variables)), 0))
    for code, n in rows.items():
        counts.update(dict.fromkeys(templates[code - 1].slots, n))
    columns: dict[int, Iterator[Any]] = {}
    for number in sorted(variable for variable, n in counts.items() if n):
        string = variables[number].kind == STRING
        inner = ColumnDictionary(dictionary.zstd)
        values = read_node(cursor, "binary", counts[number], inner) if string else read_pack(cursor, counts[number])
        require(None not in values, "a null in a variable")
        columns[number] = iter(values)
    made: list[bytes | None] = []
    left = MOST_NODE_BYTES
    for code in codes:
        value = None
        if code:
            literals, slots = templates[code - 1]
            texts = {n: variables[n].text(next(columns[n])) for n in dict.fromkeys(slots)}
            left -= sum(map(len, literals)) + sum(len(texts[n]) for n in slots)
            require(left >= 0, "the values take too many bytes")
            value = literals[0] + b"".join(texts[n] + after for n, after in zip(slots, literals[1:], strict=True))
        made.append(value)
    return made


def read_bytes(
    cursor: Cursor, count: int, frame_rows: int, zstd: zstandard.ZstdCompressionDict | None, needs_zstd: bool
) -> list[bytes]:
    require(zstd is not None or not needs_zstd, "frames need a zstd dictionary that is not there")
    lengths = read_counts(cursor, count)
    codec, entry_width = cursor.fields("BB")
    if codec > LZ4:
        raise TooNew(f"codec {codec} is unknown")
    require(entry_width in (2, 4), f"a frame table with entries of {entry_width} bytes")
    groups = [lengths[at : at + frame_rows] for at in range(0, count, frame_rows)]
    table = cursor.fields(f"{len(groups)}{'H' if entry_width == 2 else 'I'}")
    frames = [decompress(codec, cursor.take(size), sum(group), zstd) for group, size in zip(groups, table, strict=True)]
    return [value for frame, group in zip(frames, groups, strict=True) for value in cut(frame, group)]


def read_child(cursor: Cursor, child: Json, count: int, dictionary: ColumnDictionary) -> list[Any]:
    values = read_node(cursor, child["type"], count, dictionary)
    require(child["nullable"] or None not in values, f"a null in {child['name']!r}")
    return values


def read_lists(cursor: Cursor, kind: Json, count: int, dictionary: ColumnDictionary) -> list[list[Any]]:
    lengths = read_counts(cursor, count)
    elements = read_child(cursor, children(kind)[0], sum(lengths), dictionary)
    if "map" in kind:
        elements = [[entry["key"], entry["value"]] for entry in elements]
    return cut(elements, lengths)


def read_fixed_lists(cursor: Cursor, kind: Json, count: int, dictionary: ColumnDictionary) -> list[list[Any]]:
    elements = read_child(cursor, children(kind)[0], count * kind["size"], dictionary)
    return cut(elements, [kind["size"]] * count)


def read_structs(cursor: Cursor, kind: Json, count: int, dictionary: ColumnDictionary) -> list[dict[str, Any]]:
    fields = children(kind)
    columns = [read_child(cursor, child, count, dictionary) for child in fields]
    names = [child["name"] for child in fields]
    return [dict(zip(names, (column[i] for column in columns), strict=True)) for i in range(count)]


# ── Handles, frames, trailer, footer, metadata (§ 2-6, 14-16) ───────────────────────────────────────────────────────

METADATA, DATA, DIRECTORY, DIRECTORY_ROOT, INDEX, INDEX_ROOT, POSTINGS, FILTER, DICTIONARY, FOOTER, DIRECTORY_PAGE = (
    range(1, 12)
)
MAGIC = b"\x89ESDB\r\n\x1a"
HEADER_SIZE, TRAILER_SIZE, FRAME_SIZE = 16, 48, 24
PAGE_LEAVES = 256  # in each directory page but the last
MOST_ENTRIES = 131_072  # of a leaf, an index page and the like
KEY_COLUMNS = ("space", "grouping", "timestamp")
STATISTICS = ("events", "spaces", "runs", "data_blocks", "min_timestamp", "max_timestamp", "indexes")


class Block(NamedTuple):
    """The contents of a frame."""

    count: int
    dictionary: int
    body: bytes
    chunks: bytes = b""
    """Of a data block, whose body is only its head here."""


def read_block(data: bytes, handle: Handle, kind: int) -> Block:
    """Read and verify the block of a handle."""
    end = handle.offset + handle.length
    require(handle.offset >= HEADER_SIZE and end <= len(data) - TRAILER_SIZE, "it does not lie within the file")
    require(FRAME_SIZE <= handle.length <= 2**30, f"a length of {handle.length}")
    covered = end - 8
    if kind == DATA:  # the checksum follows the head of the body
        require(handle.length >= FRAME_SIZE + 16, "too short for the head of a data block")
        covered = handle.offset + 32 + 16 * int.from_bytes(data[handle.offset + 28 : handle.offset + 32], "little")
        require(covered + 8 <= end, "the head of a data block is longer than the block")
    framed, checksum = data[handle.offset : covered], u64_at(data, covered)
    require(checksum & M32 == handle.check, "another block lies here")
    require(xxh3(framed) == checksum, "the checksum does not match")
    magic, found, reserved, dictionary, size, count = struct.unpack_from("<4sBBHII", framed)
    require(
        magic == b"ESBK" and found == kind and size == handle.length - FRAME_SIZE, "the frame's magic, kind or length"
    )
    require(reserved == 0 and (kind == DATA or dictionary == 0), "a reserved field is not 0")
    return Block(count, dictionary, framed[16:], data[covered + 8 : end])


def read_trailer(data: bytes) -> Handle:
    """Check header and trailer, and return the handle of the footer."""
    require(len(data) >= HEADER_SIZE + FRAME_SIZE + TRAILER_SIZE, f"{len(data)} bytes are too few for a segment")
    trailer = data[-TRAILER_SIZE:]
    require(trailer[40:] == MAGIC[::-1], "no trailer at the end: no segment, or cut short")
    opening, offset, length, check, major, minor, reserved, checksum = struct.unpack("<QQIIHHIQ", trailer[:40])
    require(xxh3(trailer[:32]) == checksum, "the trailer's checksum does not match")
    if major != 1:
        raise TooNew(f"major version {major}")
    require(reserved == 0, "a reserved field of the trailer is not 0")
    require(HEADER_SIZE <= opening <= offset and offset + length == len(data) - TRAILER_SIZE, "the footer's place")
    require(data[:HEADER_SIZE] == struct.pack("<8sHHI", MAGIC, major, minor, 0), "the header is damaged")
    return Handle(offset, length, check)


def read_footer(block: Block, end: int) -> dict[tuple[int, int, int], Handle]:
    """Read the offset table: (kind, ordinal, copy) -> handle. Unknown kinds are kept, but not used."""
    cursor, entries = Cursor(block.body), {}
    for _ in range(block.count):
        kind, copy, ordinal, *handle = cursor.fields("BBHQII")
        entries[kind, ordinal, copy] = Handle(*handle)
    cursor.end()
    require(all(copy <= 1 for _, _, copy in entries), "a copy beyond the spare one")
    require(list(entries) == sorted(entries) and len(entries) == block.count, "the entries are not in order")
    require((METADATA, 0, 0) in entries and (DIRECTORY_ROOT, 0, 0) in entries, "metadata or directory are missing")
    for handle in entries.values():  # also of copies that are not read
        require(handle.offset >= HEADER_SIZE and handle.offset + handle.length <= end, "a handle out of the file")
        require(FRAME_SIZE <= handle.length <= 2**30, f"a length of {handle.length}")
    return entries


def check_opening(entries: dict[tuple[int, int, int], Handle], start: int) -> None:
    """Check that a block begins at the opening offset, and that needed blocks, but no filters or copies, follow it."""
    behind = {key: handle for key, handle in entries.items() if handle.offset >= start}
    needed = {key for key in entries if key[0] in (DICTIONARY, DIRECTORY_ROOT, METADATA) and key[2] == 0}
    require(needed <= behind.keys(), "the opening offset lies behind what opening needs")
    require(not any(kind == FILTER or copy for kind, _, copy in behind), "the opening offset lies too early")
    require(min(handle.offset for handle in behind.values()) == start, "the opening offset lies too early")


def read_metadata(block: Block) -> Json:
    """Read the metadata, and check all names that this reader uses."""
    try:
        metadata = json.loads(text(block.body))
        require(metadata["format"] == "esdb", f"the format is {metadata['format']!r}")
        require(metadata["schema"]["keys"] in ("text", "binary"), f"the keys are {metadata['schema']['keys']!r}")
        columns = metadata["schema"]["columns"]
        check_type({"struct": columns}, -1)
        require(all(isinstance(c["indexed"], bool) for c in columns), "a column is damaged")
        names = [*KEY_COLUMNS, *(c["name"] for c in columns)]
        require(len(set(names)) == len(names), "two columns of the same name")
        require(all(c["type"] in INDEXED_TYPES for c in columns if c["indexed"]), "an index on a type that has none")
        require(metadata["statistics"].keys() >= set(STATISTICS), "statistics are missing")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise Corrupt(repr(error)) from error
    return metadata


def read_dictionary(block: Block, schema: list[Json]) -> dict[int, ColumnDictionary]:
    """Read the entries of a dictionary block, by column."""
    cursor, columns = Cursor(block.body), {}
    for _ in range(block.count):
        column, templates, zstd_size, values = cursor.fields("HHII")
        require(column < len(schema) and values <= MOST_ENTRIES, f"column {column}, {values} values")
        columns[column] = entry = ColumnDictionary()
        if zstd_size:
            entry.zstd = zstandard.ZstdCompressionDict(cursor.take(zstd_size))
        if values:
            entry.values = read_node(cursor, schema[column]["type"], values)
            require(None not in entry.values, "a null in a dictionary")
        if templates:
            require(storage(schema[column]["type"])[0] == BYTES, f"templates of column {column}")
            entry.templates = read_templates(cursor, templates)
    cursor.end()
    return columns


# ── Directory (§ 11) ────────────────────────────────────────────────────────────────────────────────────────────────

Key = tuple[bytes, bytes]  # space, grouping


@dataclass
class Leaf:
    """Runs of rows, and the data blocks that contain them. Times are (smallest, largest)."""

    keys: list[Key]
    run_rows: list[int]
    block_rows: list[int]
    handles: list[Handle]
    times: list[tuple[int, int]]


def read_keys(cursor: Cursor, count: int) -> list[Key]:
    spaces, groupings = read_texts(cursor, count), read_texts(cursor, count)
    return list(zip(spaces, groupings, strict=True))


def read_times(cursor: Cursor, count: int) -> list[tuple[int, int]]:
    """Read pairs of times. The largest are stored as differences from the smallest, modulo 2^64."""
    lows, spans = read_pack(cursor, count), read_pack(cursor, count)
    return [(low, signed(low + span)) for low, span in zip(lows, spans, strict=True)]


class Entry(NamedTuple):
    """The entry for a leaf in the root or a page, or for a page in the root."""

    space: bytes
    runs: int
    rows: int
    blocks: int
    data_offset: int
    handle: Handle
    times: tuple[int, int]


def read_entries(cursor: Cursor, count: int) -> list[Entry]:
    """Read the rest of a body: `count` entries."""
    require(count <= len(cursor.data), f"{count} entries")
    spaces = read_texts(cursor, count)
    counts = (read_counts(cursor, count) for _ in range(4))
    entries = map(Entry, spaces, *counts, read_handles(cursor, count), read_times(cursor, count))
    found = list(entries)
    cursor.end()
    require(all(a <= b for a, b in pairwise(spaces)), "the first spaces descend")
    return found


def read_leaf(block: Block, first_offset: int) -> Leaf:
    cursor = Cursor(block.body)
    (blocks,) = cursor.fields("I")
    require(1 <= blocks <= 256 and 1 <= block.count <= MOST_ENTRIES, f"{blocks} blocks, {block.count} runs")
    run_rows, keys = read_counts(cursor, block.count), read_keys(cursor, block.count)
    block_rows, lengths, checks = (read_counts(cursor, blocks) for _ in range(3))
    times = read_times(cursor, blocks)
    cursor.end()
    offsets = accumulate(lengths[:-1], initial=first_offset)
    handles = [Handle(*parts) for parts in zip(offsets, lengths, checks, strict=True)]
    require(sum(run_rows) == sum(block_rows), "the runs do not add up to the blocks' rows")
    require(all(a < b for a, b in pairwise(keys)), "the runs do not ascend")
    return Leaf(keys, run_rows, block_rows, handles, times)


# ── Posting lists and space filter (§ 12, 13) ───────────────────────────────────────────────────────────────────────

SALTS = (0x47B6137B, 0x44974D91, 0x8824AD5B, 0xA2B7289D, 0x705495C7, 0x2DF1424B, 0x9EFC4947, 0x5C6BFB31)


def read_list(body: bytes) -> list[int]:
    cursor = Cursor(body)
    count, first = cursor.fields("IQ")
    require(1 <= count <= 4096, f"a list of {count} numbers")
    steps = read_pack(cursor, count - 1)
    cursor.end()
    require(min(steps, default=1) >= 1, "a posting list does not ascend")
    return list(accumulate(steps, initial=first))


def may_hold(pages: list[bytes], space: bytes) -> bool:
    """Whether the filter accepts a space. It never rejects one that is in the file."""
    buckets = sum(map(len, pages)) // 32
    h = xxh3(space)
    page, bucket = divmod((h >> 32) * buckets >> 32, 2048)
    words = struct.unpack_from("<8I", pages[page], 32 * bucket)
    return all(word >> ((h * salt & M32) >> 27) & 1 for word, salt in zip(words, SALTS, strict=True))


# ── The file ────────────────────────────────────────────────────────────────────────────────────────────────────────


class Rows(NamedTuple):
    """A decoded data block: the key and timestamp of each row, and the columns."""

    keys: list[Key]
    times: list[int]
    columns: list[list[Any]]


class File:
    """A whole segment in memory."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        footer = read_trailer(data)
        with inside("footer"):
            self.entries = read_footer(read_block(data, footer, FOOTER), footer.offset)
            check_opening(self.entries, *struct.unpack_from("<Q", data, len(data) - TRAILER_SIZE))
        with inside("metadata"):
            self.metadata = read_metadata(self.block((METADATA, 0), METADATA))
        self.schema: list[Json] = self.metadata["schema"]["columns"]
        self.names: list[str] = [column["name"] for column in self.schema]
        with inside("dictionary"):
            numbers = [ordinal for kind, ordinal, copy in self.entries if (kind, copy) == (DICTIONARY, 0)]
            self.dictionaries = {
                n: read_dictionary(self.block((DICTIONARY, n), DICTIONARY), self.schema) for n in numbers
            }

    def block(self, where: Handle | tuple[int, int], kind: int) -> Block:
        """The block of a handle, or of a kind and ordinal in the footer."""
        return read_block(self.data, where if isinstance(where, Handle) else self.entries[*where, 0], kind)

    # ── Events (§ 10) ───────────────────────────────────────────────────────────────────────────────────────────────

    def leaves(self) -> Iterator[Leaf]:
        with inside("directory root"):
            root = self.block((DIRECTORY_ROOT, 0), DIRECTORY_ROOT)
            cursor = Cursor(root.body)
            (leaves,) = cursor.fields("I")
            entries = read_entries(cursor, root.count)
        if root.count != leaves:
            entries = [leaf for page in self.pages(entries, leaves) for leaf in page]
        for said in entries:
            with inside(f"directory leaf at byte {said.handle.offset}"):
                leaf = read_leaf(self.block(said.handle, DIRECTORY), said.data_offset)
                found = (leaf.keys[0][0], len(leaf.keys), sum(leaf.run_rows), len(leaf.handles))
                require(found == said[:4], f"the root says otherwise than {found}")
                span = (min(low for low, _ in leaf.times), max(high for _, high in leaf.times))
                require(span == said.times, "the root says another time span")
            yield leaf

    def pages(self, entries: list[Entry], leaves: int) -> Iterator[list[Entry]]:
        """Yield the entries of each page that the root names, checked against the root."""
        require(len(entries) == -(-leaves // PAGE_LEAVES), f"{len(entries)} pages of {leaves} leaves")
        for i, said in enumerate(entries):
            with inside(f"directory page at byte {said.handle.offset}"):
                page = self.block(said.handle, DIRECTORY_PAGE)
                require(page.count == min(PAGE_LEAVES, leaves - PAGE_LEAVES * i), f"{page.count} leaves")
                found = read_entries(Cursor(page.body), page.count)
                require(
                    found[0].space == said.space and found[0].data_offset == said.data_offset, "it begins elsewhere"
                )
                sums = tuple(sum(counts) for counts in zip(*(leaf[1:4] for leaf in found), strict=True))
                require(sums == said[1:4], f"the root says otherwise than {sums}")
                span = (min(leaf.times[0] for leaf in found), max(leaf.times[1] for leaf in found))
                require(span == said.times, "the root says another time span")
            yield found

    def data_blocks(self) -> Iterator[Rows]:
        """Yield every data block, checked against its leaf."""
        for leaf in self.leaves():
            keys = iter([key for key, n in zip(leaf.keys, leaf.run_rows, strict=True) for _ in range(n)])
            for handle, count, span in zip(leaf.handles, leaf.block_rows, leaf.times, strict=True):
                with inside(f"data block at byte {handle.offset}"):
                    rows = self.read_data(self.block(handle, DATA))
                    require(len(rows.times) == count, f"{len(rows.times)} rows, the directory says {count}")
                    require(rows.keys == [next(keys) for _ in range(count)], "other keys than the directory's")
                    require((min(rows.times), max(rows.times)) == span, "another time span than the directory's")
                yield rows

    def read_data(self, block: Block) -> Rows:
        cursor = Cursor(block.body)
        base, runs, chunk_count = cursor.fields("qII")
        require(1 <= runs <= block.count <= 65536, f"{runs} runs, {block.count} rows")
        require(chunk_count == 2 + len(self.schema), f"{chunk_count} chunks for {len(self.schema)} columns")
        table = [cursor.fields("IIQ") for _ in range(chunk_count)]
        cursor.end()
        end = 0
        for offset, size, _ in sorted(table):
            require(offset == end, "the chunks leave gaps, or overlap")
            end += size
        require(end == len(block.chunks), "the chunks do not add up to the block")
        stored = [block.chunks[offset : offset + size] for offset, size, _ in table]
        for place, (chunk, (_, _, checksum)) in enumerate(zip(stored, table, strict=True)):
            require(xxh3(chunk) == checksum, f"the checksum of chunk {place} does not match")
        key_chunk, time_chunk, *chunks = map(Cursor, stored)

        run_rows = read_counts(key_chunk, runs)
        require(sum(run_rows) == block.count and 0 not in run_rows, "the runs do not add up to the rows")
        keys = [key for key, n in zip(read_keys(key_chunk, runs), run_rows, strict=True) for _ in range(n)]
        key_chunk.end()

        times: list[int] = []
        first_rows = set(accumulate(run_rows, initial=0))
        for row, number in enumerate(read_pack(time_chunk, block.count)):
            times.append(signed((base if row in first_rows else times[-1]) + number))
            require(row in first_rows or times[-1] >= times[-2], "timestamps decrease within a run")
        require(min(times) == base, "the base is not the smallest timestamp")
        time_chunk.end()

        require(not block.dictionary or block.dictionary in self.dictionaries, f"no dictionary {block.dictionary}")
        dictionaries = self.dictionaries[block.dictionary] if block.dictionary else {}
        columns = []
        for place, (child, chunk) in enumerate(zip(self.schema, chunks, strict=True)):
            columns.append(read_child(chunk, child, block.count, dictionaries.get(place, NO_DICTIONARY)))
            chunk.end()
        return Rows(keys, times, columns)

    def events(self) -> Iterator[Json]:
        shown = text if self.metadata["schema"]["keys"] == "text" else bytes
        for rows in self.data_blocks():
            for row, (space, grouping) in enumerate(rows.keys):
                event = {"space": shown(space), "grouping": shown(grouping), "timestamp": rows.times[row]}
                yield event | {"columns": {name: c[row] for name, c in zip(self.names, rows.columns, strict=True)}}

    # ── Indexes (§ 12) ──────────────────────────────────────────────────────────────────────────────────────────────

    def index(self, name: str) -> Iterator[tuple[Any, list[int]]]:
        """Yield the values of an index in ascending order, each with the rows that have it."""
        require(name in self.names, f"there is no column {name!r}")
        column = self.names.index(name)
        require((INDEX_ROOT, column, 0) in self.entries, f"there is no index {name!r}")
        blocks = [rows.columns[column] for rows in self.data_blocks()]
        first_rows = list(accumulate(map(len, blocks), initial=0))
        with inside(f"index {name!r}"):
            for value, events, form, numbers in self.postings(column):
                require(numbers[-1] < (len(blocks) if form & 1 else first_rows[-1]), f"a list goes on to {numbers[-1]}")
                rows = numbers
                if form & 1:  # the list has block numbers; the column has the rows in each
                    held = [[i for i, found in enumerate(blocks[b], first_rows[b]) if found == value] for b in numbers]
                    require(all(held), f"a block that is listed does not hold {value!r}")
                    rows = [row for part in held for row in part]
                require(len(rows) == events, f"{len(rows)} events of {value!r}, the page says {events}")
                yield value, rows

    def postings(self, column: int) -> Iterator[tuple[Any, int, int, list[int]]]:
        """Yield (value, number of events, form, numbers in its list) for every value."""
        kind = self.schema[column]["type"]
        root = self.block((INDEX_ROOT, column), INDEX_ROOT)
        require(root.count <= len(self.data), f"an index of {root.count} pages")
        cursor = Cursor(root.body)
        firsts, counts = read_node(cursor, kind, root.count), read_counts(cursor, root.count)
        handles = read_handles(cursor, root.count)
        cursor.end()
        last: list[Any] = []
        for first, count, handle in zip(firsts, counts, handles, strict=True):
            page = self.block(handle, INDEX)
            require(1 <= page.count == count <= MOST_ENTRIES, f"an index page of {page.count} values")
            cursor = Cursor(page.body)
            values = read_node(cursor, kind, count)
            require(values[0] == first and None not in values, "an index page differs from the root")
            require(all(a < b for a, b in pairwise([*last, *values])), "the values do not ascend")
            last = values[-1:]
            events, forms, lengths = (read_counts(cursor, count) for _ in range(3))
            for value, n, form, length in zip(values, events, forms, lengths, strict=True):
                if form > 3:
                    raise TooNew(f"a posting list of form {form}")
                stored = cursor.take(length)
                yield value, n, form, self.read_chunks(stored) if form & 2 else read_list(stored)
            cursor.end()

    def read_chunks(self, stored: bytes) -> list[int]:
        cursor = Cursor(stored)
        (count,) = cursor.fields("I")
        require(1 <= count <= MOST_ENTRIES, f"a chunk table of {count} chunks")
        firsts, handles = read_pack(cursor, count), read_handles(cursor, count)
        cursor.end()
        numbers: list[int] = []
        for first, handle in zip(firsts, handles, strict=True):
            block = self.block(handle, POSTINGS)
            chunk = read_list(block.body)
            require(len(chunk) == block.count and chunk[0] == first, "a chunk differs from its table")
            require(not numbers or numbers[-1] < first, "the chunks do not ascend")
            numbers += chunk
        return numbers

    # ── Counts ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def facts(self) -> dict[str, Json]:
        """Count the contents of the file, and compare them with the statistics and the filter."""
        counted: dict[str, Json] = dict.fromkeys(("events", "spaces", "runs", "data_blocks"), 0)
        times: set[int] = set()
        last: Key | None = None
        pages = [self.block((FILTER, n), FILTER).body for kind, n, copy in self.entries if (kind, copy) == (FILTER, 0)]
        for rows in self.data_blocks():
            counted["data_blocks"] += 1
            counted["events"] += len(rows.times)
            times = {*times, min(rows.times), max(rows.times)}
            for key in rows.keys:
                if key != last:
                    require(last is None or last < key, "events are not sorted by space and grouping")
                    counted["runs"] += 1
                    counted["spaces"] += last is None or key[0] != last[0]
                    require(not pages or may_hold(pages, key[0]), f"the filter turns away {key[0]!r}, which is here")
                    last = key
        counted |= {"min_timestamp": min(times, default=None), "max_timestamp": max(times, default=None), "indexes": {}}
        for name in (column["name"] for column in self.schema if column["indexed"]):
            sizes = [len(rows) for _, rows in self.index(name)]
            counted["indexes"][name] = {"values": len(sizes), "events": sum(sizes)}
        for name, number in counted.items():
            stated = self.metadata["statistics"][name]
            require(stated == number, f"the statistics say {name} = {stated}, counted {number}")
        assumed = {"codec": "zstd", "level": None, "properties": {}} | self.metadata
        other = {name: assumed[name] for name in ("codec", "level", "properties", "schema")}
        return {"size": len(self.data), **counted, **other}


def line(value: Json) -> str:
    """Format JSON as this command prints it."""
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
            print(line(file.facts()))
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
