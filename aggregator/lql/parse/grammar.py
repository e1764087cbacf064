"""The parser that lark builds from `grammar.lark`: words in, syntax tree out. The only module that needs lark."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.resources import files
from typing import Any

import lark
from lark.lexer import Lexer, Token

from aggregator.lql.errors import LqlError, Mark
from aggregator.lql.parse.build import Builder
from aggregator.lql.parse.tokens import KEYWORDS, Word, did_you_mean

_NAMES = {
    "STRING": '"text"', "NUMBER": "a number", "IDENT": "a name", "TAGS": "{tags}", "LPAR": "(", "RPAR": ")",
    "LSQB": "[", "RSQB": "]", "MEASURE": "SUM(…)", "COLON": ":", "COMMA": ",", "SIGN": "an operator", "$END": "the end",
}  # fmt: skip
_UNNAMED = {"WORD", "STEP", "SEMICOLON"}
_OPERATORS = {"CONTAINS", "PREFIX", "SUFFIX", "LIKE", "MATCHES"}


class _Words(Lexer):
    """Passes existing tokens on: `tokens` reads the text, lark only the grammar."""

    def __init__(self, _: Any) -> None:
        pass

    def lex(self, lexer_state: Any, parser_state: Any = None) -> Iterator[Token]:
        return iter(lexer_state)


class _Token(Token):
    """A token of lark that remembers its location."""

    mark: Mark


_PARSER = lark.Lark(
    files("aggregator.lql.parse").joinpath("grammar.lark").read_text("utf-8"),
    parser="lalr",
    lexer=_Words,
    start=["statement", "condition", "source"],
    transformer=Builder(),
    maybe_placeholders=True,
)


def parse(words: list[Word], text: str, start: str) -> Any:
    """Parse `words`, cut from `text`, as `start`: "statement", "condition" or "source". Raises LqlError."""
    try:
        tokens: Any = [_token(word) for word in words]  # `parse` is typed for text, which only lark's own lexers need
        return _PARSER.parse(tokens, start=start)
    except lark.exceptions.UnexpectedToken as error:
        raise _unexpected(error, text) from None
    except lark.exceptions.VisitError as error:
        raise error.orig_exc from None


def _token(word: Word) -> _Token:
    token = _Token(word.type, word.text)
    token.mark = word.mark
    return token


def _unexpected(error: lark.exceptions.UnexpectedToken, text: str) -> LqlError:
    expected = {str(name) for name in (error.accepts or error.expected)}
    token = error.token
    if isinstance(token, _Token):
        mark, found = token.mark, f'"{text[token.mark.start : token.mark.end][:40]}"'
    else:
        mark, found = Mark(text, len(text), len(text) + 1), "the end of the text"
    words = sorted(expected & KEYWORDS)
    hint = did_you_mean(str(token), words) if isinstance(token, _Token) and token.type == "IDENT" else None
    if isinstance(token, _Token) and token.type == "IDENT" and "DISTINCT" in expected:
        hint = f'SELECT reads whole records: leave it out, or write a format string, as "{{msg}}", or DISTINCT {token}'
    if "IDENT" in expected and token.type in {"SIGN", *_OPERATORS} and "STRING" not in expected:
        hint = f"write a name before the operator: msg {token} …"
    elif "IDENT" in expected and token.type in KEYWORDS:
        hint = f"{_expecting(expected)}; to use it as a name, put it in backquotes: `{text[mark.start : mark.end]}`"
    return LqlError(f"{found} was not expected here", mark=mark, hint=hint or _expecting(expected))


def _expecting(expected: set[str]) -> str:
    if len(expected & KEYWORDS) > 25:  # any word is allowed: a value, a name
        expected -= KEYWORDS
    if expected >= _OPERATORS:
        listed = ["an operator: =, !=, <, <=, >, >=", *sorted(_OPERATORS)]
    else:
        listed = sorted(_NAMES.get(name, name) for name in expected - _UNNAMED)
    return f"expected {' or '.join([', '.join(listed[:-1]), listed[-1]]) if len(listed) > 1 else listed[0]}"
