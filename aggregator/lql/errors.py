"""The one error of the language: what is wrong with a text, where, and what would be correct."""

from __future__ import annotations

from dataclasses import dataclass

from aggregator.errors import InvalidRequestError

_SHOWN_BEFORE = 60  # characters of a long line that are shown on each side of the error
_SHOWN_AFTER = 60


@dataclass(frozen=True, slots=True)
class Mark:
    """A location in a text: characters [start, end). Marks never make two syntax trees differ."""

    text: str
    start: int
    end: int


class LqlError(InvalidRequestError):
    """A statement, condition, time, tag list or format string is invalid; nothing was read or changed.

    Attributes in addition to those of every error: `text` (the parsed text, or None), `start` and `end` (its characters
    that are wrong). `str()` shows the line with carets below them.
    """

    text: str | None
    start: int
    end: int

    def __init__(
        self,
        message: str,
        *,
        mark: Mark | None = None,
        hint: str | None = None,
        text: str | None = None,
        start: int = 0,
        end: int = 0,
        **known: object,  # path and offset, always None: pickle passes the arguments of every error
    ) -> None:
        if mark is not None:
            text, start, end = mark.text, mark.start, mark.end
        super().__init__(message, hint=hint, text=text, start=start, end=end)

    def __str__(self) -> str:
        message = super().__str__()
        return message if self.text is None else f"{message}\n{underlined(self.text, self.start, self.end)}"


def underlined(text: str, start: int, end: int) -> str:
    """The line of `text` that contains `start`, and below it carets under [start, end) as far as the line reaches."""
    begin = text.rfind("\n", 0, start) + 1
    stop = text.find("\n", start)
    stop = len(text) if stop < 0 else stop
    left, right = max(begin, start - _SHOWN_BEFORE), min(stop, start + _SHOWN_AFTER)
    line = ("…" if left > begin else "") + text[left:right] + ("…" if right < stop else "")
    carets = max(1, min(end, right) - start)
    shown = "".join(letter if letter.isprintable() else " " for letter in line)
    return f"  {shown}\n  {' ' * (start - left + (left > begin))}{'^' * carets}"
