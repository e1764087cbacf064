"""Errors of clients, in addition to those of a catalog in the same process, and the conversion of responses to errors.

AggregatorError
├── UnavailableError        the server or the network, after all attempts: `status`, `maybe_stored`
├── AccessDeniedError       the caller: no token, an invalid one, or one without permission; `status`
├── BodyTooLargeError       the caller: more bytes in one request than the server accepts; `max_bytes`
├── TruncatedAnswerError    the server or the network: a truncated response; do not use its beginning
└── WriteFailedError        a writer could not deliver: `unsent` has the events, `failed` the errors
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from aggregator.errors import (
    AggregatorError,
    InvalidRequestError,
    OverloadedError,
    PartitionNotFoundError,
    QueryLimitError,
    ReadOnlyError,
    SegmentMissingError,
    SequenceConflictError,
    SequenceForgottenError,
    TopicExistsError,
    TopicNotFoundError,
)
from esformat import CorruptSegmentError, EsdbError, InvalidEventError, UnknownIndexError

_MAX_SHOWN = 500  # characters of a response that is not a problem document
_DEFAULT_RETRY_AFTER_S = 1.0
_LONGEST_RETRY_AFTER_S = 86_400.0  # longer ones are ignored


class UnavailableError(AggregatorError):
    """The server cannot be reached, or fails, after all attempts.

    status: of its last response; None if there was none. maybe_stored: whether the request may have been stored.
    """

    status: int | None
    maybe_stored: bool


class AccessDeniedError(AggregatorError):
    """There is no token, or it is invalid or lacks permission."""

    status: int


class BodyTooLargeError(AggregatorError, ValueError):
    """The request has more bytes than the server accepts; nothing was stored. max_bytes: the limit, None: unknown."""

    max_bytes: int | None


class TruncatedAnswerError(AggregatorError):
    """A response was truncated, or is not what it claims to be. Retry the request."""


class WriteFailedError(AggregatorError):
    """A writer could not deliver everything. `unsent`: each an `Unsent` with its events; `failed`: the errors."""

    unsent: list[Any]
    failed: list[Exception]


_KINDS: dict[str, type[EsdbError]] = {
    "no-such-topic": TopicNotFoundError,
    "no-such-partition": PartitionNotFoundError,
    "topic-exists": TopicExistsError,
    "sequence-conflict": SequenceConflictError,
    "sequence-forgotten": SequenceForgottenError,
    "read-only": ReadOnlyError,
    "invalid-event": InvalidEventError,
    "unknown-index": UnknownIndexError,
    "query-limit": QueryLimitError,
    "damaged": CorruptSegmentError,
    "gone": SegmentMissingError,
}
_STATUSES: dict[int, type[EsdbError]] = {404: TopicNotFoundError, 409: SequenceConflictError}


def error_of(status: int, headers: Mapping[str, str], body: bytes, *, subject: str) -> EsdbError:
    """Return the error for a response other than 2xx: a problem document, plateau's {"message", "code"}, or any text.

    headers: with lower-case names, or a case-insensitive mapping. subject: the requested path, for the message.
    """
    problem = _problem(body)
    message = str(problem.get("detail") or problem.get("message") or problem.get("title") or f"HTTP status {status}")
    hint = problem.get("hint")
    place: dict[str, Any] = {"path": subject, "hint": str(hint) if hint else None}
    kind = str(problem.get("type", "")).rpartition("/")[2]
    if status == 429:
        return OverloadedError(
            message, retry_after_s=retry_after_s(headers, problem) or _DEFAULT_RETRY_AFTER_S, **place
        )
    if status in (401, 403) and kind not in _KINDS:
        if status == 401:  # the server's hint is about HTTP headers
            place["hint"] = "pass a token: token=… in Python, --token-file or AGGREGATOR_TOKEN for a command"
        return AccessDeniedError(message, status=status, **place)
    if status == 413:
        return BodyTooLargeError(message, max_bytes=_whole(headers.get("x-max-request-size")), **place)
    if kind == "no-such-topic":  # the server's hint is about routes
        place["hint"] = "see `topics`; create one with create_topic in Python, or `aggregator topics --create`"
    if kind in _KINDS or (status in _STATUSES and not kind):
        return _KINDS.get(kind, _STATUSES.get(status, InvalidRequestError))(message, **place)
    if status < 500 and status != 408:
        return InvalidRequestError(message, **place)
    stored = kind not in ("stopping", "cancelled", "overloaded")
    return UnavailableError(message, status=status, maybe_stored=stored, **place)


def wrap_unexpected(error: Exception) -> AggregatorError:
    """Wrap an unexpected error, for reports of events that were not delivered because of it."""
    made = AggregatorError(f"{type(error).__name__}: {str(error)[:_MAX_SHOWN]}")
    made.__cause__ = error
    return made


def retry_after_s(headers: Mapping[str, str], problem: Mapping[str, Any]) -> float | None:
    """Return when to retry: the problem document's `retry_after_ms`, which is finer, or else the header's seconds."""
    exact = problem.get("retry_after_ms")
    if isinstance(exact, int | float) and not isinstance(exact, bool) and 0 <= exact <= _LONGEST_RETRY_AFTER_S * 1000:
        return exact / 1000
    seconds = _whole(headers.get("retry-after"))  # our servers never send the other form, a date
    return None if seconds is None or seconds > _LONGEST_RETRY_AFTER_S else float(seconds)


def _whole(text: str | None) -> int | None:
    return int(text) if text is not None and text.isascii() and text.isdecimal() and len(text) < 16 else None


def _problem(body: bytes) -> dict[str, Any]:
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        found = None
    if isinstance(found, dict):
        return found
    return {"detail": body[:_MAX_SHOWN].decode("utf-8", "replace").strip()}
