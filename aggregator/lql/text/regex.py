r"""Regular expressions written by users: those of RE2, as in Arrow, with a limit on their cost.

RE2 takes time linear in the text, but each byte can cost time proportional to the size of the compiled pattern, and
counted repetition makes short patterns large: `(.*a){900}` has 14,000 steps. So the size is estimated from the pattern
before anything is compiled, and limited. The same pass finds features of other engines that RE2 lacks, and reports
their position.
"""

from __future__ import annotations

import re

import pyarrow as pa
import pyarrow.compute as pc

from aggregator.errors import QueryLimitError

MAX_PATTERN = 1_000  # characters
MAX_STEPS = 5_000  # of a compiled pattern: RE2 takes about 4 ns per step and byte if its fast methods fail
MAX_WORK = 1 << 30  # steps times bytes of one text, whose search cannot be interrupted: about 4 s
_ANY = 12  # steps that `.` and other sets of nearly all characters take in UTF-8
_CATEGORY = 450  # steps of `\pL`; the largest
_REPEAT = re.compile(r"\{(\d+)(?:(,)(\d*))?\}")
_GROUP = re.compile(r"\?(?:P?<[^<=!>]*>|[a-zA-Z]*-?[a-zA-Z]*:?)")
_ESCAPE = re.compile(r"\\(?:[pP](?:\{[^}]*\}|.)|x(?:\{[^}]*\}|..)|[0-7]{1,3}|.)", re.DOTALL)
_NAMED = re.compile(r"\[:\^?\w+:\]")
_ODD_GROUPS = {
    "(?=": "look-ahead",
    "(?!": "look-ahead",
    "(?<=": "look-behind",
    "(?<!": "look-behind",
    "(?>": "an atomic group",
    "(?P=": "a back reference",
    "(?(": "a condition on a group",
    "(?#": "a comment",
}


class RegexError(ValueError):
    """A pattern cannot be used. `at`, `length`: its wrong characters; `at` is None if unknown."""

    def __init__(self, message: str, at: int | None = None, length: int = 1) -> None:
        place = "" if at is None else f" (character {at + 1} of the pattern)"
        super().__init__(f"{message}{place}")
        self.at, self.length = at, length


class Regex:
    """A pattern that is safe to run. `steps`: its approximate size when compiled."""

    def __init__(self, pattern: str, *, max_length: int = MAX_PATTERN) -> None:
        """Raises RegexError."""
        if len(pattern) > max_length:
            raise RegexError(f"the pattern has {len(pattern)} characters, more than {max_length}")
        self.pattern = pattern
        self.steps = _Walk(pattern).steps()
        try:
            pc.match_substring_regex(pa.array([""]), pattern)  # compiled only for a batch with rows
        except pa.ArrowInvalid as error:
            reason = str(error).removeprefix("Invalid regular expression: ")
            raise RegexError(f"not a regular expression: {reason}") from None

    def matches(self, texts: pa.Array) -> pa.BooleanArray:
        """Which texts, of string type, contain a match. Raises QueryLimitError for a text that is too long."""
        most = MAX_WORK // self.steps
        if texts.nbytes > most:
            longest = pc.max(pc.binary_length(texts)).as_py() or 0
            if longest > most:
                raise QueryLimitError(
                    f"a text of {longest:,} bytes is too long for a regular expression of this size",
                    hint=f"it takes texts of up to {most:,} bytes; write a smaller one, with fewer repetitions",
                )
        return pc.match_substring_regex(texts, self.pattern)


class _Walk:
    """One pass over a pattern that adds up the steps of its parts."""

    def __init__(self, pattern: str) -> None:
        self._pattern = pattern
        self._open = [0]  # steps of each open group, innermost last
        self._last = 0  # steps of the part that a repetition would repeat

    def steps(self) -> int:
        """An upper estimate of the steps of the pattern. Raises RegexError beyond MAX_STEPS."""
        at = 0
        while at < len(self._pattern):
            begin, at = at, self._part(at)
            if sum(self._open) > MAX_STEPS:
                raise RegexError(
                    f"the regular expression is too large: up to here it needs more than {MAX_STEPS:,} steps",
                    begin,
                    at - begin,
                )
        return max(1, sum(self._open))

    def _add(self, steps: int, end: int) -> int:
        self._last = steps
        self._open[-1] += steps
        return end

    def _part(self, at: int) -> int:
        """Process the part at `at`; return where the next begins."""
        letter = self._pattern[at]
        if letter == "\\":
            return self._escape(at)
        if letter == "[":
            return self._class(at)
        if letter == "(":
            return self._group(at)
        if letter == ")":
            inside = self._open.pop() if len(self._open) > 1 else 0
            return self._add(inside + 2, at + 1)
        if letter == "{":
            return self._repeat(at)
        if letter == ".":
            return self._add(_ANY, at + 1)
        if letter in "*+?|^$":
            self._open[-1] += 1
            return at + 1
        return self._add(_letter(letter), at + 1)

    def _escape(self, at: int) -> int:
        if self._pattern.startswith("\\Q", at):
            end = self._pattern.find("\\E", at)
            quoted = self._pattern[at + 2 : end if end >= 0 else None]
            self._open[-1] += sum(map(_letter, quoted))
            self._last = _letter(quoted[-1:])
            return end + 2 if end >= 0 else len(self._pattern)
        found = _ESCAPE.match(self._pattern, at)
        if found is None:
            return at + 1  # RE2 reports a backslash at the end
        if "1" <= found[0][1] <= "9":
            raise RegexError(f"a back reference {found[0]} is not supported in regular expressions", at, 2)
        return self._add(_escaped(found[0]), found.end())

    def _class(self, at: int) -> int:
        steps, begin = 0, at
        at += 1
        negated = self._pattern[at : at + 1] == "^"
        at += negated
        first = at
        while at < len(self._pattern) and (self._pattern[at] != "]" or at == first):
            found = _NAMED.match(self._pattern, at) or _ESCAPE.match(self._pattern, at)
            steps += _escaped(found[0]) if found is not None else _letter(self._pattern[at])
            at = found.end() if found is not None else at + 1
        if at >= len(self._pattern):
            raise RegexError("[ is not closed", begin)
        return self._add(steps + _ANY * negated, at + 1)

    def _group(self, at: int) -> int:
        for sign in sorted(_ODD_GROUPS, key=len, reverse=True):
            if self._pattern.startswith(sign, at):
                raise RegexError(f"{_ODD_GROUPS[sign]} {sign}…) is not supported in regular expressions", at, len(sign))
        found = _GROUP.match(self._pattern, at + 1)
        end = at + 1 if found is None else found.end()
        if found is None or found[0][-1] in ":>":
            self._open.append(0)
        elif self._pattern[end : end + 1] == ")":
            return end + 1  # flags for what follows
        return end

    def _repeat(self, at: int) -> int:
        found = _REPEAT.match(self._pattern, at)
        if found is None:
            return self._add(1, at + 1)
        low, high = int(found[1][:9]), int((found[3] or "0")[:9])
        self._open[-1] += (self._last + 1) * max(low, high, 1)
        self._last *= max(low, high, 1)
        return found.end()


def _letter(letter: str) -> int:
    """Steps of a letter: its bytes, and those of the other case."""
    return 1 if letter.isascii() else 8


def _escaped(text: str) -> int:
    if text[1] in "pP":
        return _CATEGORY
    return _ANY if text[1] in "DSWx" else 4
