"""Skeletons of JSON objects: the keys and punctuation of an object, without its values.

Values with the same path are the same in all skeletons that have the path.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from esformat.write.template_tables import LEAST_ROWS, Path, Skeleton, covered

MOST_SKELETONS = 64
MANY_SKELETONS = 8
"""More skeletons than this may be due to lists of different lengths; then storing each list as one value may help."""
MOST_SKELETON_SLOTS = 256
MOST_KNOWN = 4
LEAST_SHARE = 256
"""A skeleton gets a template if at least one row in this many has it."""

_TEXT = rb'"[^"\\]*+(?:\\.[^"\\]*+|(?!))*+"'
_VALUE = _TEXT + rb'|[^{}\[\],\s":]++'
_VALUE_OR_LIST = rb"\[(?:[^\[\]{}" + rb'"]++|' + _TEXT + rb"|(?!))*+\]|" + _VALUE


@dataclass(frozen=True, slots=True)
class _Form:
    """How a row is split: the first group of `tokens` is keys and punctuation, the second a value (as in `value`)."""

    tokens: re.Pattern[bytes]
    value: bytes


def _form(structure: bytes, value: bytes) -> _Form:
    key = _TEXT + rb"\s*+:"
    return _Form(re.compile(rb"((?:" + structure + rb"|" + key + rb")+)|(" + value + rb")", re.DOTALL), value)


_SCALARS = _form(rb"[{}\[\],\s]++", _VALUE)
_LISTS = _form(rb"(?:[{}\],\s]|\[(?=\s*[\[{])|(?!))++", _VALUE_OR_LIST)
"""Here a list without nested objects and lists is one value."""
_STEPS = re.compile(rb'("(?:[^"\\]|\\.)*")\s*:|([{}\[\]])', re.DOTALL)


def json_skeletons(rows: Sequence[bytes]) -> list[Skeleton]:
    """The most frequent skeletons of objects, with the values of their rows."""
    found = _skeletons(rows, _SCALARS)
    if 10 * covered(found) < 9 * len(rows) or len(found) > MANY_SKELETONS:
        others = _skeletons(rows, _LISTS)
        fewer = len(others) < len(found) and 20 * covered(others) >= 19 * covered(found)
        if fewer or 20 * covered(others) > 21 * covered(found):
            return others
    return found


def _skeletons(rows: Sequence[bytes], form: _Form) -> list[Skeleton]:
    """The most frequent skeletons, with the values of their rows."""
    groups: defaultdict[tuple[bytes | None, ...], list[Sequence[bytes]]] = defaultdict(list)
    known: list[
        tuple[re.Pattern[bytes], list[Sequence[bytes]]]
    ] = []  # patterns of frequent skeletons: matching one takes a third of the time
    for row in rows:
        for pattern, values in known:
            if (match := pattern.fullmatch(row)) is not None:
                values.append(match.groups())
                break
        else:
            cut = form.tokens.split(row)  # repeats: text that is no token, a literal, a value; one of these two is None
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
        Skeleton(_joined(literals), _paths(literals), values)
        for literals, values in often[:MOST_SKELETONS]
        if len(values) >= least and 0 < len(values[0]) <= MOST_SKELETON_SLOTS
    ]


def _pattern(literals: Sequence[bytes | None], value: bytes) -> re.Pattern[bytes]:
    """A pattern that matches rows with these literals."""
    parts = (rb"(" + value + rb")" if literal is None else re.escape(literal) for literal in literals)
    return re.compile(b"".join(parts), re.DOTALL)


def _joined(literals: Sequence[bytes | None]) -> tuple[bytes, ...]:
    """The literals around the values, one more than there are values; None stands for a value."""
    made = [b""]
    for literal in literals:
        if literal:
            made[-1] += literal
        else:
            made.append(b"")
    return tuple(made)


def _paths(literals: Sequence[bytes | None]) -> tuple[Path, ...]:
    """The path of each value in the object: its keys, and its number among values with the same keys."""
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
