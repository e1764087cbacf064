"""Regular expressions are right on every supported Python.

Python 3.11 before 3.11.5, as in Debian 12, continues after the text that the last iteration of a possessive repeat,
`(?:…)*+`, had read before it failed (https://github.com/python/cpython/issues/106052). An alternative that always
fails, `(?:…|(?!))*+`, undoes that.
"""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Iterator
from re import _parser  # type: ignore[attr-defined]
from typing import Any

import pytest

import aggregator
import esformat

PACKAGES = (esformat, aggregator)
SINGLE = {"LITERAL", "NOT_LITERAL", "ANY", "IN", "RANGE"}
FAILURE = repr(_parser.parse("(?!)"))


def modules() -> Iterator[str]:
    for package in PACKAGES:
        for _, name, _ in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not name.endswith("__main__"):
                yield name


def patterns(value: Any, depth: int = 0) -> Iterator[re.Pattern[Any]]:
    """The compiled expressions in a module, also in tables and classes."""
    if isinstance(value, re.Pattern):
        yield value
    elif isinstance(value, (list, tuple, set, frozenset)) and depth < 3:
        for each in value:
            yield from patterns(each, depth + 1)
    elif isinstance(value, dict) and depth < 3:
        for each in value.values():
            yield from patterns(each, depth + 1)
    elif isinstance(value, type) and depth == 0:
        for each in vars(value).values():
            yield from patterns(each, depth + 1)


def repeats(node: Any) -> Iterator[Any]:
    """The bodies of possessive repeats in a parsed expression, except single characters."""
    if isinstance(node, _parser.SubPattern):
        for operator, argument in node:
            if str(operator) == "POSSESSIVE_REPEAT":
                body = argument[2]
                if len(body) != 1 or str(body[0][0]) not in SINGLE:
                    yield body
            yield from repeats(argument)
    elif isinstance(node, (list, tuple)):
        for each in node:
            yield from repeats(each)


def ends_with_failure(body: Any) -> bool:
    last = body[-1] if len(body) == 1 else (None, None)
    if str(last[0]) == "SUBPATTERN":
        return ends_with_failure(last[1][-1])
    return str(last[0]) == "BRANCH" and repr(last[1][1][-1]) == FAILURE


def wrong(pattern: str | bytes, flags: int = 0) -> list[Any]:
    text = pattern.decode("latin-1") if isinstance(pattern, bytes) else pattern
    return [body for body in repeats(_parser.parse(text, flags & ~re.UNICODE)) if not ends_with_failure(body)]


def test_possessive_repeats_take_back_what_failed():
    found = []
    for name in modules():
        try:
            module = importlib.import_module(name)
        except ImportError:  # of an extra that is not installed
            continue
        found += [f"{name}: {each.pattern!r}" for value in vars(module).values() for each in patterns(value)
                  if wrong(each.pattern, each.flags)]  # fmt: skip
    assert not sorted(set(found))


@pytest.mark.parametrize("text", [r"(?:ab)*+", r"a(?:b|cd)?+", r"(?:x(?:ab){2,3}+|(?!))*+"])
def test_others_are_seen(text):
    assert wrong(text)


@pytest.mark.parametrize("text", [r"a*+", r"[^a]{2,3}+b", r"(?:ab|(?!))*+", r"(?:a|bc|(?!))++"])
def test_these_are_right(text):
    assert not wrong(text)
