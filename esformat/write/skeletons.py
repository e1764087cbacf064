"""Templates found in a sample of JSON objects: what many of them have in common, and how what differs is stored.

A skeleton is an object without its values: keys and punctuation. Values with the same path are one variable in all
skeletons that have it. A template takes a row only where every variable gives back the same bytes; so each skeleton has
up to four, tried in this order: with enumerations, without those that likely lack values, without any, with strings
alone. The last template of all takes any row, as one string.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from esformat.format.templates import Kind, Template, TemplateTable, Variable

MOST_ROWS = 8192
"""Rows of a sample that are looked at, spread over it."""
MOST_ROW_BYTES = 8 << 10
MOST_SKELETONS = 64
MANY_SKELETONS = 8
"""More of them may come from lists of different lengths, which could be one value each."""
MOST_SKELETON_SLOTS = 256
MOST_KNOWN = 4
LEAST_SHARE = 256
"""A skeleton has a template if at least one row in so many has it."""
LEAST_ROWS = 8
FEW_VALUES = 255
"""So many make an enumeration of numbers, too; each must occur often."""
MANY_NUMBERS = 8
"""A beginning of texts is told from the number behind it if so many, on average, have the same."""
MOST_VALUES = 4096
MOST_VALUE_BYTES = 64 << 10
"""What the values of one enumeration may take together."""
LONGEST_VALUE = 255

_TEXT = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
_VALUE = _TEXT + rb'|[^{}\[\],\s":]++'
_VALUE_OR_LIST = rb"\[(?:[^\[\]{}" + rb'"]++|' + _TEXT + rb")*+\]|" + _VALUE


@dataclass(frozen=True, slots=True)
class _Form:
    """How a row is cut: keys and punctuation are the first group of `tokens`, values the second, as `value` has it."""

    tokens: re.Pattern[bytes]
    value: bytes


def _form(structure: bytes, value: bytes) -> _Form:
    key = _TEXT + rb"\s*+:"
    return _Form(re.compile(rb"((?:" + structure + rb"|" + key + rb")+)|(" + value + rb")", re.DOTALL), value)


_SCALARS = _form(rb"[{}\[\],\s]++", _VALUE)
_LISTS = _form(rb"(?:[{}\],\s]|\[(?=\s*[\[{]))++", _VALUE_OR_LIST)
"""A list without objects and lists in it is one value."""
_STEPS = re.compile(rb'("(?:[^"\\]|\\.)*")\s*:|([{}\[\]])', re.DOTALL)

_INTEGER = re.compile(rb"0|-?[1-9]\d{0,17}")
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
        *(_DATE + between + _MINUTE + rest for between in (b"T", b" ")
          for rest in (b"", rb":[0-5]\d", rb":[0-5]\d\.\d{3}", rb":[0-5]\d\.\d{6}")),
        _DAY_OF_LOG + _MINUTE + rb":[0-5]\d",
    )
]  # fmt: skip
"""How the forms of dates look, by number. A day that its month does not have is found out when the row is matched."""

Part = bytes | Variable
Path = tuple[bytes, ...]


@dataclass(slots=True)
class _Skeleton:
    """What some rows have in common: `literals` between values at `paths`."""

    literals: tuple[bytes, ...]
    paths: tuple[Path, ...]
    rows: list[Sequence[bytes]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Column:
    """How the values at a path are stored, and how those that no enumeration has.

    quoted: all of them are texts, whose quotes the template has. open: the sample has values once, so that there are
    likely others, which an enumeration of it does not have.
    """

    parts: tuple[Part, ...]
    loose: tuple[Part, ...]
    quoted: bool
    open: bool


_STRING = Variable(Kind.STRING)


def find_templates(rows: Sequence[bytes]) -> TemplateTable | None:
    """The templates of a sample; None where most rows are no JSON objects or share no skeletons."""
    step = max(1, -(-len(rows) // MOST_ROWS))
    sample = [row for row in rows[::step] if row[:1] == b"{" and len(row) <= MOST_ROW_BYTES]
    if 2 * len(sample) < len(rows[::step]) or not sample:
        return None
    found = _skeletons(sample, _SCALARS)
    if 10 * _covered(found) < 9 * len(sample) or len(found) > MANY_SKELETONS:
        others = _skeletons(sample, _LISTS)
        fewer = len(others) < len(found) and 20 * _covered(others) >= 19 * _covered(found)
        if fewer or 20 * _covered(others) > 21 * _covered(found):
            found = others
    if 2 * _covered(found) < len(sample):
        return None
    return _Tables(found).table()


def _covered(skeletons: Sequence[_Skeleton]) -> int:
    """How many rows have one of these skeletons."""
    return sum(len(each.rows) for each in skeletons)


def _skeletons(rows: Sequence[bytes], form: _Form) -> list[_Skeleton]:
    """The most frequent skeletons, with their rows' values."""
    groups: defaultdict[tuple[bytes | None, ...], list[Sequence[bytes]]] = defaultdict(list)
    known: list[
        tuple[re.Pattern[bytes], list[Sequence[bytes]]]
    ] = []  # of some skeletons, as that takes a third as long
    for row in rows:
        for pattern, values in known:
            if (match := pattern.fullmatch(row)) is not None:
                values.append(match.groups())
                break
        else:
            cut = form.tokens.split(row)  # in turns: what is no token, a literal, a value; these None for each other
            if any(cut[::3]):
                continue
            literals = tuple(cut[1::3])
            values = groups[literals]
            values.append(list(filter(None, cut[2::3])))
            if len(values) == LEAST_ROWS and len(known) < MOST_KNOWN and len(values[0]) <= MOST_SKELETON_SLOTS:
                known.append((_pattern(literals, form.value), values))
    least = max(LEAST_ROWS, len(rows) // LEAST_SHARE)
    often = sorted(groups.items(), key=lambda group: (-len(group[1]), [each or b"" for each in group[0]]))
    return [
        _Skeleton(_joined(literals), _paths(literals), values)
        for literals, values in often[:MOST_SKELETONS]
        if len(values) >= least and 0 < len(values[0]) <= MOST_SKELETON_SLOTS
    ]


def _pattern(literals: Sequence[bytes | None], value: bytes) -> re.Pattern[bytes]:
    """What rows with these literals look like."""
    parts = (rb"(" + value + rb")" if literal is None else re.escape(literal) for literal in literals)
    return re.compile(b"".join(parts), re.DOTALL)


def _joined(literals: Sequence[bytes | None]) -> tuple[bytes, ...]:
    """The literals around each value, one more than values; None stands for a value."""
    made = [b""]
    for literal in literals:
        if literal:
            made[-1] += literal
        else:
            made.append(b"")
    return tuple(made)


def _paths(literals: Sequence[bytes | None]) -> tuple[Path, ...]:
    """Where each value stands in the object: keys, and of lists its number."""
    paths: list[Path] = []
    stack: list[bytes] = []
    key = b""
    for literal in literals:
        if not literal:
            paths.append((*stack, key, b"%d" % sum(path[:-1] == (*stack, key) for path in paths)))
            continue
        for name, mark in _STEPS.findall(literal):
            if name:
                key = name
            elif mark in b"{[":
                stack.append(key)
                key = b""
            elif stack:
                key = stack.pop()
    return tuple(paths)


class _Tables:
    """Puts templates together from skeletons."""

    def __init__(self, skeletons: Sequence[_Skeleton]) -> None:
        self._skeletons = skeletons
        self._constants = [_constants(skeleton) for skeleton in skeletons]
        values: defaultdict[Path, list[bytes]] = defaultdict(list)
        for skeleton, constants in zip(skeletons, self._constants, strict=True):
            for place, path in enumerate(skeleton.paths):
                if constants[place] is None:
                    values[path] += [row[place] for row in skeleton.rows]
        self._columns = {path: _column(held) for path, held in values.items()}
        self._variables: list[Variable] = []
        self._numbers: dict[tuple[Path, int, Variable], int] = {}

    def table(self) -> TemplateTable:
        """All templates, the strictest first; the one that takes any row is the last."""
        made = [self._template(number, level) for level in range(4) for number in range(len(self._skeletons))]
        templates = dict.fromkeys(made)
        whole = Template((b"", b""), (len(self._variables),))
        return TemplateTable((*self._variables, _STRING), (*templates, whole))

    def _template(self, number: int, level: int) -> Template:
        """The template of a skeleton. level: 0 as is, 1 without open enumerations, 2 without any, 3 of strings only."""
        skeleton = self._skeletons[number]
        literals, slots = [b""], []
        for place, path in enumerate(skeleton.paths):
            literals[-1] += skeleton.literals[place]
            constant = self._constants[number][place]
            if constant is not None:
                literals[-1] += constant
                continue
            column = self._columns[path]
            opened = column.loose if column.open else column.parts
            parts: tuple[Part, ...] = (column.parts, opened, column.loose, (_STRING,))[level]
            literals[-1] += b'"' * column.quoted
            for at, part in enumerate(parts):
                if isinstance(part, bytes):
                    literals[-1] += part
                else:
                    slots.append(self._number(path, at, part))
                    literals.append(b"")
            literals[-1] += b'"' * column.quoted
        literals[-1] += skeleton.literals[-1]
        return Template(tuple(literals), tuple(slots))

    def _number(self, path: Path, at: int, variable: Variable) -> int:
        key = (path, at if variable is not _STRING else -1, variable)
        if key not in self._numbers:
            self._numbers[key] = len(self._variables)
            self._variables.append(variable)
        return self._numbers[key]


def _constants(skeleton: _Skeleton) -> list[bytes | None]:
    """At each place, the value that all rows have there; None where they differ."""
    if len(skeleton.rows) < 4 * LEAST_ROWS:
        return [None] * len(skeleton.paths)
    return [values[0] if len(set(values)) == 1 else None for values in zip(*skeleton.rows, strict=True)]


def _column(values: Sequence[bytes]) -> _Column:
    quoted = all(value[:1] == b'"' for value in values)
    counts = Counter(value[1:-1] if quoted else value for value in values)
    numbers = _numbers(list(counts)) or _affixed(list(counts))
    loose = numbers or _numbered(list(counts)) or (_STRING,)
    few = 32 * len(counts) <= len(values) and len(counts) <= FEW_VALUES
    repeated = numbers is None and 4 * len(counts) <= len(values)
    listed = (few or repeated) and _may_be_listed(list(counts))
    return _Column((_enumeration(counts),) if listed else loose, loose, quoted, 1 in counts.values())


def _affixed(texts: Sequence[bytes]) -> tuple[Part, ...] | None:
    """Variables of numbers between what all of the texts begin and end with; None where there are none."""
    prefix = _beginning(texts)
    suffix = _beginning([text[len(prefix) :][::-1] for text in texts])[::-1].lstrip(b"0123456789")
    for before, after in ((b"", suffix), (prefix.rstrip(b"0123456789"), suffix)):
        inner = _numbers([text[len(before) : len(text) - len(after)] for text in texts])
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


def _may_be_listed(texts: Sequence[bytes]) -> bool:
    return (
        len(texts) <= MOST_VALUES and max(map(len, texts)) <= LONGEST_VALUE and sum(map(len, texts)) <= MOST_VALUE_BYTES
    )


def _enumeration(counts: Counter[bytes]) -> Variable:
    """The values, those that occur often first."""
    return Variable(Kind.ENUM, 0, tuple(sorted(counts, key=lambda text: (-counts[text], text))))


def _numbers(texts: Sequence[bytes]) -> tuple[Part, ...] | None:
    """Variables of numbers that give all of the texts; None where there are none."""
    if not texts or not all(texts):
        return None
    shortest, longest = min(map(len, texts)), max(map(len, texts))
    if _all(_INTEGER, texts):
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
