"""Every error that the aggregator raises on purpose, and whose fault each one is.

    AggregatorError                  (an esformat.EsdbError: `message`, `path`, `offset`, `hint`)
    ├── CatalogNotFoundError         the caller: no catalog lies there (also a FileNotFoundError)
    ├── CatalogLockedError           another process writes to the catalog: `holder` says which
    ├── ReadOnlyError                the caller: the catalog was opened for reading only
    ├── InvalidRequestError          the caller: a name, option or policy that makes no sense (also a ValueError)
    ├── TopicExistsError             the caller: the topic is there already (also a ValueError)
    ├── TopicNotFoundError           the caller: no such topic (also a KeyError)
    ├── SequenceConflictError        the caller: a producer's sequence came again with other events (also a ValueError)
    │   └── SequenceForgottenError   the caller: it is too old to tell whether it was stored
    ├── BehindError                  nobody: a copy has not come that far yet; ask again, or where the position is from
    ├── OverloadedError              the load: try again after `retry_after_s`
    │   └── DiskFullError            the disk: appends are refused until there is room
    ├── QueryLimitError              the caller: a query needs more time or memory than it may have
    ├── QueryCancelledError          nobody's: a query was told to stop before its end
    ├── LogFailedError               the disk: the log could not be written or synced; says whether to reopen
    │   └── FencedError              another writer: it took the catalog over in its store
    ├── ManifestFailedError          the disk: the manifest could not be written; nothing changed
    ├── SealingFailedError           the system: the process that writes segments ended; nothing is lost
    ├── StoreError                   the object store: it refuses; check address and credentials
    │   ├── StoreUnreachableError    the object store: it does not answer or is busy; try again
    │   ├── ObjectMissingError       the object store: no such object (also a FileNotFoundError)
    │   └── ObjectConflictError      another process: it was quicker with a conditional put
    ├── CorruptLogError              the bytes: the log breaks a rule of its format
    ├── SegmentMissingError          the bytes: a segment that the manifest names is not there
    ├── CorruptManifestError         the bytes: the manifest is damaged; run `aggregator rebuild-manifest`
    └── UnknownVersionError          this reader is too old for the manifest or the log

Events that cannot be stored raise esformat.InvalidEventError, closed things esformat.ClosedError.
"""

from __future__ import annotations

from typing import Any

from esformat import EsdbError


class AggregatorError(EsdbError):
    """Base of all errors of this package. Survives pickling, attributes included."""

    def __init__(
        self,
        message: str,
        *,
        path: str | None = None,
        offset: int | None = None,
        hint: str | None = None,
        **facts: Any,
    ) -> None:
        super().__init__(message, path=path, offset=offset, hint=hint)
        self._facts = facts
        for name, value in facts.items():
            setattr(self, name, value)

    def __reduce__(self) -> tuple[Any, ...]:
        known = {"path": self.path, "offset": self.offset, "hint": self.hint}
        return _rebuild, (type(self), self.message, known | self._facts)


def _rebuild(kind: type[AggregatorError], message: str, facts: dict[str, Any]) -> AggregatorError:
    return kind(message, **facts)


class CatalogNotFoundError(AggregatorError, FileNotFoundError):
    """There is no catalog at that path."""

    __str__ = EsdbError.__str__


class CatalogLockedError(AggregatorError):
    """Another process has the catalog open for writing. `holder`: dict with its pid, host and start."""

    holder: dict[str, Any]


class ReadOnlyError(AggregatorError):
    """The catalog was opened with `read_only=True`."""


class InvalidRequestError(AggregatorError, ValueError):
    """A name, option or policy makes no sense; nothing was changed."""


class TopicExistsError(AggregatorError, ValueError):
    """A topic of that name exists."""


class TopicNotFoundError(AggregatorError, KeyError):
    """There is no topic of that name."""

    __str__ = EsdbError.__str__


class SequenceConflictError(AggregatorError, ValueError):
    """A producer gave a sequence that is known with other events, or too old to tell; nothing was stored."""


class SequenceForgottenError(SequenceConflictError):
    """A producer gave a sequence that is older than those that are remembered; nothing was stored."""


class BehindError(AggregatorError):
    """A copy, or a standby, has not come as far as a position yet that was given elsewhere. Later it may have."""


class OverloadedError(AggregatorError):
    """Memory, log or the disk is full, or a hard limit of it; the message says which, and what fills it. Nothing of the
    batch was kept. Try again after `retry_after_s` seconds.
    """

    retry_after_s: float


class DiskFullError(OverloadedError):
    """The disk has no room left, or a limit of it was reached: appends are refused until somebody makes some."""


class QueryLimitError(AggregatorError):
    """A query needs more time or memory than its allowance gives it. It was ended; nothing was changed."""


class QueryCancelledError(AggregatorError):
    """A query was told to stop: by its caller, because its client left, or because the server stops."""


class LogFailedError(AggregatorError):
    """The log could not be written or synced; what was not acknowledged may be there after reopening, or not."""


class ManifestFailedError(AggregatorError):
    """The manifest could not be read or written just now: a full disk, a lock held too long. Nothing changed."""


class SealingFailedError(AggregatorError):
    """The process that writes segments ended before it was done (`ended`), or could not do it. Nothing is lost."""

    ended: bool = False


class StoreError(AggregatorError):
    """An object store refused what it was asked, or could not be asked."""


class StoreUnreachableError(StoreError):
    """The store does not answer, or is busy, though it was asked again and again. Later it may."""


class ObjectMissingError(StoreError, FileNotFoundError):
    """The store has no such object."""

    __str__ = EsdbError.__str__


class ObjectConflictError(StoreError):
    """A conditional put found another object than it was to find; nothing was changed."""


class FencedError(LogFailedError):
    """Another writer took over the catalog in the store: this one changes nothing any more, there and here."""


class CorruptLogError(AggregatorError):
    """The bytes of a log file break a rule of its format."""


class SegmentMissingError(AggregatorError):
    """A segment file that the manifest names is not there. Restore it from a copy."""


class CorruptManifestError(AggregatorError):
    """The manifest cannot be read as one. The segments hold what is needed to rebuild it."""


class UnknownVersionError(AggregatorError):
    """The manifest or the log was written by a newer version."""
