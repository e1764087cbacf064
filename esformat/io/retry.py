"""Retry requests to stores after transient failures."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar

from esformat.errors import EsdbError, UsageError

ATTEMPTS = 4  # most filesystems also retry, so each attempt may be several requests
FIRST_WAIT_SECONDS = 0.1  # doubles with each attempt, plus a random time of up to 0.1 s
LONGEST_WAIT_SECONDS = 5.0

T = TypeVar("T")

_LASTING = (EsdbError, FileNotFoundError, FileExistsError, PermissionError, IsADirectoryError, NotADirectoryError)
_REFUSED = re.compile(  # how Arrow's filesystems word permanent errors
    r"HTTP status 4(?!08|29)\d\d"
    r"|AWS Error (ACCESS_DENIED|INVALID_|MISSING_|RESOURCE_NOT_FOUND|NO_SUCH_|SIGNATURE_|UNRECOGNIZED_|VALIDATION)"
)


def is_transient(error: BaseException) -> bool:
    """Whether the same request may succeed a moment later: a lost connection, a timeout, a busy server."""
    if isinstance(error, _LASTING):
        return False
    if isinstance(error, OSError):  # includes lost connections and timeouts
        return _REFUSED.search(str(error)) is None
    return any(kind.__name__ == "ClientConnectionError" for kind in type(error).__mro__)  # aiohttp's, not an OSError


@cache
def _retrying() -> Any:
    try:
        import tenacity
    except ImportError:
        raise UsageError(
            "object stores need the package tenacity", hint='install it with: pip install "esformat[cloud]"'
        ) from None
    return tenacity.Retrying(
        retry=tenacity.retry_if_exception(is_transient),
        stop=tenacity.stop_after_attempt(ATTEMPTS),
        wait=tenacity.wait_exponential(multiplier=FIRST_WAIT_SECONDS, max=LONGEST_WAIT_SECONDS)
        + tenacity.wait_random(0, FIRST_WAIT_SECONDS),
        reraise=True,
    )


def retry(work: Callable[..., T], *arguments: Any) -> T:
    """The result of `work`, which is retried after transient failures, up to `ATTEMPTS` attempts in all.

    Raises the error of the last attempt; UsageError if tenacity is not installed.
    """
    result: T = _retrying()(work, *arguments)
    return result
