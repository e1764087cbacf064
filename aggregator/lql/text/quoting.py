"""Write and read quoted text and names: one set of rules for statements and tag lists.

Quotes allow escapes, except single quotes after MATCHES. Backquotes contain a name with any characters, with backquotes
doubled.
"""

from __future__ import annotations

import re

# A name without quotes.
NAME = r"[^\W\d][\w./:-]*"
_NAME = re.compile(NAME)
_ESCAPE = re.compile(
    r"\\(?:(?P<simple>[abfnrtv\\\"'])|x(?P<byte>[0-9A-Fa-f]{2})|(?P<octal>[0-3][0-7]{2})"
    r"|u(?P<four>[0-9A-Fa-f]{4})|U(?P<eight>[0-9A-Fa-f]{8})|(?P<wrong>.?))",
    re.DOTALL,
)
_SIMPLE = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_WRITTEN = {"\n": "\\n", "\r": "\\r", "\t": "\\t", '"': '\\"', "\\": "\\\\"}
_SPECIAL = re.compile(r"[\x00-\x1f\x7f\"\\]")


class QuotingError(ValueError):
    """Quoted text is invalid. `at`: the position of the error, counted from the first character inside the quotes."""

    def __init__(self, message: str, at: int, length: int = 1) -> None:
        super().__init__(message)
        self.at = at
        self.length = length


def quote(text: str) -> str:
    """`text` in double quotes, with escapes if necessary."""
    return '"' + _SPECIAL.sub(lambda found: _WRITTEN.get(found[0], f"\\x{ord(found[0]):02x}"), text) + '"'


def unquote(body: str) -> str:
    """The meaning of the characters between double quotes. Raises QuotingError."""
    if "\\" not in body:
        return body
    pieces: list[bytes] = []
    at = 0
    for found in _ESCAPE.finditer(body):
        pieces += [body[at : found.start()].encode(), _escaped(found)]
        at = found.end()
    try:
        return b"".join([*pieces, body[at:].encode()]).decode()
    except UnicodeDecodeError:
        raise QuotingError("the \\x escapes are not valid UTF-8", 0, len(body)) from None


def _escaped(found: re.Match[str]) -> bytes:
    if found["simple"]:
        return _SIMPLE.get(found["simple"], found["simple"]).encode()
    if found["byte"]:
        return bytes([int(found["byte"], 16)])
    if found["octal"]:
        return bytes([int(found["octal"], 8)])
    point = found["four"] or found["eight"]
    if point is None:
        raise QuotingError(f"unknown escape {found[0]}", found.start(), len(found[0]))
    try:
        return chr(int(point, 16)).encode()
    except (ValueError, UnicodeEncodeError, OverflowError):
        raise QuotingError(f"{found[0]} is not a Unicode character", found.start(), len(found[0])) from None


def quote_name(name: str) -> str:
    """`name` in backquotes."""
    return "`" + name.replace("`", "``") + "`"


def is_plain(name: str) -> bool:
    """Whether `name` can be written without quotes, unless it is a keyword."""
    return _NAME.fullmatch(name) is not None
