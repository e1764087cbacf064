"""How texts that stand at one place of many values are stored: as numbers, from a list, or as they are."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from esformat.format.templates import Kind, Variable

FEW_VALUES = 255
"""So many make an enumeration of numbers, too; each must occur often."""
MANY_NUMBERS = 8
"""A beginning of texts is told from the number behind it if so many, on average, have the same."""
MOST_VALUES = 4096
MOST_VALUE_BYTES = 64 << 10
"""What the values of one enumeration may take together."""
LONGEST_VALUE = 255
LEAST_OFTEN = 3
"""A text that a file has less often is no value of an enumeration, which the file has twice."""

INTEGER = re.compile(rb"0|-?[1-9]\d{0,17}")
_DECIMAL = re.compile(rb"(?!-0\.0*$)-?(?:0|[1-9]\d*)\.(\d+)")
_DIGITS = re.compile(rb"\d+")
_NUMBERED = re.compile(rb"(.*[^-\d])(0|[1-9]\d{0,17})", re.DOTALL)
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
"""How the forms of dates look, by number. A day that its month does not have is found out when the row is matched."""

Part = bytes | Variable
STRING = Variable(Kind.STRING)


@dataclass(frozen=True, slots=True)
class Column:
    """How the values at a path are stored, and how those that no enumeration has.

    quoted: all of them are texts, whose quotes the template has. open: the sample has values once, so that there are
    likely others, which an enumeration of it does not have.
    """

    parts: tuple[Part, ...]
    loose: tuple[Part, ...]
    quoted: bool
    open: bool


def column_of(values: Sequence[bytes], scale: float) -> Column:
    """How texts that a sample has at one place are stored. scale: how many times as many the file has, about."""
    quoted = all(value[:1] == b'"' for value in values)
    counts = Counter(value[1:-1] if quoted else value for value in values)
    typed = as_numbers(list(counts)) or affixed(list(counts))
    loose = typed or _numbered(list(counts)) or (STRING,)
    repeated = 4 * len(counts) <= len(values)  # else those that are the same again and again, if they are many
    least = max(math.ceil(LEAST_OFTEN / scale), 0 if repeated else LEAST_OFTEN)
    often = Counter({text: n for text, n in counts.items() if n >= least and len(text) <= LONGEST_VALUE})
    if typed is not None:
        enough = few_values(values)
    else:
        enough = (repeated or loose == (STRING,)) and 2 * often.total() >= len(values)
    if not enough or not _may_be_listed(often):
        return Column(loose, loose, quoted, False)
    return Column((_enumeration(often),), loose, quoted, len(often) < len(counts) or 1 in counts.values())


def few_values(texts: Sequence[bytes]) -> bool:
    """Whether texts are the same few again and again."""
    different = len(set(texts))
    return 32 * different <= len(texts) and different <= FEW_VALUES


def affixed(texts: Sequence[bytes]) -> tuple[Part, ...] | None:
    """Variables of numbers between what all of the texts begin and end with; None where there are none."""
    prefix = _beginning(texts)
    suffix = _beginning([text[len(prefix) :][::-1] for text in texts])[::-1].lstrip(b"0123456789")
    for before, after in ((b"", suffix), (prefix.rstrip(b"0123456789"), suffix)):
        inner = as_numbers([text[len(before) : len(text) - len(after)] for text in texts])
        if inner is not None and (before or after):
            return tuple(part for part in (before, *inner, after) if part)
    return None


def _numbered(texts: Sequence[bytes]) -> tuple[Part, ...] | None:
    """An enumeration, and a number behind it, as in the addresses of pages; None where texts do not look like that."""
    found = [_NUMBERED.fullmatch(text) for text in texts]
    beginnings = list({match[1] for match in found if match is not None})
    if None in found or len(beginnings) > FEW_VALUES or MANY_NUMBERS * len(beginnings) > len(texts):
        return None
    before = _beginning(beginnings)
    after = _beginning([text[len(before) :][::-1] for text in beginnings])[::-1]
    inner = Counter(match[1][len(before) : -len(after)] for match in found if match is not None) if after else Counter()
    if len(inner) < 2 or any(after in text for text in inner) or not _may_be_listed(list(inner)):
        return None  # the matcher takes what stands before the first `after`
    return tuple(part for part in (before, _enumeration(inner), after, Variable(Kind.INTEGER)) if part)


def _beginning(texts: Sequence[bytes]) -> bytes:
    """What all texts begin with."""
    first, last = min(texts), max(texts)
    size = next((at for at, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), min(len(first), len(last)))
    return first[:size]


def _may_be_listed(texts: Collection[bytes]) -> bool:
    """Whether texts make an enumeration that is not too large."""
    longest = max(map(len, texts), default=0)
    return 0 < len(texts) <= MOST_VALUES and longest <= LONGEST_VALUE and sum(map(len, texts)) <= MOST_VALUE_BYTES


def _enumeration(counts: Counter[bytes]) -> Variable:
    """The values, those that occur often first."""
    return Variable(Kind.ENUM, 0, tuple(sorted(counts, key=lambda text: (-counts[text], text))))


def as_numbers(texts: Sequence[bytes]) -> tuple[Part, ...] | None:
    """Variables of numbers that give all of the texts; None where there are none."""
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
