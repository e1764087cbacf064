"""When a client retries: pure decisions, without a server."""

from __future__ import annotations

import httpx
import pytest

from aggregator import (
    OverloadedError,
    PartitionNotFoundError,
    QueryLimitError,
    SequenceConflictError,
    SequenceForgottenError,
    TopicExistsError,
    TopicNotFoundError,
)
from aggregator.client import AccessDeniedError, BodyTooLargeError, Retry, UnavailableError
from aggregator.client.http.attempts import Attempts, failure_of
from aggregator.client.http.errors import error_of
from esformat import InvalidEventError


@pytest.mark.parametrize(("attempt", "ceiling"), [(1, 0.1), (2, 0.2), (3, 0.4), (9, 5.0), (5000, 5.0)])
def test_full_jitter(attempt, ceiling):
    """The wait is random between zero and a bound that doubles, up to the maximum."""
    retry = Retry(first_s=0.05, longest_s=5.0, deadline_s=None)
    assert retry.wait_s(attempt, 0, draw=lambda: 0.0) == 0
    assert retry.wait_s(attempt, 0, draw=lambda: 1.0) == pytest.approx(ceiling)


def test_retry_after_is_waited_on_top():
    """A server's Retry-After is never undercut; clients that were refused together spread out after it."""
    assert Retry().wait_s(1, 0, 2.0, draw=lambda: 0.0) == 2.0
    assert Retry().wait_s(1, 0, 2.0, draw=lambda: 1.0) == pytest.approx(2.1)


def test_no_attempt_after_the_deadline_or_the_last():
    """After the deadline or the last attempt the decision is None."""
    assert Retry(attempts=3).wait_s(2, 0) is not None
    assert Retry(attempts=3).wait_s(3, 0) is None
    assert Retry(deadline_s=10).wait_s(1, 9.99, 1.0) is None
    assert Retry(deadline_s=None).wait_s(10_000, 1e9) is not None


def problem(kind):
    return b'{"type": "/problems/%s", "detail": "so it is", "hint": "do this"}' % kind.encode()


ANSWERS = [
    (429, {"retry-after": "7"}, problem("overloaded"), OverloadedError, {"retry_after_s": 7.0}),
    (429, {"retry-after": "7"}, b'{"retry_after_ms": 250}', OverloadedError, {"retry_after_s": 0.25}),
    (429, {}, b'{"message": "writer busy", "code": 429}', OverloadedError, {"message": "writer busy"}),
    (429, {"retry-after": "-1"}, b'{"retry_after_ms": "soon"}', OverloadedError, {"retry_after_s": 1.0}),
    (429, {"retry-after": "999999999999"}, b"", OverloadedError, {"retry_after_s": 1.0}),
    (401, {}, b"", AccessDeniedError, {"status": 401}),
    (403, {}, problem("forbidden"), AccessDeniedError, {"hint": "do this"}),
    (413, {"x-max-request-size": "1000"}, b"", BodyTooLargeError, {"max_bytes": 1000}),
    (409, {}, problem("sequence-conflict"), SequenceConflictError, {}),
    (409, {}, problem("sequence-forgotten"), SequenceForgottenError, {}),
    (409, {}, problem("topic-exists"), TopicExistsError, {}),
    (404, {}, problem("no-such-topic"), TopicNotFoundError, {"message": "so it is"}),
    (404, {}, problem("no-such-partition"), PartitionNotFoundError, {}),
    (400, {}, problem("invalid-event"), InvalidEventError, {}),
    (500, {}, problem("internal"), UnavailableError, {"status": 500, "maybe_stored": True}),
    (503, {}, problem("stopping"), UnavailableError, {"status": 503, "maybe_stored": False}),
    (503, {}, problem("cancelled"), UnavailableError, {"status": 503, "maybe_stored": False}),
    (400, {}, problem("query-limit"), QueryLimitError, {}),
    (502, {}, b"<html>\xff bad gateway", UnavailableError, {"message": "<html>\ufffd bad gateway"}),
    (500, {}, b"[1, 2]", UnavailableError, {"message": "[1, 2]"}),
    (500, {}, b"[" * 200_000, UnavailableError, {"status": 500}),
]


@pytest.mark.parametrize(("status", "headers", "body", "kind", "facts"), ANSWERS)
def test_errors_of_answers(status, headers, body, kind, facts):
    """Each answer becomes the error that a local catalog would raise, with its details."""
    error = error_of(status, headers, body, subject="/v1/topics/t")
    assert type(error) is kind
    assert error.path == "/v1/topics/t"
    assert {name: getattr(error, name) for name in facts} == facts


def refused():
    return OverloadedError("busy", retry_after_s=0.5)


def lost():
    return failure_of(httpx.ReadError("reset"), "/x")


def unreachable():
    return failure_of(httpx.ConnectError("refused"), "/x")


def test_what_is_tried_again():
    """Batches not stored are always retried, those maybe stored only if that is harmless, mistakes never."""
    for error in (refused(), unreachable()):
        assert Attempts(Retry(), repeatable=False).wait_s(error) >= 0
    assert Attempts(Retry(), repeatable=True).wait_s(lost()) >= 0
    with pytest.raises(UnavailableError) as caught:
        Attempts(Retry(), repeatable=False).wait_s(lost())
    assert caught.value.maybe_stored
    with pytest.raises(InvalidEventError):
        Attempts(Retry(), repeatable=True).wait_s(InvalidEventError("wrong"))


def test_a_lost_attempt_is_not_forgotten():
    """If an earlier attempt was lost, a final refusal must not say that the batch was not stored."""
    attempts = Attempts(Retry(attempts=2), repeatable=True)
    attempts.wait_s(lost())
    with pytest.raises(UnavailableError) as caught:
        attempts.wait_s(refused())
    assert (caught.value.maybe_stored, caught.value.status) == (True, 429)
    attempts = Attempts(Retry(attempts=2), repeatable=True)
    attempts.wait_s(unreachable())
    with pytest.raises(OverloadedError):
        attempts.wait_s(refused())
    assert attempts.refusals == 1


def test_who_waits_is_told(caplog):
    """After a second without an answer one warning is logged; a busy server causes none."""
    now = [0.0]
    attempts = Attempts(Retry(), repeatable=True, clock=lambda: now[0])
    gone = failure_of(httpx.ConnectError("refused"), "http://x")
    for seconds in (0.0, 0.9, 1.0, 9.0):
        now[0] = seconds
        attempts.wait_s(gone)
        attempts.wait_s(OverloadedError("full", retry_after_s=0.1))
        assert [record.message for record in caplog.records] == [f"retrying: {gone}"] * (seconds >= 1)
