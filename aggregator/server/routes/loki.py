"""`POST /loki/api/v1/push`: Loki's push interface, for Alloy, promtail and other shippers."""

from __future__ import annotations

import math
from typing import Any

from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from aggregator.model import STREAMS_TOPIC
from aggregator.server.bodies.shared.media import JSON, PROTOBUF, media_of
from aggregator.server.bodies.shared.problems import Problem, ProblemError, problem_of
from aggregator.server.bodies.shared.records import TAGS_AND_RECORD, Refusal, Target, make_stream_topic, store
from aggregator.server.bodies.shared.schemas import BINARY, PROBLEM
from aggregator.server.context import Context
from aggregator.server.control.operation import bound, operation, parameter
from aggregator.server.http.body import read_body
from aggregator.server.http.params import Params, header, idempotency_key

TENANT = "X-Scope-OrgID"
_EXAMPLE: dict[str, Any] = {
    "streams": [{"stream": {"app": "web"}, "values": [["1772352000000000000", "no disk", {"trace_id": "17"}]]}]
}
_PARAMETERS = (
    parameter("topic", f"Topic of the streams; default: the tenant, or else {STREAMS_TOPIC}"),
    parameter("partition", "Name of a partition", default="0"),
    parameter(TENANT, "Tenant, stored in a topic of this name, which is created if missing", where="header"),
)


def routes(context: Context) -> list[Route]:
    """Return the routes `/loki/api/v1/push`, and `/ready`, which some shippers query first."""
    return [
        Route("/loki/api/v1/push", bound(push_logs, context), methods=["POST"]),
        Route("/ready", bound(loki_ready, context), methods=["GET"]),
    ]


@operation(
    "write", "Push logs in Loki's format", tag="shippers", source="loki",
    parameters=_PARAMETERS, checks_topics=True, errors={"text/plain": {}, **PROBLEM},
    description="Labels become the tags of the stream, the line the message, structured metadata the fields. Protobuf "
    "is compressed with snappy. Durable before responding. Errors are plain text, as in Loki.",
    body={PROTOBUF: BINARY, JSON: {"schema": {"type": "object", "format": "loki"}, "example": _EXAMPLE}},
    responses={"204": {"description": "stored"}, "429": {"description": "retry after Retry-After seconds"},
               "400": {"description": "not a push request; or some entries, which are counted in the text, cannot be "
                                    "stored, and all others are"}},
)  # fmt: skip
async def push_logs(context: Context, request: Request) -> Response:
    try:
        await _stored(context, request)
    except ClientDisconnect:
        raise
    except Exception as error:  # noqa: BLE001  # Loki has its own format of errors
        return _failure(problem_of(error))
    return Response(status_code=204)


async def _stored(context: Context, request: Request) -> None:
    params = Params(request, ["topic", "partition"])
    topic = params.text("topic") or header(request, TENANT) or STREAMS_TOPIC
    request.state.access.require("write", topic)
    target = Target(topic, params.partition(), *idempotency_key(request))
    as_json = media_of(request.headers.get("content-type")) == JSON
    snappy = not as_json and request.headers.get("content-encoding", "").strip().lower() == "snappy"
    most = context.settings.http.max_append_bytes
    body = await read_body(request, context.settings.http, as_it_is=("snappy",) if snappy else ())

    def work() -> None:
        from aggregator.server.bodies.loki import read_json_push, read_push, unpack_snappy  # here: slow to import

        with context.counting("loki") as count:

            def read() -> list[TAGS_AND_RECORD]:
                plain = body.plain().to_pybytes()
                return read_json_push(plain, count) if as_json else read_push(unpack_snappy(plain, most), count)

            items = context.understand(read)
            if target.producer is not None and any("ts" not in record for _, record in items):
                raise ProblemError(400, "invalid-event", "with an Idempotency-Key each entry needs a time")
            make_stream_topic(context.catalog, topic, context.settings)
            outcomes = store(context.catalog, items, target, count)
        refusals = [outcome for outcome in outcomes if isinstance(outcome, Refusal)]
        if refusals:
            raise ProblemError(
                400,
                "invalid-event",
                f"{len(refusals)} of {len(outcomes)} entries cannot be stored: {refusals[0].reason}",
                "all others are stored",
            )

    await context.appends.run(work)


@operation(
    "open",
    "Whether the server is ready, in Loki's format",
    tag="shippers",
    errors={"text/plain": {}, **PROBLEM},
    responses={"200": {"description": "ready", "content": {"text/plain": {}}}, "503": {"description": "not ready"}},
)
async def loki_ready(context: Context, request: Request) -> Response:
    return PlainTextResponse("ready\n" if context.ready else "not ready\n", 200 if context.ready else 503)


def _failure(problem: Problem) -> Response:
    """Return a problem as plain text."""
    headers = dict(problem.headers)
    if problem.retry_after_s is not None:
        headers["Retry-After"] = str(max(1, math.ceil(problem.retry_after_s)))
    text = problem.detail if problem.hint is None else f"{problem.detail}; {problem.hint}"
    return PlainTextResponse(f"{text}\n", problem.status, headers)
