"""The entry of a request into its route: decode its names, check its token, turn exceptions into responses."""

from __future__ import annotations

from urllib.parse import unquote, unquote_to_bytes

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from aggregator import Allowance
from aggregator.server.bodies.shared.problems import ProblemError, error_response, problem_of
from aggregator.server.context import Context
from aggregator.server.control.access import check
from aggregator.server.control.operation import operation_of
from aggregator.server.control.request_scope import RequestScope
from aggregator.server.control.tokens import TokenCheck
from aggregator.server.http.responses import StreamedResponse


def entered(route: Route, context: Context) -> Route:
    """Return the route with these checks before its endpoint. Raises TypeError for an endpoint without an operation."""
    operation = operation_of(route.endpoint)
    work = context.settings.work

    async def enter(request: Request) -> Response:
        request.state.route, request.state.source = route.path, operation.source
        context.open_by_route[route.path] += 1
        try:
            header = request.headers.get("authorization")
            access = context.authority.access(header) if operation.scope != "open" else None
            token_check = None if access is None else TokenCheck(context.authority, header, access, operation)
            request.state.access, request.state.token_check = access, token_check
            request.state.open_responses = context.open_responses
            request.state.who = access.name if access is not None else ""
            _check_query(request.scope["query_string"])
            request.scope["path_params"] = {name: _decoded(text) for name, text in request.path_params.items()}
            if access is not None and token_check is not None:
                token_check.topic = request.path_params.get("topic")
                check(access, operation, token_check.topic)
            if operation.scope == "write" and request.method == "POST":
                context.know_append(request.scope["path"], route.path)
                length = request.headers.get("content-length", "")
                named = "idempotency-key" in request.headers
                size_bytes = int(length[:20]) if length.isdecimal() else 0
                await context.waiting_room.enter(None if named else size_bytes)
            if operation.scope == "read":
                context.reads.check_room()
            RequestScope(Allowance(work.query_s, work.query_bytes), request.receive).begin()
            response: Response = await route.endpoint(request)
            if token_check is not None and operation.scope == "read":
                await _still_allowed(token_check, response)
        except ClientDisconnect:
            return Response(status_code=400)  # nobody reads it
        except Exception as error:  # noqa: BLE001  # every error has an answer; the unexpected ones are logged with it
            problem = problem_of(error)
            request.state.refusal = problem.detail
            return error_response(problem, route.path)
        return response

    return Route(route.path, enter, methods=sorted(route.methods or {"GET"}), name=route.name)


async def _still_allowed(token_check: TokenCheck, response: Response) -> None:
    """Check the token again, because computing a response may take long. Raises ProblemError if it fails."""
    try:
        token_check.check()
    except ProblemError:
        if isinstance(response, StreamedResponse):
            await response.close()
        raise


def _check_query(query: bytes) -> None:
    """Raise ProblemError for names that are not UTF-8, which would be decoded as different text."""
    try:
        unquote_to_bytes(query).decode()
    except UnicodeDecodeError:
        raise ProblemError(400, "invalid-request", "a query parameter is not UTF-8") from None


def _decoded(name: str) -> str:
    try:
        return unquote(name, errors="strict")
    except UnicodeDecodeError:
        raise ProblemError(400, "invalid-request", "a name in the path is not UTF-8") from None
