"""`operation`: a decorator that declares a route: who may call it, and its entry in the API document."""

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
    """The declaration of a route.

    scope: what a token needs; "open" needs none. checks_topics: the route checks itself which topics it touches;
    otherwise tokens limited to topics can call it only if its path has a `{topic}`. source: the label of its refusals
    in counts; None: they are not counted. document: the OpenAPI operation object.
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
    responses: Mapping[str, Any] | None = None,
    errors: Mapping[str, Any] = PROBLEM,
    checks_topics: bool = False,
    source: Source | None = None,
) -> Callable[[F], F]:
    """Declare an endpoint's operation.

    body: `content` of the request body by media type. responses: OpenAPI responses by status. errors: content of the
    error responses that define none, and of any status that is not in `responses`. Every endpoint must be declared;
    otherwise the application is not created.
    """

    def mark(endpoint: F) -> F:
        document: dict[str, Any] = {"summary": summary, "tags": [tag], "operationId": endpoint.__name__}
        if description:
            document["description"] = description
        if parameters:
            document["parameters"] = list(parameters)
        if body is not None:
            document["requestBody"] = {"required": body_needed, "content": dict(body)}
        document["responses"] = _responses(responses or {"200": {"description": "done"}}, errors)
        setattr(endpoint, _MARK, Operation(scope, checks_topics, source, document))
        return endpoint

    return mark


def bound(endpoint: Callable[[*Ts, Request], Awaitable[Response]], *values: *Ts) -> Endpoint:
    """Return the endpoint with its first arguments bound, keeping its name and declaration."""

    @functools.wraps(endpoint)
    async def call(request: Request) -> Response:
        return await endpoint(*values, request)

    return call


def _responses(responses: Mapping[str, Any], errors: Mapping[str, Any]) -> dict[str, Any]:
    """Complete the responses with what all of their kind share."""
    made: dict[str, Any] = {"default": {"description": "an error", "content": errors}}
    for status, response in responses.items():
        common = {"content": errors} if status >= "400" else {}
        made[status] = common | ({"headers": _RETRY_AFTER} if status == "429" else {}) | response
    return made


def operation_of(endpoint: Any) -> Operation:
    """Return the declaration of an endpoint. Raises TypeError if it has none."""
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
    """Return an OpenAPI parameter.

    kind: its JSON type; None: `schema` defines it. schema: further members of its JSON schema, such as `default` and
    `example`.
    """
    required = required or where == "path"
    return {
        "name": name,
        "in": where,
        "description": description,
        "required": required,
        "schema": ({} if kind is None else {"type": kind}) | schema,
    }
