"""Parse text to syntax trees: statements, conditions on events, and sources (conditions on tags)."""

from __future__ import annotations

from typing import Any, cast

from aggregator.lql.errors import LqlError, Mark
from aggregator.lql.parse import tree
from aggregator.lql.parse.tokens import Word, did_you_mean, tokenize

_FIRST_WORDS = ["SELECT", "SHOW", "DESCRIBE", "TRUNCATE", "CREATE", "DELETE", "EXPLAIN"]
_MISSING_LARK = 'install the parser: pip install "esformat[lql]"'


def parse_statement(text: str) -> tree.Statement:
    """Parse one statement; a semicolon may end it. Raises LqlError."""
    words = tokenize(text)
    if not words:
        raise LqlError("empty statement", mark=Mark(text, 0, 1), hint=_begin())
    first = words[0]
    if first.text.upper() in _FIRST_WORDS:  # even before an operator, where it would otherwise be a name
        first = words[0] = Word(first.text.upper(), first.text, first.mark)
    if first.type not in _FIRST_WORDS:
        hint = did_you_mean(first.text, _FIRST_WORDS) or _begin()
        raise LqlError(f"no statement begins with {first.text[:40]!r}", mark=first.mark, hint=hint)
    return cast(tree.Statement, _parse(words, text, "statement"))


def parse_where(text: str) -> tree.Expression:
    """Parse the text after WHERE. Raises LqlError."""
    return cast(tree.Expression, _parse(tokenize(text), text, "condition"))


def parse_source(text: str) -> tree.Source:
    """Parse the text after FROM: `{tags}`, or an expression over tags. Raises LqlError."""
    return cast(tree.Source, _parse(tokenize(text), text, "source"))


def _begin() -> str:
    return f"begin with {', '.join(_FIRST_WORDS[:-1])} or {_FIRST_WORDS[-1]}"


def _parse(words: list[Word], text: str, start: str) -> Any:
    try:
        from aggregator.lql.parse.grammar import parse  # lark is optional, and takes a moment to load
    except ModuleNotFoundError as error:
        if error.name != "lark":
            raise
        raise LqlError("LQL cannot be parsed here", hint=_MISSING_LARK) from None
    return parse(words, text, start)
