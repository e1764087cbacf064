"""`operation`: what a route does, said once: who may call it, and how the API document describes it."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar, TypeVarTuple

from starlette.requests import Request
from starlette.responses import Response

from aggregator.server.bodies.shared.refusals import Source
from aggregator.server.bodies.shared.schemas import PROBLEM

Ts = TypeVarTuple("Ts")
F = TypeVar("F", bound=Callable[..., Awaitable[Response]])
Endpoint = Callable[[Request], Awaitable[Response]]
Scope = Literal["open", "read", "write", "admin"]
_MARK = "_aggregator_operation"
_RETRY_AFTER = {"Retry-After": {"description": "seconds", "required": True, "schema": {"type": "integer"}}}


@dataclass(frozen=True, slots=True)
class Operation:
    """scope: what a token needs; "open" needs none. checks_topics: the route itself checks which topics it touches;
    where not, tokens that are limited to topics can call it only if its path names a `{topic}`. source: what
    its refusals are counted under; None: they are not. document: the OpenAPI operation object.
    """

    scope: Scope
    checks_topics: bool = False
    source: Source | None = None
    document: Mapping[str, Any] = field(default_factory=dict)


def operation(
    scope: Scope,
    summary: str,
    *,
    tag: str,
    description: str = "",
    parameters: Sequence[Mapping[str, Any]] = (),
    body: Mapping[str, Any] | None = None,
    body_needed: bool = True,
    answers: Mapping[str, Any] | None = None,
    errors: Mapping[str, Any] = PROBLEM,
    checks_topics: bool = False,
    source: Source | None = None,
) -> Callable[[F], F]:
    """Mark an endpoint. body: `content` of the request body by media type. answers: OpenAPI responses by status; those
    that are errors have the content `errors`, where they name none, as has any status that is not among them.

    Every endpoint has a mark; an application with one that has none is not made.
    """

    def mark(endpoint: F) -> F:
        document: dict[str, Any] = {"summary": summary, "tags": [tag], "operationId": endpoint.__name__}
        if description:
            document["description"] = description
        if parameters:
            document["parameters"] = list(parameters)
        if body is not None:
            document["requestBody"] = {"required": body_needed, "content": dict(body)}
        document["responses"] = _responses(answers or {"200": {"description": "done"}}, errors)
        setattr(endpoint, _MARK, Operation(scope, checks_topics, source, document))
        return endpoint

    return mark


def bound(endpoint: Callable[[*Ts, Request], Awaitable[Response]], *values: *Ts) -> Endpoint:
    """The endpoint with its first arguments set, under its name and with its mark."""

    @functools.wraps(endpoint)
    async def call(request: Request) -> Response:
        return await endpoint(*values, request)

    return call


def _responses(answers: Mapping[str, Any], errors: Mapping[str, Any]) -> dict[str, Any]:
    """The answers, completed with what all of their kind have."""
    made: dict[str, Any] = {"default": {"description": "an error", "content": errors}}
    for status, answer in answers.items():
        common = {"content": errors} if status >= "400" else {}
        made[status] = common | ({"headers": _RETRY_AFTER} if status == "429" else {}) | answer
    return made


def operation_of(endpoint: Any) -> Operation:
    """The mark of an endpoint. Raises TypeError where it has none."""
    found = getattr(endpoint, _MARK, None)
    if not isinstance(found, Operation):
        raise TypeError(f"endpoint {endpoint!r} is not marked with @operation")
    return found


def parameter(
    name: str,
    description: str,
    *,
    where: str = "query",
    kind: str | None = "string",
    required: bool = False,
    **schema: Any,
) -> dict[str, Any]:
    """A parameter as OpenAPI has it. kind: its JSON type; None: `schema` says it. schema: further members of its JSON
    schema, such as `default` and `example`.
    """
    required = required or where == "path"
    return {
        "name": name,
        "in": where,
        "description": description,
        "required": required,
        "schema": ({} if kind is None else {"type": kind}) | schema,
    }
