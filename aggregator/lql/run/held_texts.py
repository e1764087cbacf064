"""Texts that the message of every matching record holds, where a condition says so.

Pure functions. Segments that store messages by templates rule out by them what no record of a template can hold. Each
answer may be too little, never too much.
"""

from __future__ import annotations

import re

from aggregator.lql.parse.operand import JsonPath, Message, innermost, target_of
from aggregator.lql.parse.tree import And, Condition, Expression, Or
from esformat.parts import texts_around

Held = tuple[tuple[bytes, ...], ...]
"""Of each of these lists, a message holds one text at least."""

MOST_TEXTS = 16
"""Of one list."""

_GLOB = re.compile(r"[*?]")


def held_texts(where: Expression | None) -> Held:
    """What the messages of all records that match hold; empty where the condition does not tell."""
    match where:
        case Condition():
            return _of_condition(where)
        case And(terms):
            return tuple(dict.fromkeys(texts for term in terms for texts in held_texts(term)))
        case Or(terms):
            found = [held_texts(term) for term in terms]
            if all(found):
                either = tuple(dict.fromkeys(text for each in found for text in each[0]))
                return (either,) if len(either) <= MOST_TEXTS else ()
    return ()


def are_enough(where: Expression) -> bool:
    """Whether every message matches that holds what `held_texts` says, if it says anything."""
    match where:
        case Condition():
            name, functions = innermost(where.operand)
            is_sought = where.op == "CONTAINS" and not functions and isinstance(target_of(name), Message)
            return is_sought and bool(_of_condition(where))
        case And(terms):
            return all(map(are_enough, terms))
        case Or(terms):
            return all(are_enough(term) and len(held_texts(term)) == 1 for term in terms)
    return False


def _of_condition(condition: Condition) -> Held:
    name, functions = innermost(condition.operand)
    if functions:
        return ()
    target, op, text = target_of(name), condition.op, condition.value.text
    if isinstance(target, Message):
        pieces = [text] if op in ("=", "CONTAINS", "PREFIX", "SUFFIX") else _literals(text) if op == "LIKE" else []
        return tuple((piece.encode(),) for piece in pieces if piece and _is_stored_so(piece))
    if isinstance(target, JsonPath) and op == "=" and not condition.value.number:
        texts = texts_around(text)
        return (texts,) if texts else ()
    return ()


def _literals(glob: str) -> list[str]:
    """The parts of a pattern that stand for themselves; none where that takes a closer look."""
    return [] if "[" in glob or "\\" in glob else _GLOB.split(glob)


def _is_stored_so(text: str) -> bool:
    """Whether messages that hold a text have its bytes: others show broken bytes as U+FFFD."""
    return "\ufffd" not in text and not any("\ud800" <= sign <= "\udfff" for sign in text)
