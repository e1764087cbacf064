"""Texts that a condition requires in the message of every matching record.

Pure functions. Segments that store messages as templates use them to rule out templates whose records cannot contain
them. A result may have too few texts, never too many.
"""

from __future__ import annotations

import re

from aggregator.lql.parse.operand import JsonPath, Message, innermost, target_of
from aggregator.lql.parse.tree import And, Condition, Expression, Or
from esformat.parts import texts_around

RequiredTexts = tuple[tuple[bytes, ...], ...]
"""Lists of texts: a message contains at least one text of each list."""

MOST_TEXTS = 16
"""Limit for one list."""

_GLOB = re.compile(r"[*?]")


def required_texts(where: Expression | None) -> RequiredTexts:
    """The texts in the messages of all matching records; empty if the condition does not require any."""
    match where:
        case Condition():
            return _of_condition(where)
        case And(terms):
            return tuple(dict.fromkeys(texts for term in terms for texts in required_texts(term)))
        case Or(terms):
            found = [required_texts(term) for term in terms]
            if all(found):
                either = tuple(dict.fromkeys(text for each in found for text in each[0]))
                return (either,) if len(either) <= MOST_TEXTS else ()
    return ()


def texts_suffice(where: Expression) -> bool:
    """Whether every message that contains what `required_texts` returns matches, if it returns anything."""
    match where:
        case Condition():
            name, functions = innermost(where.operand)
            is_sought = where.op == "CONTAINS" and not functions and isinstance(target_of(name), Message)
            return is_sought and bool(_of_condition(where))
        case And(terms):
            return all(map(texts_suffice, terms))
        case Or(terms):
            return all(texts_suffice(term) and len(required_texts(term)) == 1 for term in terms)
    return False


def _of_condition(condition: Condition) -> RequiredTexts:
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
    """The literal parts of a pattern; none if the pattern has classes or escapes."""
    return [] if "[" in glob or "\\" in glob else _GLOB.split(glob)


def _is_stored_so(text: str) -> bool:
    """Whether messages that contain the text contain its bytes: U+FFFD may also stand for broken bytes."""
    return "\ufffd" not in text and not any("\ud800" <= sign <= "\udfff" for sign in text)
