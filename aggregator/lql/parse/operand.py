"""The meaning of an operand in a condition on events: the time, the message, a path into it, a field or a column."""

from __future__ import annotations

from dataclasses import dataclass

from aggregator.lql.errors import LqlError, Mark
from aggregator.lql.parse.tree import (
    SYMBOLS,
    WORDS,
    Call,
    Condition,
    Expression,
    Name,
    Operand,
    Place,
    Value,
    conditions,
)
from aggregator.lql.text import glob, times
from aggregator.lql.text.predicate import pattern_steps
from aggregator.lql.text.quantity import parse_number
from aggregator.lql.text.regex import RegexError

MAX_CONDITIONS = 2_000  # of one expression
MAX_PATTERN_STEPS = 20_000  # of all regular expressions and globs of one expression, compiled
MAX_PATH = 100  # steps of a path into a message
_PATTERNS = ("LIKE", "MATCHES")
_ORDERING = ("<", "<=", ">", ">=")
_FIELD_PREFIXES = ("fields:", "fields.")
_A_CLOCK_NS = 1_700_000_000_000_000_000  # any clock serves to check whether a text is a time


@dataclass(frozen=True, slots=True)
class Timestamp:
    """`ts`."""


@dataclass(frozen=True, slots=True)
class Message:
    """`msg`."""


@dataclass(frozen=True, slots=True)
class JsonPath:
    """A path into a JSON message: keys of objects, positions in arrays. Digits without quotes are both."""

    steps: tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class Field:
    """`fields:name`: absent fields are empty."""

    name: str


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the topic, by its own name; it must exist."""

    name: str


Target = Timestamp | Message | JsonPath | Field | Column


def innermost(operand: Operand) -> tuple[Name, tuple[str, ...]]:
    """The name inside the operand, and the functions around it in order of application."""
    functions: list[str] = []
    while isinstance(operand, Call):
        functions.append(operand.function)
        operand = operand.operand
    return operand, tuple(reversed(functions))


def target_of(name: Name) -> Target:
    """The meaning of a name in WHERE and GROUP BY. Raises LqlError."""
    text, lower = name.text, name.text.lower()
    if lower.startswith(_FIELD_PREFIXES) and not name.steps:
        if lower in _FIELD_PREFIXES:
            raise LqlError(f"{text} lacks the name of a field", mark=name.mark, hint="write fields:name")
        return Field(text[len(_FIELD_PREFIXES[0]) :])
    if lower == "ts" and not name.steps:
        return Timestamp()
    if lower == "msg" and not name.steps:
        return Message()
    if lower == "msg" or lower.startswith("msg."):
        dotted = tuple(text.split(".")[1:])
        if not all(dotted):
            raise LqlError("a path needs a name after each dot", mark=name.mark, hint='write msg.a.b or msg["a"][0]')
        steps = (*dotted, *name.steps)
        if len(steps) > MAX_PATH:
            raise LqlError(f"the path has {len(steps)} steps, more than {MAX_PATH}", mark=name.mark)
        return JsonPath(steps)
    if name.steps:
        raise LqlError(f"{text} has no parts", mark=name.mark, hint="only msg takes brackets: msg.items[0].id")
    return Column(text)


def check_where(where: Expression) -> None:
    """Check everything that does not depend on the columns of a topic. Raises LqlError."""
    patterns = []
    for condition in _bounded(where):
        name, functions = innermost(condition.operand)
        target = target_of(name)
        if isinstance(target, Timestamp):
            _check_time(condition, name, functions)
        elif isinstance(target, Message) and condition.op in _ORDERING:
            raise LqlError(
                f"msg cannot be compared with {condition.op}", mark=name.mark, hint=f"use {', '.join(WORDS)}, = or !="
            )
        elif condition.op in _PATTERNS:
            patterns.append(condition)
        elif condition.value.number and condition.op in SYMBOLS and not isinstance(target, Message):
            _check_number(condition.value)
    _check_patterns(patterns)


def check_tags(expression: Expression) -> None:
    """The same check for an expression over tags."""
    found = _bounded(expression)
    for condition in found:
        name, _ = innermost(condition.operand)
        if name.steps:
            raise LqlError("tags have no parts", mark=name.mark)
    _check_patterns([condition for condition in found if condition.op in _PATTERNS])


def _check_patterns(found: list[Condition]) -> None:
    """Raises LqlError for an invalid glob or regular expression, or if all of them together are too large."""
    steps = 0
    for condition in found:
        op, value = condition.op, condition.value
        try:
            steps += pattern_steps(op, value.text)
        except glob.GlobError as error:
            raise LqlError(f"{error} (character {error.at + 1} of the glob)", mark=value.mark) from None
        except RegexError as error:
            raise LqlError(str(error), mark=_place_in(value, error)) from None
        except ValueError as error:
            raise LqlError(str(error), mark=value.mark) from None
        if steps > MAX_PATTERN_STEPS:
            raise LqlError(
                f"the regular expressions and globs up to here need more than {MAX_PATTERN_STEPS:,} steps in total",
                mark=value.mark,
                hint="use fewer or smaller ones",
            )


def _place_in(value: Value, error: RegexError) -> Place:
    """The location of the error in the statement; the whole pattern if it was written with escapes."""
    mark, at = value.mark, error.at
    if mark is None or at is None or mark.text[mark.start + 1 : mark.end - 1] != value.text:
        return mark
    return Mark(mark.text, mark.start + 1 + at, mark.start + 1 + at + error.length)


def resolve_time(text: str, now_ns: int, mark: Mark | None) -> int:
    """Like `times.resolve`, but raises LqlError at `mark`."""
    try:
        return times.resolve(text, now_ns)
    except ValueError as error:
        raise LqlError(str(error), mark=mark) from None


def check_time(text: str, mark: Mark | None) -> None:
    """Raises LqlError if `text` is not a time, independently of the clock."""
    resolve_time(text, _A_CLOCK_NS, mark)


def _bounded(expression: Expression) -> list[Condition]:
    found = list(conditions(expression))
    if len(found) > MAX_CONDITIONS:
        name, _ = innermost(found[MAX_CONDITIONS].operand)
        raise LqlError(f"the expression has {len(found)} conditions, more than {MAX_CONDITIONS}", mark=name.mark)
    return found


def _check_number(value: Value) -> None:
    try:
        parse_number(value.text)
    except ValueError as error:
        raise LqlError(str(error), mark=value.mark) from None


def _check_time(condition: Condition, name: Name, functions: tuple[str, ...]) -> None:
    if functions:
        raise LqlError(f"{functions[-1]} takes text; ts is a time", mark=name.mark)
    if condition.op not in SYMBOLS:
        raise LqlError(f"ts cannot be compared with {condition.op}", mark=name.mark, hint=f"use {', '.join(SYMBOLS)}")
    check_time(condition.value.text, condition.value.mark)
