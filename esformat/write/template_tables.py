"""Build templates from skeletons: what many values have in common, and how the differing parts are stored."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

from esformat.format.templates import Kind, Template, TemplateTable, Variable
from esformat.write.value_columns import Column, column_of
from esformat.write.variables import STRING, Part, as_numbers

LEAST_ROWS = 8
LEAST_PART = 16
"""A skeleton of at least one row in this many gets a template for each combination of up to MOST_LACKING enumerations
that may lack a value.
"""
MOST_LACKING = 3
Path = tuple[bytes, ...]
PartsOf = Callable[[Path, Column], tuple[Part, ...]]
"""Returns how a template stores the values at a path."""


@dataclass(slots=True)
class Skeleton:
    """What some rows have in common: the `literals` between values at `paths`."""

    literals: tuple[bytes, ...]
    paths: tuple[Path, ...]
    rows: Sequence[Sequence[bytes]] = ()


def covered(skeletons: Sequence[Skeleton]) -> int:
    """The number of rows that have one of these skeletons."""
    return sum(len(each.rows) for each in skeletons)


class Tables:
    """Builds templates from skeletons."""

    def __init__(self, skeletons: Sequence[Skeleton], rest: Sequence[Skeleton], scale: float) -> None:
        """rest: skeletons for values that match no other. scale: how many times as many values the file has."""
        self._skeletons = [*skeletons, *rest]
        self._rest = len(rest)
        self._constants = [_constants(skeleton) for skeleton in self._skeletons]
        values: defaultdict[Path, list[bytes]] = defaultdict(list)
        for skeleton, constants in zip(self._skeletons, self._constants, strict=True):
            for place, path in enumerate(skeleton.paths):
                if constants[place] is None:
                    values[path] += [row[place] for row in skeleton.rows]
        self._columns = {path: column_of(held, scale) for path, held in values.items()}
        self._variables: list[Variable] = []
        self._numbers: dict[tuple[Path, int, Variable], int] = {}

    def table(self) -> TemplateTable | None:
        """All templates, the strictest first; the last one matches any row. None if that would be the only one."""
        first = len(self._skeletons) - self._rest
        made = [*self._templates(range(first)), *self._templates(range(first, len(self._skeletons)))]
        clear = filter(self._is_clear, made)
        useful = dict.fromkeys(each for each in clear if any(each.literals) or not self._is_text(each))
        whole = Template((b"", b""), (len(self._variables),))
        return TemplateTable((*self._variables, STRING), (*useful, whole)) if useful else None

    def _is_clear(self, template: Template) -> bool:
        """Whether the end of each text can be found: words of a line may touch, as in `" "x`."""
        texts = (self._variables[slot].kind in (Kind.STRING, Kind.ENUM) for slot in template.slots[:-1])
        return all(literal or not text for text, literal in zip(texts, template.literals[1:], strict=False))

    def _is_text(self, template: Template) -> bool:
        """Whether a template consists only of strings."""
        return all(self._variables[slot] is STRING for slot in template.slots)

    def _templates(self, numbers: Sequence[int]) -> Iterator[Template]:
        """The templates of some skeletons: unchanged; without the enumerations that are likely incomplete; without any
        enumerations; with strings only.
        """
        for number in numbers:
            yield from (self._template(number, _without(lacking)) for lacking in self._lacking(number))
        for parts_of in (_without_open, _loose, _of_strings):
            yield from (self._template(number, parts_of) for number in numbers)

    def _lacking(self, number: int) -> list[frozenset[Path]]:
        """Sets of enumerations that may lack a row's values, smallest first: of those with the longest values."""
        skeleton = self._skeletons[number]
        if LEAST_PART * len(skeleton.rows) < covered(self._skeletons):
            return [frozenset()]
        sizes = {
            path: sum(len(row[place]) for row in skeleton.rows)
            for place, path in enumerate(skeleton.paths)
            if self._constants[number][place] is None and self._columns[path].open
        }
        longest = sorted(sizes, key=lambda path: -sizes[path])[:MOST_LACKING]
        return [frozenset(some) for count in range(len(longest) + 1) for some in combinations(longest, count)]

    def _template(self, number: int, parts_of: PartsOf) -> Template:
        """The template of a skeleton. parts_of: returns how the values at a path are stored."""
        skeleton = self._skeletons[number]
        literals, slots = [b""], []
        for place, path in enumerate(skeleton.paths):
            literals[-1] += skeleton.literals[place]
            constant = self._constants[number][place]
            if constant is not None:
                literals[-1] += constant
                continue
            column = self._columns[path]
            literals[-1] += b'"' * column.quoted
            for at, part in enumerate(parts_of(path, column)):
                if isinstance(part, bytes):
                    literals[-1] += part
                else:
                    slots.append(self._number(path, at, part))
                    literals.append(b"")
            literals[-1] += b'"' * column.quoted
        literals[-1] += skeleton.literals[-1]
        return Template(tuple(literals), tuple(slots))

    def _number(self, path: Path, at: int, variable: Variable) -> int:
        key = (path, at if variable is not STRING else -1, variable)
        if key not in self._numbers:
            self._numbers[key] = len(self._variables)
            self._variables.append(variable)
        return self._numbers[key]


def _constants(skeleton: Skeleton) -> list[bytes | None]:
    """For each place, the text that all rows have there; None if they differ, and for numbers, as others may follow."""
    if len(skeleton.rows) < 4 * LEAST_ROWS:
        return [None] * len(skeleton.paths)
    different = [set(texts) for texts in zip(*skeleton.rows, strict=True)]
    return [next(iter(each)) if len(each) == 1 and as_numbers(list(each)) is None else None for each in different]


def _without(lacking: Collection[Path]) -> PartsOf:
    return lambda path, column: column.loose if path in lacking else column.parts


def _without_open(_: Path, column: Column) -> tuple[Part, ...]:
    return column.loose if column.open else column.parts


def _loose(_: Path, column: Column) -> tuple[Part, ...]:
    return column.loose


def _of_strings(_: Path, _column: Column) -> tuple[Part, ...]:
    return (STRING,)
