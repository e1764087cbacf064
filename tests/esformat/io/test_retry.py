"""Failures that are retried."""

from __future__ import annotations

import sys

import aiohttp
import pytest

from esformat.errors import CorruptSegmentError, UsageError
from esformat.io import retry

PASSING = [
    OSError("AWS Error SLOW_DOWN during GetObject operation: Reduce your request rate"),
    OSError("AWS Error UNKNOWN (HTTP status 503) during HeadObject operation"),
    OSError("AWS Error UNKNOWN (HTTP status 429) during GetObject operation"),
    OSError("AWS Error NETWORK_CONNECTION during GetObject operation: curlCode: 28"),
    ConnectionResetError("gone"),
    TimeoutError(),
    aiohttp.ServerDisconnectedError(),
]
LASTING = [
    OSError("AWS Error ACCESS_DENIED during HeadObject operation"),
    OSError("AWS Error UNKNOWN (HTTP status 416) during GetObject operation: "),
    FileNotFoundError("no"),
    PermissionError("no"),
    CorruptSegmentError("no"),
    ValueError("no"),
    KeyboardInterrupt(),
]


@pytest.fixture
def _at_once(monkeypatch):
    retrying = retry._retrying()
    monkeypatch.setattr(retrying, "sleep", lambda seconds: None)


@pytest.mark.usefixtures("_at_once")
@pytest.mark.parametrize("error", PASSING, ids=repr)
def test_what_may_pass_is_tried_again(error):
    """The result of a later attempt is returned."""
    answers = [error, error, 7]

    def work(argument):
        answer = answers.pop(0)
        if isinstance(answer, BaseException):
            raise answer
        return answer + argument

    assert retry.retry(work, 1) == 8


@pytest.mark.usefixtures("_at_once")
@pytest.mark.parametrize(("errors", "attempts"), [(PASSING, retry.ATTEMPTS), (LASTING, 1)], ids=["passing", "lasting"])
def test_the_last_error_is_raised(errors, attempts):
    """The last error is raised unchanged, after the number of attempts for its kind."""
    for error in errors:
        calls = []

        def work(calls=calls, error=error):
            calls.append(1)
            raise error

        with pytest.raises(type(error)) as raised:
            retry.retry(work)
        assert raised.value is error
        assert len(calls) == attempts


def test_waits_grow():
    """Each wait is about twice the one before, up to a limit."""
    state = type("State", (), {})()
    waits = []
    for attempt in range(1, 9):
        state.attempt_number = attempt
        waits.append(retry._retrying().wait(state))
    assert all(0.1 * 2**n <= wait <= 0.1 * 2**n + 0.1 for n, wait in enumerate(waits[:5]))
    assert max(waits) <= retry.LONGEST_WAIT_SECONDS + retry.FIRST_WAIT_SECONDS


def test_without_tenacity(monkeypatch):
    """Without tenacity the error names the extra to install."""
    retry._retrying.cache_clear()
    monkeypatch.setitem(sys.modules, "tenacity", None)
    with pytest.raises(UsageError, match=r"esformat\[cloud\]"):
        retry.retry(lambda: 1)
    retry._retrying.cache_clear()
