"""`Attempts`: the retries of one call."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable

import httpx

from aggregator.client.http.errors import AccessDeniedError, BodyTooLargeError, TruncatedAnswerError, UnavailableError
from aggregator.client.http.retry import Retry
from aggregator.errors import OverloadedError, ReadOnlyError
from esformat import EsdbError

RETRY_ON_OTHER_SERVER = (UnavailableError, ReadOnlyError)
"""Errors after which another server of the catalog may succeed: this one is gone, stopping, fenced, or a follower."""
_REFUSED_UNSEEN = (BodyTooLargeError, AccessDeniedError, ReadOnlyError)
"""Errors that a server raises before it examines a batch, so they say nothing about earlier attempts."""
QUIET_S = 1.0
"""Seconds of failed attempts after which the retries are logged."""
_log = logging.getLogger("aggregator.client")
_STATUSES: dict[type[EsdbError], int] = {OverloadedError: 429, ReadOnlyError: 503, BodyTooLargeError: 413}
_NOT_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)


class Attempts:
    """Counts attempts. Pass each failure to `wait_s`, which returns the wait, or raises the error for the caller."""

    def __init__(
        self,
        retry: Retry,
        *,
        repeatable: bool,
        stores: bool = False,
        servers: int = 1,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """stores: the call appends events. servers: number of servers, asked in turn without waits within one round."""
        self._retry, self._repeatable, self._servers, self._clock = retry, repeatable, servers, clock
        self._refused_unseen = _REFUSED_UNSEEN if stores else ()
        self._began = clock()
        self._made = 0
        self._maybe_stored = False
        self._logged = False
        self.refusals = 0

    def wait_s(self, error: EsdbError) -> float:
        """Return seconds until the next attempt. Raises `error`, or UnavailableError if an earlier attempt may have
        worked.
        """
        self._made += 1
        retry_after_s: float | None = None
        if isinstance(error, OverloadedError):
            self.refusals += 1
            retry_after_s = error.retry_after_s
        elif isinstance(error, UnavailableError):
            self._maybe_stored |= error.maybe_stored
            if error.maybe_stored and not self._repeatable:
                raise error
        elif self._servers == 1 or not isinstance(error, RETRY_ON_OTHER_SERVER):
            raise self.final_error(error) if isinstance(error, self._refused_unseen) else error
        wait = self._retry.wait_s(self._made, self._clock() - self._began, retry_after_s)
        if wait is None:
            raise self.final_error(error)
        if isinstance(error, UnavailableError) and not self._logged and self._clock() - self._began >= QUIET_S:
            self._logged = True
            _log.warning("retrying: %s", error)
        return 0.0 if isinstance(error, RETRY_ON_OTHER_SERVER) and self._made % self._servers else wait

    def final_error(self, error: EsdbError) -> EsdbError:
        """Return the error to raise if no attempt follows."""
        if self._made <= 1 or (not isinstance(error, UnavailableError) and not self._maybe_stored):
            return error
        status = getattr(error, "status", _STATUSES.get(type(error)))
        took = f"{self._made} attempts in {self._clock() - self._began:.1f} s"
        return UnavailableError(
            f"{error.message} ({took})",
            path=error.path,
            hint=error.hint,
            status=status,
            maybe_stored=self._maybe_stored,
        )


def check_whole(response: httpx.Response) -> None:
    """Raise httpx.RemoteProtocolError for truncated JSON.

    If no header states the length, HTTP takes a closed connection for the end.
    """
    if response.is_success and response.headers.get("content-type", "").startswith("application/json"):
        try:
            json.loads(response.content)
        except (ValueError, RecursionError):
            raise httpx.RemoteProtocolError("the answer ended early") from None


def failure_of(error: httpx.RequestError, subject: str) -> UnavailableError:
    """Return the error for a transport failure before a response."""
    if isinstance(error, httpx.ReadTimeout | httpx.WriteTimeout):
        what = "the server did not answer in time"
    elif isinstance(error, _NOT_SENT):
        what = "the server cannot be reached"
    else:
        what = "the connection was lost"
    message = f"{what}: {error}" if str(error) else what
    sent = not isinstance(error, _NOT_SENT)
    hint = (
        None
        if sent
        else "check that the server runs and that the address is right; `aggregator serve DIRECTORY` starts one"
    )
    return UnavailableError(message, path=subject, hint=hint, status=None, maybe_stored=sent)


def broken_off(error: httpx.RequestError, subject: str) -> TruncatedAnswerError:
    """Return the error for a transport failure in the middle of a response."""
    return TruncatedAnswerError(f"the answer ended early: {error}", path=subject, hint="try again")
