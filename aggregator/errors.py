"""Every error that the aggregator raises on purpose, each with the party at fault.

    AggregatorError                  (an esformat.EsdbError: `message`, `path`, `offset`, `hint`)
    ├── CatalogNotFoundError         the caller: no catalog at that path (also a FileNotFoundError)
    ├── CatalogLockedError           another process writes to the catalog: `holder` identifies it
    ├── ReadOnlyError                the caller: the catalog was opened for reading only
    ├── InvalidRequestError          the caller: a name, option or policy that makes no sense (also a ValueError)
    │   └── PartitionNotFoundError   the caller: the topic has no such partition
    ├── TopicExistsError             the caller: the topic already exists (also a ValueError)
    ├── TopicNotFoundError           the caller: no such topic (also a KeyError)
    ├── SequenceConflictError        the caller: a producer reused a sequence for other events (also a ValueError)
    │   └── SequenceForgottenError   the caller: the sequence is too old to know whether it was stored
    ├── BehindError                  nobody: a copy has not reached the position; retry, or ask where it was issued
    ├── OverloadedError              the load: retry after `retry_after_s`
    │   └── DiskFullError            the disk: appends are refused until space is free
    ├── QueryLimitError              the caller: a query needs more time or memory than it is allowed
    ├── QueryCancelledError          nobody: a query was cancelled before its end
    ├── LogFailedError               the disk: the log could not be written or synced; says whether to reopen
    │   └── FencedError              another writer: it took over the catalog in its store
    ├── ManifestFailedError          the disk: the manifest could not be read or written; nothing changed
    ├── SealingFailedError           the system: the process that writes segments ended; nothing is lost
    ├── StoreError                   the object store: it refused a request; check address and credentials
    │   ├── StoreUnreachableError    the object store: it does not answer or is busy; retry
    │   ├── ObjectMissingError       the object store: no such object (also a FileNotFoundError)
    │   └── ObjectConflictError      another process: it won a conditional put
    ├── CorruptLogError              the bytes: the log violates its format
    ├── SegmentMissingError          the bytes: a segment that the manifest names is missing
    ├── CorruptManifestError         the bytes: the manifest is damaged; run `aggregator rebuild-manifest`
    └── UnknownVersionError          this program: it is too old for the manifest or the log

Events that cannot be stored raise esformat.InvalidEventError, closed objects esformat.ClosedError.
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


class PartitionNotFoundError(InvalidRequestError):
    """The topic has no partition of that name."""


class TopicExistsError(AggregatorError, ValueError):
    """A topic of that name exists."""


class TopicNotFoundError(AggregatorError, KeyError):
    """There is no topic of that name."""

    __str__ = EsdbError.__str__


class SequenceConflictError(AggregatorError, ValueError):
    """A producer reused a sequence for other events, or a sequence is too old to check; nothing was stored."""


class SequenceForgottenError(SequenceConflictError):
    """A producer's sequence is older than all that are remembered; nothing was stored."""


class BehindError(AggregatorError):
    """A copy or a standby has not yet reached a position that was issued elsewhere. Retry later."""


class OverloadedError(AggregatorError):
    """Memory, log or disk is full, or at a hard limit; the message says which, and what fills it. Nothing of the batch
    was stored. Retry after `retry_after_s` seconds.
    """

    retry_after_s: float


class DiskFullError(OverloadedError):
    """The disk is full, or a limit on it was reached: appends are refused until space is freed."""


class QueryLimitError(AggregatorError):
    """A query exceeded the time or memory of its allowance. It was ended; nothing was changed."""


class QueryCancelledError(AggregatorError):
    """A query was cancelled: by its caller, because its client disconnected, or because the server stops."""


class LogFailedError(AggregatorError):
    """The log could not be written or synced. Unacknowledged events may or may not be there after reopening."""


class ManifestFailedError(AggregatorError):
    """The manifest could not be read or written: the disk is full, or a lock was held too long. Nothing changed."""


class SealingFailedError(AggregatorError):
    """The process that writes segments ended early (`ended`), or failed. Nothing is lost."""

    ended: bool = False


class StoreError(AggregatorError):
    """An object store refused a request, or the request could not be made."""


class StoreUnreachableError(StoreError):
    """The store does not answer or is busy, despite retries. It may recover later."""


class ObjectMissingError(StoreError, FileNotFoundError):
    """The store has no such object."""

    __str__ = EsdbError.__str__


class ObjectConflictError(StoreError):
    """A conditional put found a different object than it required; nothing was changed."""


class FencedError(LogFailedError):
    """Another writer took over the catalog in the store: this one no longer changes anything, there or here."""


class CorruptLogError(AggregatorError):
    """A log file violates its format."""


class SegmentMissingError(AggregatorError):
    """A segment file that the manifest names is not there. Restore it from a copy."""


class CorruptManifestError(AggregatorError):
    """The manifest is damaged and cannot be read. It can be rebuilt from the segments."""


class UnknownVersionError(AggregatorError):
    """The manifest or the log was written by a newer version."""
