r"""Globs, the patterns of LIKE: `*` any run of characters, `?` one, `[a-z]` and `[^a-z]` one of a class, `\` escapes.

A glob is parsed once; the caller then learns whether it is equivalent to a plain comparison, or gets a regular
expression that takes linear time.
"""

from __future__ import annotations

from dataclasses import dataclass


class GlobError(ValueError):
    """A glob is invalid. `at`: the position of the error in it."""

    def __init__(self, message: str, at: int) -> None:
        super().__init__(message)
        self.at = at


@dataclass(frozen=True, slots=True)
class Run:
    """`*`: any number of any characters, including none."""


@dataclass(frozen=True, slots=True)
class One:
    """A character in these ranges, or outside them if `negated`. `?` is anything except nothing."""

    ranges: tuple[tuple[str, str], ...]
    negated: bool = False


Piece = str | Run | One
ANY = One((), negated=True)


def parse(pattern: str) -> list[Piece]:
    """Literal text, runs and classes in order; literals joined. Raises GlobError."""
    pieces: list[Piece] = []
    at = 0
    while at < len(pattern):
        piece, at = _piece(pattern, at)
        if isinstance(piece, str) and pieces and isinstance(pieces[-1], str):
            pieces[-1] += piece
        elif not (isinstance(piece, Run) and pieces and isinstance(pieces[-1], Run)):
            pieces.append(piece)
    return pieces


def _piece(pattern: str, at: int) -> tuple[Piece, int]:
    letter = pattern[at]
    if letter == "*":
        return Run(), at + 1
    if letter == "?":
        return ANY, at + 1
    if letter == "[":
        return _class(pattern, at)
    return _letter(pattern, at)


def _letter(pattern: str, at: int) -> tuple[str, int]:
    """The character at `at`, which may be escaped by a backslash."""
    if pattern[at] != "\\":
        return pattern[at], at + 1
    if at + 1 == len(pattern):
        raise GlobError("a backslash at the end escapes nothing; write \\\\ for a backslash", at)
    return pattern[at + 1], at + 2


def _class(pattern: str, start: int) -> tuple[One, int]:
    at = start + 1
    negated = pattern[at : at + 1] == "^"
    at += negated
    ranges: list[tuple[str, str]] = []
    while pattern[at : at + 1] != "]" or not ranges:
        if at >= len(pattern):
            raise GlobError("[ is not closed; write [[] or \\[ for a bracket", start)
        begin = at
        low, at = _letter(pattern, at)
        high = low
        if pattern[at : at + 1] == "-" and pattern[at + 1 : at + 2] not in ("]", ""):
            high, at = _letter(pattern, at + 1)
        if high < low:
            raise GlobError(f"{low}-{high} is an empty range", begin)
        ranges.append((low, high))
    return One(tuple(ranges), negated), at + 1


def plain(pieces: list[Piece]) -> tuple[str, str] | None:
    """The equivalent comparison, with its text: =, PREFIX, SUFFIX or CONTAINS; None if there is none."""
    literals = [piece for piece in pieces if isinstance(piece, str)]
    if len(literals) > 1 or any(isinstance(piece, One) for piece in pieces):
        return None
    text = literals[0] if literals else ""
    if len(pieces) == 3:
        return "CONTAINS", text
    if len(pieces) < 2:
        return ("=", text) if not pieces or literals else ("CONTAINS", "")
    return ("PREFIX", text) if isinstance(pieces[0], str) else ("SUFFIX", text)


def to_regex(pieces: list[Piece]) -> str:
    """An RE2 pattern that matches exactly the same texts as the glob. A run also matches bytes that are not UTF-8."""
    return r"(?s)\A" + "".join(_regex(piece) for piece in pieces) + r"\z"


def escape(text: str) -> str:
    """A pattern that matches only `text`."""
    return "".join(letter if letter.isalnum() or ord(letter) > 127 else f"\\x{ord(letter):02x}" for letter in text)


def _regex(piece: Piece) -> str:
    if isinstance(piece, str):
        return escape(piece)
    if isinstance(piece, Run):
        return r"\C*"
    if piece == ANY:
        return "."
    spans = "".join(f"\\x{{{ord(low):x}}}-\\x{{{ord(high):x}}}" for low, high in piece.ranges)
    return f"[{'^' if piece.negated else ''}{spans}]"
