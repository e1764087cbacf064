"""Decide how the values at a path are stored: as numbers, as an enumeration, in parts, or as strings."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from esformat.format.templates import Kind, Variable
from esformat.write.cuts import cut_texts
from esformat.write.variables import FEW_VALUES, STRING, Part, affixed, as_numbers, beginning, ending, few_values

MANY_NUMBERS = 8
"""A prefix is separated from the number after it if at least this many texts, on average, share it."""
MOST_VALUES = 4096
MOST_VALUE_BYTES = 64 << 10
"""Most bytes of all values of one enumeration."""
LONGEST_VALUE = 255
LEAST_OFTEN = 3
"""A text must occur at least this often to become an enumeration value, because the file stores such values twice."""
MOST_STRINGS = 4
"""Texts are split into parts if at most one byte in this many remains in parts that are strings."""

_NUMBERED = re.compile(rb"(.*[^-\d])(0|[1-9]\d{0,17})", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Column:
    """How the values at a path are stored: as `parts`, or as `loose` if they are in no enumeration.

    quoted: all of them are texts, and their quotes are part of the template. open: the enumeration is probably
    incomplete, because some values are rare in the sample.
    """

    parts: tuple[Part, ...]
    loose: tuple[Part, ...]
    quoted: bool
    open: bool


def column_of(values: Sequence[bytes], scale: float) -> Column:
    """How texts at one place of a sample are stored. scale: approximately how many times as many the file has."""
    quoted = all(value[:1] == b'"' for value in values)
    counts = Counter(value[1:-1] if quoted else value for value in values)
    typed = as_numbers(list(counts)) or affixed(list(counts))
    parts = _in_parts(counts) if quoted and typed is None else None  # words of lines are parts already
    loose = typed or _numbered(list(counts)) or parts or (STRING,)
    repeated = 4 * len(counts) <= len(values)  # otherwise the enumeration has only frequent values, if these are many
    least = max(math.ceil(LEAST_OFTEN / scale), 0 if repeated else LEAST_OFTEN)
    often = Counter({text: n for text, n in counts.items() if n >= least and len(text) <= LONGEST_VALUE})
    if typed is not None:
        enough = few_values(values)
    else:
        enough = (repeated or loose == (STRING,)) and 2 * often.total() >= len(values)
    if not enough or not _may_be_listed(often):
        return Column(loose, loose, quoted, False)
    return Column((_enumeration(often),), loose, quoted, len(often) < len(counts) or 1 in counts.values())


def _numbered(texts: Sequence[bytes]) -> tuple[Part, ...] | None:
    """An enumeration followed by a number, as in page addresses; None if the texts do not look like that."""
    found = [_NUMBERED.fullmatch(text) for text in texts]
    beginnings = list({match[1] for match in found if match is not None})
    if None in found or len(beginnings) > FEW_VALUES or MANY_NUMBERS * len(beginnings) > len(texts):
        return None
    before = beginning(beginnings)
    after = ending([text[len(before) :] for text in beginnings])
    inner = Counter(match[1][len(before) : -len(after)] for match in found if match is not None) if after else Counter()
    if len(inner) < 2 or any(after in text for text in inner) or not _may_be_listed(list(inner)):
        return None  # because the matcher ends the value at the first `after`
    return tuple(part for part in (before, _enumeration(inner), after, Variable(Kind.INTEGER)) if part)


def _in_parts(counts: Counter[bytes]) -> tuple[Part, ...] | None:
    """Numbers, few values and strings between separators; None if too much of the text would be in strings."""
    cut = cut_texts(list(counts.elements()))
    if len(cut.literals) == 2:
        return None
    made: list[Part] = [cut.literals[0]]
    strings = 0
    for place, literal in enumerate(cut.literals[1:]):
        inner: Counter[bytes] = Counter()
        for text, parts in cut.parts.items():
            inner[parts[place]] += counts[text]
        different = list(inner)
        numbers = as_numbers(different) or affixed(different)
        if len(different) == 1 and numbers is None:
            made += different
        elif len(different) > 1 and few_values(list(inner.elements())) and _may_be_listed(different):
            made.append(_enumeration(inner))
        elif numbers is not None:
            made += numbers
        else:
            made.append(STRING)
            strings += sum(len(text) * count for text, count in inner.items())
        made.append(literal)
    if MOST_STRINGS * strings > sum(len(text) * count for text, count in counts.items()):
        return None
    return tuple(part for part in made if part)


def _may_be_listed(texts: Collection[bytes]) -> bool:
    """Whether texts are a valid enumeration that is not too large."""
    longest = max(map(len, texts), default=0)
    return 0 < len(texts) <= MOST_VALUES and longest <= LONGEST_VALUE and sum(map(len, texts)) <= MOST_VALUE_BYTES


def _enumeration(counts: Counter[bytes]) -> Variable:
    """An enumeration of the values, the most frequent first."""
    return Variable(Kind.ENUM, 0, tuple(sorted(counts, key=lambda text: (-counts[text], text))))
