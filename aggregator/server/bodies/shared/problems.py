"""Errors as responses: the status of each, and its body in the format of RFC 9457, plateau, or Elasticsearch."""

from __future__ import annotations

import http
import json
import logging
import math
from dataclasses import dataclass
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

import aggregator
from aggregator.lql import LqlError
from aggregator.server.bodies.shared.elastic import CHALLENGE, PRODUCT, error_body, is_elastic
from aggregator.server.bodies.shared.schemas import PROBLEM_JSON
from esformat import ClosedError, EsdbError, InvalidEventError, UnknownIndexError, UsageError

_log = logging.getLogger("aggregator.server")


@dataclass(frozen=True, slots=True)
class Problem:
    """Why a request failed. `kind` identifies it for programs; `detail` and `hint` are for people."""

    status: int
    kind: str
    detail: str
    hint: str | None = None
    retry_after_s: float | None = None
    headers: tuple[tuple[str, str], ...] = ()
    place: tuple[int, int] | None = None
    """The invalid characters [start, end) of a statement."""

    @property
    def title(self) -> str:
        """The status in words."""
        return http.HTTPStatus(self.status).phrase


class ProblemError(Exception):
    """A problem that a route detects itself."""

    def __init__(self, status: int, kind: str, detail: str, hint: str | None = None, **headers: str) -> None:
        super().__init__(detail)
        named = tuple((name.replace("_", "-"), value) for name, value in headers.items())
        self.problem = Problem(status, kind, detail, hint, headers=named)


# The first class that matches decides. Messages of other classes name the server's files, which callers need not see.
_CALLERS = (
    (aggregator.DiskFullError, 429, "disk-full"),
    (aggregator.OverloadedError, 429, "overloaded"),
    (aggregator.TopicNotFoundError, 404, "no-such-topic"),
    (aggregator.TopicExistsError, 409, "topic-exists"),
    (aggregator.SequenceForgottenError, 409, "sequence-forgotten"),
    (aggregator.SequenceConflictError, 409, "sequence-conflict"),
    (aggregator.ReadOnlyError, 503, "read-only"),  # another server may take it; shippers discard data refused with 403
    (aggregator.BehindError, 503, "behind"),  # another server may be further
    (aggregator.PartitionNotFoundError, 404, "no-such-partition"),
    (aggregator.InvalidRequestError, 400, "invalid-request"),
    (InvalidEventError, 400, "invalid-event"),
    (UnknownIndexError, 404, "unknown-index"),
    (aggregator.QueryLimitError, 400, "query-limit"),
    (aggregator.QueryCancelledError, 503, "cancelled"),
    (ClosedError, 503, "stopping"),
    (UsageError, 400, "invalid-request"),
)
_TOPICS_HINT = "GET /v1/topics lists the topics; PUT /v1/topics/{topic} creates one"
_SERVERS = (
    (aggregator.FencedError, 503, "fenced", "another server has taken over the catalog"),
    (aggregator.LogFailedError, 503, "log-failed", "the log cannot be written"),
    (aggregator.ManifestFailedError, 503, "manifest-failed", "the manifest cannot be read or written at the moment"),
    (aggregator.StoreError, 503, "store-failed", "the catalog's store does not answer, or refuses requests"),
    (EsdbError, 500, "damaged", "stored data cannot be read"),
)


def problem_of(error: BaseException) -> Problem:
    """Return the problem for an error. An error of the server itself is logged, and reported without details."""
    if isinstance(error, ProblemError):
        return error.problem
    if isinstance(error, HTTPException):
        headers = error.headers or {}
        hint = "see /docs for all routes" if error.status_code == 404 else None
        if "Allow" in headers:
            hint = f"this path allows {headers['Allow']}"
        return Problem(
            error.status_code,
            http.HTTPStatus(error.status_code).name.lower().replace("_", "-"),
            error.detail,
            hint,
            headers=tuple(headers.items()),
        )
    for kind, status, name in _CALLERS:
        if isinstance(error, kind):
            retry = error.retry_after_s if isinstance(error, aggregator.OverloadedError) else None
            place = (error.start, error.end) if isinstance(error, LqlError) and error.text is not None else None
            hint = _TOPICS_HINT if kind is aggregator.TopicNotFoundError else error.hint
            return Problem(status, name, error.message, hint, 1.0 if status == 503 else retry, place=place)
    _log.error("a request failed", exc_info=error)
    for server_kind, status, name, detail in _SERVERS:
        if isinstance(error, server_kind):
            return Problem(status, name, detail, "see the server's log", 5.0 if status == 503 else None)
    return Problem(500, "internal", "internal server error", "see the server's log")


def error_response(problem: Problem, path: str) -> Response:
    """Return the response to a request for `path` that failed."""
    headers = dict(problem.headers)
    if problem.retry_after_s is not None:
        headers["Retry-After"] = str(max(1, math.ceil(problem.retry_after_s)))
    if is_plateau(path):
        return _plateaus(problem, headers)
    if is_elastic(path):
        headers |= PRODUCT | ({"WWW-Authenticate": CHALLENGE} if problem.status == 401 else {})
        return Response(
            json.dumps(error_body(problem.status, _sentence(problem))), problem.status, headers, "application/json"
        )
    body: dict[str, Any] = {
        "type": f"/problems/{problem.kind}",
        "title": problem.title,
        "status": problem.status,
        "detail": problem.detail,
    }
    if problem.hint is not None:
        body["hint"] = problem.hint
    if problem.place is not None:
        body["place"] = list(problem.place)
    if problem.retry_after_s is not None:
        body["retry_after_ms"] = math.ceil(problem.retry_after_s * 1000)
    return Response(json.dumps(body), problem.status, headers, PROBLEM_JSON)


def _plateaus(problem: Problem, headers: dict[str, str]) -> Response:
    """Return a problem in plateau's wording, which its clients parse, with our hint added."""
    if problem.status == 413:
        return Response("payload too large", 413, headers, "text/plain")
    status, message, hint = problem.status, problem.detail, problem.hint
    if problem.kind == "disk-full":
        status, message, hint = 500, "insufficient disk space", _sentence(problem)
    elif status == 429:
        message, hint = "writer busy", None
    elif status == 500:
        message, hint = "unknown error", _sentence(problem)
    body = {"message": message, "code": status} | ({} if hint is None else {"hint": hint})
    return Response(json.dumps(body), status, headers, "application/json")


def is_plateau(path: str) -> bool:
    """Whether a path belongs to plateau's API, whose errors have its format."""
    return path in ("/ok", "/topics") or path.startswith("/topic/")


def _sentence(problem: Problem) -> str:
    return f"{problem.detail}; {problem.hint}" if problem.hint else problem.detail


async def handle(request: Request, error: Exception) -> Response:
    """Handle an exception, for Starlette."""
    return error_response(problem_of(error), request.scope.get("path", ""))
