"""Split texts at characters that all of them contain equally often, until numbers or few values remain in between."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from esformat.write.variables import affixed, as_numbers, few_values

MOST_CUTS = 6
"""How many times parts are split into smaller parts."""
MOST_PARTS = 32
_SIGNS = [bytes([sign]) for sign in b'"[](){}<>|;,= ?&:/@#_-.']
"""Characters at which texts are split, those that separate most first."""


@dataclass(frozen=True, slots=True)
class Cut:
    """A split of the texts at one place: literals, and for each text its parts between them."""

    literals: tuple[bytes, ...]
    parts: dict[bytes, tuple[bytes, ...]]


def cut_texts(texts: Sequence[bytes]) -> Cut:
    """Split texts at characters that all of them contain equally often, until numbers or few values remain."""
    counts = Counter(texts)
    return _cut_again(list(counts), counts, MOST_CUTS)


def _cut_again(texts: list[bytes], counts: Counter[bytes], depth: int) -> Cut:
    whole = Cut((b"", b""), {text: (text,) for text in texts})
    if not depth or len(texts) == 1 or is_typed(texts) or few_values(list(counts.elements())):
        return whole
    for sign in _SIGNS:
        times = texts[0].count(sign)
        if 0 < times < MOST_PARTS and all(text.count(sign) == times for text in texts):
            return _put_together(sign, {text: text.split(sign) for text in texts}, times + 1, counts, depth)
    for sign in _SIGNS:  # if some contain it more often: split off numbers before its first occurrence
        if all(sign in text for text in texts) and as_numbers([text[: text.index(sign)] for text in texts]):
            return _put_together(sign, {text: text.split(sign, 1) for text in texts}, 2, counts, depth)
    return whole


def _put_together(sign: bytes, split: dict[bytes, list[bytes]], width: int, counts: Counter[bytes], depth: int) -> Cut:
    literals = [b""]
    made: dict[bytes, list[bytes]] = {text: [] for text in split}
    for place in range(width):
        inner: Counter[bytes] = Counter()
        for text, parts in split.items():
            inner[parts[place]] += counts[text]
        cut = _cut_again(list(inner), inner, depth - 1)
        literals[-1] += (sign if place else b"") + cut.literals[0]
        literals += cut.literals[1:]
        for text, parts in split.items():
            made[text] += cut.parts[parts[place]]
    return Cut(tuple(literals), {text: tuple(parts) for text, parts in made.items()})


def is_typed(texts: Iterable[bytes]) -> bool:
    """Whether texts are all the same, or numbers that need no splitting."""
    different = list(set(texts))
    return len(different) == 1 or bool(as_numbers(different) or affixed(different))
