"""Split a text into words and signs: keywords, names, quoted text, numbers, tag lists, each with its location.

Linear in the text. Limits the parser's input: the length, the nesting of parentheses, the number of words. A keyword
counts as a name where only a name makes sense, so tags may be called `from` or `limit`.
"""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass

from aggregator.lql.errors import LqlError, Mark
from aggregator.lql.parse.tag_set import parse_tag_list
from aggregator.lql.parse.tree import WORDS
from aggregator.lql.text.quoting import NAME, QuotingError, unquote

MAX_TEXT = 64 << 10  # characters of a statement
MAX_NESTING = 50  # parentheses inside each other
MAX_TOKENS = 20_000  # parsed in about a third of a second
KEYWORDS = frozenset(
    [
        "SELECT",
        "EXPLAIN",
        "SHOW",
        "DESCRIBE",
        "TRUNCATE",
        "CREATE",
        "DELETE",
        "PARTITIONS",
        "PARTITION",
        "PIPES",
        "PIPE",
        "COUNT",
        "DISTINCT",
        "FROM",
        "RANGE",
        "WHERE",
        "POSITION",
        "AT",
        "GROUP",
        "BY",
        "EVERY",
        "ORDER",
        "ASC",
        "DESC",
        "OFFSET",
        "LIMIT",
        "DRYRUN",
        "MINSIZE",
        "MAXSIZE",
        "BEFORE",
        "MAXDBSIZE",
        "BACKFILL",
        "AND",
        "OR",
        "NOT",
        "CONTAINS",
        "PREFIX",
        "SUFFIX",
        "LIKE",
        "MATCHES",
    ]
)
_TOKEN = re.compile(
    r"(?P<space>\s+)|(?P<prefix>(?i:fields)[:.])`(?P<field>(?:[^`]|``|(?!))*+)`"
    rf"|(?P<ident>{NAME})|(?P<step>\.{NAME})"
    r"|\"(?P<escaped>(?:[^\"\\]|\\.|(?!))*+)\"|'(?P<single>[^']*+)'|`(?P<name>(?:[^`]|``|(?!))*+)`"
    r"|(?P<number>[-+]?(?:[0-9]++(?:\.[0-9]*+|(?!))?+|\.[0-9]++)(?:[eE][-+]?[0-9]++)?(?![\w./:-]))"
    r"|(?P<word>[-+]?\.?[0-9][\w./:-]*)"
    r"|(?P<sign><=|>=|!=|<>|==|[<>=])|(?P<punctuation>[()\[\],:;])",
    re.DOTALL,
)
_PUNCTUATION = {"(": "LPAR", ")": "RPAR", "[": "LSQB", "]": "RSQB", ",": "COMMA", ":": "COLON", ";": "SEMICOLON"}
_VALUES = ("STRING", "NUMBER", "WORD", "IDENT")
_BEFORE_OPERANDS = ("", "FROM", "WHERE", "AND", "OR", "NOT", "LPAR", "PARTITIONS", "TRUNCATE", "DRYRUN")
_MEASURE = re.compile(r"SUM|AVG|MIN|MAX|PERCENTILE|P[1-9][0-9]?", re.IGNORECASE)  # followed by parentheses
_ODD_SIGNS = {"<>": "!=", "==": "=", "&": "AND", "|": "OR", "!": "NOT", "~": "MATCHES"}


@dataclass(frozen=True, slots=True)
class Word:
    """One word or sign. `type`: a terminal of the grammar; `text`: its meaning, without quotes."""

    type: str
    text: str
    mark: Mark


def tokenize(text: str) -> list[Word]:
    """Split `text`. Raises LqlError."""
    _check_text(text)
    words: list[Word] = []
    at = depth = 0
    while at < len(text):
        word, at = _next(text, at, words[-1].type if words else "")
        if word is None:
            continue
        depth += {"LPAR": 1, "RPAR": -1}.get(word.type, 0)
        if depth > MAX_NESTING:
            raise LqlError(f"parentheses nest deeper than {MAX_NESTING}", mark=word.mark)
        words.append(word)
        if len(words) > MAX_TOKENS:
            raise LqlError(f"the statement has more than {MAX_TOKENS} words and signs", mark=word.mark)
    return _names_among_keywords(words)


def _check_text(text: str) -> None:
    if not isinstance(text, str):
        raise LqlError(f"a statement must be text, not {type(text).__name__}")
    if len(text) > MAX_TEXT:
        raise LqlError(f"the text has {len(text)} characters, more than {MAX_TEXT}")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        mark = Mark(text, error.start, error.end)
        raise LqlError("half of a surrogate pair, which UTF-8 cannot encode", mark=mark) from None


def _next(text: str, at: int, before: str) -> tuple[Word | None, int]:
    """The word at `at`, None for a space, and where it ends. `before`: the type of the previous word."""
    if text[at] == "{":
        _, end = parse_tag_list(text, at)
        return Word("TAGS", text[at:end], Mark(text, at, end)), end
    found = _TOKEN.match(text, at)
    if found is None:
        raise _no_token(text, at)
    kind, end = str(found.lastgroup), found.end()
    mark = Mark(text, at, end)
    if kind == "space":
        return None, end
    if kind == "sign":
        if found[0] in _ODD_SIGNS:
            raise LqlError(f"unknown operator {found[0]}", mark=mark, hint=f"write {_ODD_SIGNS[found[0]]}")
        return Word("SIGN", found[0], mark), end
    if kind == "punctuation":
        return Word(_PUNCTUATION[found[0]], found[0], mark), end
    if kind == "single":
        kind = "raw" if before == "MATCHES" else "escaped"  # backslashes belong to the regular expression
        return _quoted_or_plain(kind, found["single"], mark), end
    if kind == "field":
        return _quoted_or_plain("name", found["prefix"] + found["field"], mark), end
    return _quoted_or_plain(kind, found[kind], mark), end


def _quoted_or_plain(kind: str, inside: str, mark: Mark) -> Word:
    if kind == "ident":
        upper = inside.upper()
        return Word(upper if upper in KEYWORDS else "IDENT", inside, mark)
    if kind == "escaped":
        try:
            return Word("STRING", unquote(inside), mark)
        except QuotingError as error:
            begin = mark.start + 1 + error.at
            place = Mark(mark.text, begin, begin + error.length)
            raise LqlError(str(error), mark=place, hint="write \\\\ for a backslash") from None
    if kind == "name":
        return Word("IDENT", inside.replace("``", "`"), mark)
    return Word({"raw": "STRING", "step": "STEP", "number": "NUMBER", "word": "WORD"}[kind], inside, mark)


def _no_token(text: str, at: int) -> LqlError:
    letter = text[at]
    if letter in "\"'`":
        return LqlError(f"the quote {letter} is not closed", mark=Mark(text, at, at + 1))
    if letter in _ODD_SIGNS:
        return LqlError(f"unknown operator {letter}", mark=Mark(text, at, at + 1), hint=f"write {_ODD_SIGNS[letter]}")
    hint = 'quote texts: "…", names: `…`'
    if letter == "*":
        hint = f"{hint}; SELECT COUNT counts all records, SELECT alone reads them"
    return LqlError(f"unexpected character {letter!r}", mark=Mark(text, at, at + 1), hint=hint)


def _names_among_keywords(words: list[Word]) -> list[Word]:
    """Turn keywords into names in the place of an operand, before an operator, or alone in parentheses."""
    named: list[Word] = []
    for i, word in enumerate(words):
        after = words[i + 1].type if i + 1 < len(words) else ""
        behind = words[i + 2].type if i + 2 < len(words) else ""
        before = words[i - 1].type if i > 0 else ""
        compared = before in _BEFORE_OPERANDS and (
            after == "SIGN" or (word.type != "NOT" and after in WORDS and behind in _VALUES)
        )
        in_function = before == "LPAR" and after == "RPAR"
        is_name = word.type in KEYWORDS and (compared or in_function)
        is_measure = word.type == "IDENT" and after == "LPAR" and _MEASURE.fullmatch(word.text) is not None
        type_ = "IDENT" if is_name else "MEASURE" if is_measure else word.type
        named.append(Word(type_, word.text, word.mark))
    return named


_OUR_NAMES = {"data": "msg", "message": "msg", "payload": "msg", "time": "ts", "timestamp": "ts"}
"""The names in statements for things that have other names elsewhere."""


def our_name(given: str) -> str | None:
    """A hint with the name in statements for a part of a record that has other names elsewhere, or None."""
    known = _OUR_NAMES.get(given.lower())
    return f"did you mean {known}?" if known else None


def did_you_mean(given: str, known: list[str]) -> str | None:
    """A hint with the known word nearest to `given`, or None."""
    folded = {word.lower(): word for word in known}
    near = difflib.get_close_matches(given[:100].lower(), list(folded), 1, 0.6)
    return f"did you mean {folded[near[0]]}?" if near else None
