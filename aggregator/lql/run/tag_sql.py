"""Conditions on tags as SQL over a table of tags, as far as SQL says the same; the rest is left for `tag_table`.

The table has a row (stream_id, name, value) per tag of each stream, its text compared byte by byte (SQLite's default
collation). Text is never part of the SQL, only of its parameters.
"""

from __future__ import annotations

from dataclasses import dataclass

from aggregator.lql.parse.operand import check_tags, innermost
from aggregator.lql.parse.tag_set import TagSet
from aggregator.lql.parse.tree import SYMBOLS, And, Condition, Expression, Not, Or, Source
from aggregator.lql.text import glob

Parameter = str | bytes | int
_OPPOSITE = {"=": "<>", "!=": "=", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}
_EVERY = "TRUE"
_HAVING = "SELECT stream_id FROM {table} WHERE name = ?"


@dataclass(frozen=True, slots=True)
class TagQuery:
    """`where`, with `parameters`: SQL that holds for every stream that matches. `residual`: what to check besides."""

    where: str
    parameters: tuple[Parameter, ...]
    residual: Source | None


def tag_query(source: Source | None, *, table: str = "stream_tags", stream_id: str = "streams.id") -> TagQuery:
    """Compile for `SELECT … FROM streams WHERE {where}`. `table` and `stream_id` are SQL names, not to come from users.

    Raises LqlError.
    """
    if source is None:
        return TagQuery(_EVERY, (), None)
    having = _HAVING.format(table=table)
    if isinstance(source, TagSet):
        part = _join("AND", [(f"{stream_id} IN ({having} AND value = ?)", (n, v)) for n, v in source.items])
        return TagQuery(*part, None)
    check_tags(source)
    compiler = _Compiler(stream_id, having)
    part = compiler.compile(source, negated=False)
    return TagQuery(*part, None if compiler.exact else source)


_Part = tuple[str, tuple[Parameter, ...]]


class _Compiler:
    """Keeps whether all that was compiled means exactly what the expression does."""

    def __init__(self, stream_id: str, having: str) -> None:
        self.exact = True
        self._stream_id = stream_id
        self._having = having

    def compile(self, expression: Expression, *, negated: bool) -> _Part:
        match expression:
            case Not(term):
                return self.compile(term, negated=not negated)
            case And(terms) | Or(terms):
                word = "AND" if isinstance(expression, And) != negated else "OR"
                return _join(word, [self.compile(term, negated=negated) for term in terms])
            case Condition():
                return self._condition(expression, negated=negated)

    def _condition(self, condition: Condition, *, negated: bool) -> _Part:
        name, functions = innermost(condition.operand)
        simple = None if functions else _simple(condition.op, condition.value.text)
        if simple is None:
            self.exact = False
            return _EVERY, ()
        op, text = simple
        holds_for_empty = _holds(op, text)
        # Streams without the tag belong to those that compare like the empty text: name the others, and take the rest.
        inner, parameters = _comparison(op, text, negated=holds_for_empty)
        outer = "NOT IN" if holds_for_empty != negated else "IN"
        return f"{self._stream_id} {outer} ({self._having} AND {inner})", (name.text, *parameters)


def _simple(op: str, text: str) -> tuple[str, str] | None:
    """The comparison in operators that SQL has, or None."""
    if op == "MATCHES":
        return None
    return (op, text) if op != "LIKE" else glob.plain(glob.parse(text))


def _holds(op: str, text: str) -> bool:
    """Tell whether the comparison holds for the empty text."""
    if op in SYMBOLS:
        return {"=": text == "", "!=": text != "", "<": text > "", "<=": True, ">": False, ">=": text == ""}[op]
    return text == ""


def _comparison(op: str, text: str, *, negated: bool) -> _Part:
    """SQL over `value`. Other than = and order, over its bytes: SQLite's text functions stop at a NUL."""
    if op in SYMBOLS:
        return f"value {_OPPOSITE[op] if negated else {'!=': '<>'}.get(op, op)} ?", (text,)
    stored, length = text.encode(), len(text.encode())
    if op == "CONTAINS":
        return f"instr(CAST(value AS BLOB), ?) {'= 0' if negated else '> 0'}", (stored,)
    begin = "1" if op == "PREFIX" else "-?"
    equal = "<>" if negated else "="
    if length == 0:
        return ("FALSE" if negated else "TRUE"), ()
    if op == "PREFIX":
        return f"substr(CAST(value AS BLOB), {begin}, ?) {equal} ?", (length, stored)
    return f"substr(CAST(value AS BLOB), {begin}) {equal} ?", (length, stored)


def _join(word: str, parts: list[_Part]) -> _Part:
    """One condition of many, in halves of halves: SQLite limits how deep expressions are."""
    if not parts:
        return _EVERY, ()
    if len(parts) == 1:
        return parts[0]
    middle = len(parts) // 2
    left, right = _join(word, parts[:middle]), _join(word, parts[middle:])
    return f"({left[0]} {word} {right[0]})", left[1] + right[1]
