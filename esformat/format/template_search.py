"""Find where a text may occur in values that are stored as templates, from the templates alone, before any value is
rendered.

A text may begin in a literal or in what a slot shows, and continue from there. Following it through a template yields a
condition: certain values of an enumeration, a certain number, or nothing more. Rows of the template that meet the
condition may contain the text. The text may also be inside a string, which must then be searched. The result may
include rows without the text, but never misses a row with it.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise, product

import numpy as np
import numpy.typing as npt

from esformat.core.templates import DATE, DECIMAL, ENUM, HEX, INTEGER, PADDED, STRING, Templates

Bools = npt.NDArray[np.bool_]
Chain = tuple[tuple[int, int], ...]
"""Variables, and the number that each must have."""
Condition = list[Chain] | None
"""Chains, one of which must hold. Empty: nothing more is required. None: impossible."""

_DIGITS = b"0123456789"
_SIGNS = {INTEGER: b"-" + _DIGITS, PADDED: _DIGITS, DECIMAL: b"-." + _DIGITS, HEX: b"abcdef" + _DIGITS}
_DATE_SIGNS = b"-:T ./" + _DIGITS
_MONTHS = [b"Jan", b"Feb", b"Mar", b"Apr", b"May", b"Jun", b"Jul", b"Aug", b"Sep", b"Oct", b"Nov", b"Dec"]
MOST_BYTES = 1 << 20  # most bytes of literals and values through which texts are followed
MOST_STEPS = 10_000  # of one text through one template; beyond that, the text may be there
MOST_SLOTS = 100  # consecutive slots through which a text is followed
_INTEGER = re.compile(rb"-?\d{1,18}")
_ANY: list[Chain] = []


@dataclass(slots=True)
class Candidates:
    """Where one of some texts may occur.

    anywhere: for each code of a row (0: null), whether all rows with it may contain one, whatever their values; None if
        that is true of no code.
    possible: for each code, whether some rows may contain one.
    chains: variables and the numbers that all of them must have in a row that may contain one. numbered: those
        variables.
    strings: by variable, the texts to search for in its strings.
    are_exact: whether every row that may contain a text does contain it.
    size_bytes: memory used.
    """

    anywhere: Bools | None
    possible: Bools
    chains: tuple[tuple[tuple[int, npt.NDArray[np.int64]], ...], ...]
    numbered: frozenset[int]
    strings: Mapping[int, tuple[bytes, ...]]
    are_exact: bool
    size_bytes: int


class TemplateTexts:
    """The literals, slots and enumeration values of a column's templates as Python objects."""

    def __init__(self, templates: Templates) -> None:
        self.templates = templates
        literals, values, *numbers = templates.memory[:9]
        first, slots, literal, value_first, value, kinds, _ = (
            np.frombuffer(each, np.int32).tolist() for each in numbers
        )
        self.slots = [slots[first[t] : first[t + 1]] for t in range(templates.count)]
        self.literals = [
            [literals[literal[n] : literal[n + 1]] for n in range(first[t] + t, first[t + 1] + t + 1)]
            for t in range(templates.count)
        ]
        self.kinds = kinds[: templates.variables]
        self._value_edges = list(pairwise(value_first[: templates.variables + 1]))
        self._values, self._value = values, value
        self._is_large = len(literals) + len(values) > MOST_BYTES
        self.size_bytes = 4 * sum(map(len, templates.memory)) + 100 * sum(map(len, self.slots))
        """Memory used, in bytes."""

    @cached_property
    def listed(self) -> dict[int, list[bytes]]:
        """The values of each enumeration."""
        edges, text = self._value, self._values
        return {
            variable: [text[edges[n] : edges[n + 1]] for n in range(first, last)]
            for variable, (first, last) in enumerate(self._value_edges)
            if self.kinds[variable] == ENUM
        }

    def candidates(self, texts: Sequence[bytes]) -> Candidates:
        """Where one of some non-empty texts may occur."""
        count = len(self.slots)
        anywhere, possible = np.zeros(count + 1, np.bool_), np.zeros(count + 1, np.bool_)
        values: defaultdict[int, set[int]] = defaultdict(set)
        chains: dict[Chain, None] = {}
        strings: defaultdict[int, dict[bytes, None]] = defaultdict(dict)
        for template, text in product(range(count), texts):
            found: list[Chain] | int
            for found in _Followed(self, template, text).found() if not self._is_large else [_ANY]:
                possible[template + 1] = True
                if isinstance(found, int):
                    strings[found][text] = None
                    continue
                anywhere[template + 1] |= not found
                for chain in found:
                    if len(chain) > 1:
                        chains[chain] = None
                    else:
                        values[chain[0][0]].add(chain[0][1])
        numbers: list[tuple[tuple[int, npt.NDArray[np.int64]], ...]]
        numbers = [((variable, np.array(sorted(each), np.int64)),) for variable, each in values.items()]
        # reversed, so that numbers after enumeration values, which repeat less often, are checked first
        numbers += [tuple((variable, np.array([n], np.int64)) for variable, n in reversed(chain)) for chain in chains]
        size_bytes = 500 + 2 * anywhere.nbytes + sum(200 + each.nbytes for chain in numbers for _, each in chain)
        numbered = frozenset(variable for chain in numbers for variable, _ in chain)
        sought = {variable: tuple(each) for variable, each in strings.items()}
        are_exact = not chains and not self._is_large
        are_exact = (
            are_exact
            and self._literals_contain(anywhere.nonzero()[0] - 1, texts)
            and self._values_contain(values, texts)
        )
        return Candidates(
            anywhere if anywhere.any() else None, possible, tuple(numbers), numbered, sought, are_exact, size_bytes
        )

    def _literals_contain(self, templates: Iterable[int], texts: Sequence[bytes]) -> bool:
        """Whether a literal of each of these templates contains one of the texts, so that all of its rows do."""
        return all(any(text in literal for literal in self.literals[t] for text in texts) for t in templates)

    def _values_contain(self, values: Mapping[int, Iterable[int]], texts: Sequence[bytes]) -> bool:
        """Whether each of these variable values is text that contains one of the texts."""
        return all(
            variable in self.listed and any(text in self.listed[variable][number] for text in texts)
            for variable, numbers in values.items()
            for number in numbers
        )


class _TooManyWaysError(Exception):
    """A text can be followed through a template in more ways than the search examines."""


class _Followed:
    """A text followed through one template, from each place at which it may begin."""

    def __init__(self, texts: TemplateTexts, template: int, text: bytes) -> None:
        self._texts, self._text, self._steps = texts, text, 0
        self._literals, self._slots = texts.literals[template], texts.slots[template]

    def found(self) -> list[list[Chain] | int]:
        """The condition of each beginning; only the template if following the text takes too many steps."""
        try:
            return list(self.beginnings())
        except _TooManyWaysError:
            return [_ANY]

    def _step(self, depth: int) -> None:
        self._steps += 1
        if self._steps > MOST_STEPS or depth > MOST_SLOTS:
            raise _TooManyWaysError

    def beginnings(self) -> Iterator[list[Chain] | int]:
        """Yield the condition of each beginning: chains, or the variable of the strings that may contain the text."""
        first = self._text[:1]
        for place, literal in enumerate(self._literals):
            at = literal.find(first)
            while at >= 0:
                self._step(0)
                found = self._from_literal(place, literal[at : at + len(self._text)], self._text)
                if found is not None:
                    yield found
                at = literal.find(first, at + 1)
        for place, variable in enumerate(self._slots):
            if self._texts.kinds[variable] == STRING:
                yield variable
            found = self._within_slot(place, variable)
            if found is not None:
                yield found

    def _from_literal(self, place: int, literal: bytes, rest: bytes, depth: int = 0) -> Condition:
        """The condition under which the rest of the text matches the start of a literal and continues after it."""
        size = min(len(literal), len(rest))
        if literal[:size] != rest[:size]:
            return None
        if size == len(rest):
            return _ANY
        return self._from_slot(place, rest[size:], depth) if place < len(self._slots) else None

    def _behind(self, place: int, rest: bytes, depth: int = 0) -> Condition:
        """Like `_from_literal`, for what follows a slot."""
        self._step(depth)
        return self._from_literal(place + 1, self._literals[place + 1], rest, depth + 1)

    def _from_slot(self, place: int, rest: bytes, depth: int) -> Condition:
        """The condition under which the rest of the text matches what a slot shows, and continues after it."""
        variable = self._slots[place]
        kind = self._texts.kinds[variable]
        if kind == STRING:
            return _ANY
        if kind == ENUM:
            return self._from_listed(place, variable, rest, depth)
        if kind == DATE:
            return _ANY if _may_be_of_date(rest) else None
        signs = _SIGNS[kind]
        shown = _beginning(rest, signs)
        if len(shown) == len(rest) or self._continues(place, signs):
            return _ANY if shown else None
        if not shown or self._behind(place, rest[len(shown) :], depth) is None:
            return None
        return [((variable, int(shown)),)] if kind == INTEGER and _INTEGER.fullmatch(shown) else _ANY

    def _from_listed(self, place: int, variable: int, rest: bytes, depth: int) -> Condition:
        """Like `_from_slot`, for a slot that shows enumeration values."""
        found: list[Chain] = []
        for number, value in enumerate(self._texts.listed[variable]):
            own: Chain = ((variable, number),)
            if value.startswith(rest):
                found.append(own)
            elif rest.startswith(value):
                behind = self._behind(place, rest[len(value) :], depth)
                if behind is not None:
                    found += [own + chain for chain in behind] or [own]
        return found or None

    def _within_slot(self, place: int, variable: int) -> Condition:
        """The condition under which the text begins within what a slot shows, and ends there or continues after it."""
        kind, text = self._texts.kinds[variable], self._text
        if kind == ENUM:
            ends = [cut for cut in range(1, len(text)) if self._behind(place, text[cut:]) is not None]
            found: list[Chain] = [
                ((variable, number),)
                for number, value in enumerate(self._texts.listed[variable])
                if text in value or any(value.endswith(text[:cut]) for cut in ends)
            ]
            return found or None
        if kind == STRING:
            cuts = range(1, len(text))
            return _ANY if any(self._behind(place, text[cut:]) is not None for cut in cuts) else None
        if kind == DATE:
            return _ANY if _may_be_of_date(text) else None
        shown = _beginning(text, _SIGNS[kind])
        if not shown or len(shown) == len(text) or self._continues(place, _SIGNS[kind]):
            return _ANY if shown else None
        return None if self._behind(place, text[len(shown) :]) is None else _ANY

    def _continues(self, place: int, signs: bytes) -> bool:
        """Whether what follows a number may look like more of it."""
        literal = self._literals[place + 1]
        return (not literal and place + 1 < len(self._slots)) or (literal[:1] in signs and bool(literal))


def _beginning(text: bytes, signs: bytes) -> bytes:
    """The leading bytes of a text that are in `signs`."""
    return text[: len(text) - len(text.lstrip(signs))]


def _may_be_of_date(text: bytes) -> bool:
    """Whether a text may begin in a date, judging by its first bytes."""
    if text[:1] in _DATE_SIGNS:
        return True
    parts = [month[at:] + b"/" for month in _MONTHS for at in range(3)]
    return any(text.startswith(part) or part.startswith(text) for part in parts)
