"""Every error that esformat raises deliberately, and who or what is at fault.

    EsdbError
    ├── CorruptSegmentError          the bytes: they break a rule of the format
    │   └── ChecksumMismatchError    the bytes: they are not the ones that were written
    ├── SegmentChangedError          the store: the object was replaced or removed while it was open; open it again
    ├── UnsupportedVersionError      this reader is too old for the file, or lacks a codec
    ├── InvalidEventError            the caller: an event, table or schema that cannot be stored (also a ValueError)
    ├── UsageError                   the caller: an invalid argument or sequence of calls (also a ValueError)
    ├── UnknownIndexError            the caller: the file has no such index (also a KeyError)
    ├── SpaceNotFoundError           the caller: the file has no such space (also a KeyError)
    └── ClosedError                  the caller: the segment or writer is closed (also a ValueError)

Each says what was found, where (`path`, `offset`) and, if there is a remedy, what to do (`hint`).
"""

from __future__ import annotations

from typing import Any


class EsdbError(Exception):
    """Base of all errors of this package.

    Attributes: `message` (what is wrong), `path` (the file, or None), `offset` (byte of the file, or None),
    `hint` (what to do, or None). Survives pickling.
    """

    def __init__(
        self, message: str, *, path: str | None = None, offset: int | None = None, hint: str | None = None
    ) -> None:
        self.message = message
        self.path = path
        self.offset = offset
        self.hint = hint
        super().__init__(message)

    def __str__(self) -> str:
        where = f"{self.path}: " if self.path else ""
        at = f" (at byte {self.offset})" if self.offset is not None else ""
        todo = f"; {self.hint}" if self.hint else ""
        return f"{where}{self.message}{at}{todo}"

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.message, self.path, self.offset, self.hint)


def _rebuild(kind: type[EsdbError], message: str, path: str | None, offset: int | None, hint: str | None) -> EsdbError:
    return kind(message, path=path, offset=offset, hint=hint)


class CorruptSegmentError(EsdbError):
    """The bytes of a segment break a rule of the format. Run `esdb verify` on it; restore it from a copy."""


class ChecksumMismatchError(CorruptSegmentError):
    """A block's bytes are not the ones that were written. `expected` and `found` are in the message."""


class SegmentChangedError(EsdbError):
    """A segment was replaced, truncated or removed while it was open. It is no longer read; open it again."""


class UnsupportedVersionError(EsdbError):
    """The file needs a newer reader, or a codec that is not installed."""


class InvalidEventError(EsdbError, ValueError):
    """An event, table or schema cannot be stored; no part of it was stored."""


class UsageError(EsdbError, ValueError):
    """An argument or a sequence of calls is invalid."""


class UnknownIndexError(EsdbError, KeyError):
    """The segment has no index of that name."""

    __str__ = EsdbError.__str__


class SpaceNotFoundError(EsdbError, KeyError):
    """The segment has no event in that space."""

    __str__ = EsdbError.__str__


class ClosedError(EsdbError, ValueError):
    """The segment or writer has been closed, finished or aborted."""
