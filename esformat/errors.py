"""Every error that esformat raises on purpose, and whose fault each one is.

    EsdbError
    ├── CorruptSegmentError          the bytes: they break a rule of the format
    │   └── ChecksumMismatchError    the bytes: they are not the ones that were written
    ├── SegmentChangedError          the store: the object was replaced or removed while it was open; open it again
    ├── UnsupportedVersionError      this reader is too old for the file, or lacks a codec
    ├── InvalidEventError            the caller: an event, table or schema that cannot be stored (also a ValueError)
    ├── UsageError                   the caller: a verb used wrongly (also a ValueError)
    ├── UnknownIndexError            the caller: the file has no such index (also a KeyError)
    ├── SpaceNotFoundError           the caller: the file holds no such space (also a KeyError)
    └── ClosedError                  the caller: the segment or writer is closed (also a ValueError)

Each says what was found, where (`path`, `offset`) and, where there is something to do, what to do (`hint`).
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
    """A segment was replaced, cut or removed while it was open: nothing more is read of it. Open it again."""


class UnsupportedVersionError(EsdbError):
    """The file needs a newer reader, or a codec that is not installed."""


class InvalidEventError(EsdbError, ValueError):
    """An event, table or schema cannot be stored as given; nothing of it was kept."""


class UsageError(EsdbError, ValueError):
    """An argument or a sequence of calls makes no sense."""


class UnknownIndexError(EsdbError, KeyError):
    """The segment has no index of that name."""

    __str__ = EsdbError.__str__


class SpaceNotFoundError(EsdbError, KeyError):
    """The segment holds no event of that space."""

    __str__ = EsdbError.__str__


class ClosedError(EsdbError, ValueError):
    """The segment or writer was closed, finished or aborted before."""
