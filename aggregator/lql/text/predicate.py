"""Compile one comparison of text: operator and value become a function over Arrow arrays. No Python loop per value.

Arrays are of string or binary type, large or not, without nulls. The order is that of UTF-8 bytes, which equals that of
code points. Regular expressions are RE2's: linear in the text, whatever the pattern.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from aggregator.lql.text import glob, substring
from aggregator.lql.text.comparison import ORDER, comparison
from aggregator.lql.text.regex import MAX_PATTERN, Regex, RegexError

_LONGEST_WRITTEN = 24  # characters of a regular expression per character of a glob: `[\x{10ffff}-\x{10ffff}]`
_FEW = 4  # "few" means less than 1/_FEW of the texts
Test = Callable[[pa.Array], pa.BooleanArray]


def text_test(op: str, value: str) -> Test:
    """Compile `op`, one of tree.SYMBOLS or tree.WORDS. Raises ValueError for an invalid glob or regular expression."""
    if op in ORDER:
        compare, stored = comparison(op), value.encode()
        return lambda texts: compare(as_binary(texts), pa.scalar(stored, as_binary(texts).type))
    if op == "CONTAINS":
        return _contains(value)
    if op == "PREFIX":
        return lambda texts: pc.starts_with(as_binary(texts), value.encode())
    if op == "SUFFIX":
        return lambda texts: pc.ends_with(as_binary(texts), value.encode())
    if op == "LIKE":
        return _like(value)
    return _regex(Regex(value))


def as_binary(texts: pa.Array) -> pa.Array:
    """The same bytes as a binary array; copies nothing."""
    if pa.types.is_string(texts.type):
        return texts.view(pa.binary())
    return texts.view(pa.large_binary()) if pa.types.is_large_string(texts.type) else texts


def as_string(texts: pa.Array) -> pa.Array:
    """The same bytes as a string array, unchecked; copies nothing. RE2 accepts bytes that are not UTF-8."""
    if pa.types.is_binary(texts.type):
        return texts.view(pa.string())
    return texts.view(pa.large_string()) if pa.types.is_large_binary(texts.type) else texts


def _contains(value: str) -> Test:
    # RE2 searches for a literal with memchr, three times as fast as Arrow's own substring search. For binary arrays it
    # reads the pattern as Latin-1, one character per byte, so each byte of the value is escaped separately.
    wanted = value.encode()
    if len(wanted) > MAX_PATTERN:
        return lambda texts: pc.match_substring(as_binary(texts), wanted)
    pattern = "".join(f"\\x{byte:02x}" for byte in wanted)

    def test(texts: pa.Array) -> pa.BooleanArray:
        texts = as_binary(texts)
        found = substring.texts_with(texts, wanted)
        return pc.match_substring_regex(texts, pattern) if found is None else pa.array(found)

    return test


def pattern_steps(op: str, value: str) -> int:
    """The approximate size of the compiled pattern of a LIKE or MATCHES (see `Regex`); 1 for a plain comparison.

    Raises ValueError if it is not a valid glob or regular expression, or too large.
    """
    if op == "MATCHES":
        return Regex(value).steps
    pieces = _glob(value)
    return 1 if glob.plain(pieces) is not None else _glob_regex(pieces).steps


def _glob(value: str) -> list[glob.Piece]:
    if len(value) > MAX_PATTERN:
        raise ValueError(f"the glob has {len(value)} characters, more than {MAX_PATTERN}")
    return glob.parse(value)


def _glob_regex(pieces: list[glob.Piece]) -> Regex:
    try:
        return Regex(glob.to_regex(pieces), max_length=_LONGEST_WRITTEN * MAX_PATTERN)
    except RegexError:
        raise ValueError("the glob is too large: it has too many ? and [ ]") from None


def _like(value: str) -> Test:
    pieces = _glob(value)
    simple = glob.plain(pieces)
    if simple is not None:
        return text_test(*simple)
    whole = _regex(_glob_regex(pieces))
    literal = max((piece for piece in pieces if isinstance(piece, str)), key=len, default="")
    return _implied(_contains(literal), whole) if len(literal) > 1 else whole


def _implied(necessary: Test, test: Test) -> Test:
    """`test`, evaluated only for texts that pass `necessary`, if these are few. `test` must imply `necessary`."""

    def both(texts: pa.Array) -> pa.BooleanArray:
        mask = necessary(texts)
        if mask.true_count * _FEW >= len(mask):
            return test(texts)
        rows = pc.indices_nonzero(mask)
        result = np.zeros(len(mask), dtype=np.bool_)
        result[np.asarray(rows)] = np.asarray(test(texts.take(rows)))
        return pa.array(result)

    return both


def _regex(regex: Regex) -> Test:
    return lambda texts: regex.matches(as_string(texts))
