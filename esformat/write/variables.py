"""How texts at one place of many values are stored: as numbers, as an enumeration, or as strings."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from esformat.format.templates import Kind, Variable

FEW_VALUES = 255
"""At most this many distinct numbers may become an enumeration too; each must occur often."""

FEW_TEXTS = 16
"""The number of texts to test first: if these do not match, the test of all texts fails."""

INTEGER = re.compile(rb"0|-?[1-9]\d{0,17}")
_DECIMAL = re.compile(rb"(?!-0\.0*$)-?(?:0|[1-9]\d*)\.(\d+)")
_DIGITS = re.compile(rb"\d+")
_HEX = re.compile(rb"[0-9a-f]+")
_UUID = re.compile(rb"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_ADDRESS = re.compile(rb"(?:(?:0|[1-9]\d{0,2})\.){3}(?:0|[1-9]\d{0,2})")
_DATE = rb"\d{4}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12]\d|3[01])"
_MINUTE = rb"(?:[01]\d|2[0-3]):[0-5]\d"
_DAY_OF_LOG = rb"(?:0[1-9]|[12]\d|3[01])/[A-Z][a-z]{2}/\d{4}:"
_DATES = [
    re.compile(text)
    for text in (
        _DATE,
        *(
            _DATE + between + _MINUTE + rest
            for between in (b"T", b" ")
            for rest in (b"", rb":[0-5]\d", rb":[0-5]\d\.\d{3}", rb":[0-5]\d\.\d{6}")
        ),
        _DAY_OF_LOG + _MINUTE + rb":[0-5]\d",
    )
]
"""Patterns of the date forms, by number. Matching a row detects days that a month does not have."""

Part = bytes | Variable
STRING = Variable(Kind.STRING)


def few_values(texts: Sequence[bytes]) -> bool:
    """Whether texts are the same few, repeated often."""
    different = len(set(texts))
    return 32 * different <= len(texts) and different <= FEW_VALUES


def affixed(texts: Sequence[bytes]) -> tuple[Part, ...] | None:
    """Variables of numbers between the common prefix and suffix of the texts; None if there are no such variables."""
    prefix = beginning(texts)
    suffix = ending([text[len(prefix) :] for text in texts]).lstrip(b"0123456789")
    for before, after in ((b"", suffix), (prefix.rstrip(b"0123456789"), suffix)):
        if (before or after) and as_numbers(_between(before, after, texts[:FEW_TEXTS])) is not None:
            inner = as_numbers(_between(before, after, texts))
            if inner is not None:
                return tuple(part for part in (before, *inner, after) if part)
    return None


def _between(before: bytes, after: bytes, texts: Sequence[bytes]) -> list[bytes]:
    """Texts without their common prefix and suffix."""
    return [text[len(before) : len(text) - len(after)] for text in texts]


def beginning(texts: Sequence[bytes]) -> bytes:
    """The common prefix of all texts."""
    first, last = min(texts), max(texts)
    size = next((at for at, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), min(len(first), len(last)))
    return first[:size]


def ending(texts: Sequence[bytes]) -> bytes:
    """The common suffix of all texts."""
    end = texts[0]
    for text in texts:
        while not text.endswith(end):
            end = end[1:]
        if not end:
            break
    return end


def as_numbers(texts: Sequence[bytes]) -> tuple[Part, ...] | None:
    """Variables of numbers that represent all of the texts; None if there are none."""
    if not texts or not all(texts):
        return None
    shortest, longest = min(map(len, texts)), max(map(len, texts))
    if _all(INTEGER, texts):
        return (Variable(Kind.INTEGER),)
    if longest <= 19 and _all(_DECIMAL, texts):
        scales = {len(text) - text.index(b".") - 1 for text in texts}
        if len(scales) == 1:
            return (Variable(Kind.DECIMAL, scales.pop()),)
    if _all(_ADDRESS, texts):
        number = Variable(Kind.INTEGER)
        return (number, b".", number, b".", number, b".", number)
    if shortest != longest:
        return None
    if longest <= 18 and _all(_DIGITS, texts):
        return (Variable(Kind.PADDED, longest),)
    if _all(_HEX, texts):
        sizes = [16] * (longest // 16) + [longest % 16] * (longest % 16 > 0)
        return tuple(Variable(Kind.HEX, size) for size in sizes) if longest <= 128 else None
    if _all(_UUID, texts):
        first, *others = (Variable(Kind.HEX, size) for size in (8, 4, 4, 4, 12))
        return (first, *(part for other in others for part in (b"-", other)))
    form = next((form for form, pattern in enumerate(_DATES) if _all(pattern, texts)), None)
    return None if form is None else (Variable(Kind.DATE, form),)


def _all(pattern: re.Pattern[bytes], texts: Iterable[bytes]) -> bool:
    return all(map(pattern.fullmatch, texts))
