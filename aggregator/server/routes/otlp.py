"""OTLP over HTTP, for OpenTelemetry's exporters and collectors: logs only, neither traces nor metrics."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from aggregator.model import STREAMS_TOPIC
from aggregator.server.bodies.otlp.status import failure, not_stored
from aggregator.server.bodies.shared.media import JSON, PROTOBUF, media_of
from aggregator.server.bodies.shared.problems import Problem, ProblemError, problem_of
from aggregator.server.bodies.shared.records import Target
from aggregator.server.bodies.shared.schemas import BINARY, PROBLEM, ref
from aggregator.server.context import Context
from aggregator.server.control.operation import F, bound, operation, parameter
from aggregator.server.http.body import read_body
from aggregator.server.http.params import Params, idempotency_key

TOPIC = parameter("topic", "Topic of the streams; created if missing", default=STREAMS_TOPIC, maxLength=1024)
PARTITION = parameter("partition", "Name of a partition", default="0")
_EXAMPLE: dict[str, Any] = {
    "resourceLogs": [{
        "resource": {"attributes": [{"key": "service.name", "value": {"stringValue": "checkout"}}]},
        "scopeLogs": [{"logRecords": [{
            "timeUnixNano": "1772352000000000000", "severityText": "ERROR", "body": {"stringValue": "no disk"},
            "attributes": [{"key": "http.status_code", "value": {"intValue": "500"}}],
        }]}],
    }]
}  # fmt: skip


_ERRORS: dict[str, Any] = {PROTOBUF: BINARY, JSON: {"schema": ref("Status")}, **PROBLEM}


def routes(context: Context) -> list[Route]:
    """Return the route `/v1/logs`, and the routes `/v1/traces` and `/v1/metrics`, which refuse."""
    return [
        Route("/v1/logs", bound(export_logs, context), methods=["POST"]),
        Route("/v1/traces", bound(export_traces, context), methods=["POST"]),
        Route("/v1/metrics", bound(export_metrics, context), methods=["POST"]),
    ]


@operation(
    "write", "Export logs with OTLP", tag="shippers", source="otlp",
    parameters=(TOPIC, PARTITION), checks_topics=True,
    description="Resource attributes named in the setting `otlp.tags` become the tags of the stream; body, severity, "
    "all other attributes, trace and span become message and fields. Durable before responding. Errors are a "
    "google.rpc.Status, as in OTLP.",
    body={PROTOBUF: BINARY, JSON: {"schema": {"type": "object", "format": "otlp"}, "example": _EXAMPLE}},
    errors=_ERRORS,
    responses={"200": {"description": "stored; partialSuccess counts records that cannot be stored",
                     "content": {PROTOBUF: BINARY, JSON: {"schema": {"type": "object"}}}},
               "400": {"description": "not an export request"}, "429": {"description": "retry after Retry-After "
                                                                                     "seconds"}},
)  # fmt: skip
async def export_logs(context: Context, request: Request) -> Response:
    media = media_of(request.headers.get("content-type"))
    try:
        if media not in (PROTOBUF, JSON):
            raise ProblemError(
                415,
                "unsupported-media-type",
                f"Content-Type {media[:80]!r} is not supported",
                f"send {PROTOBUF} or {JSON}",
            )
        answer = await _stored(context, request, media)
    except ClientDisconnect:
        raise
    except Exception as error:  # noqa: BLE001  # OTLP has its own format of errors
        problem = problem_of(error)
        request.state.refusal = problem.detail
        return _failure(problem, media)
    return Response(answer, 200, None, media)


async def _stored(context: Context, request: Request, media: str) -> bytes:
    params = Params(request, ["topic", "partition"])
    topic = params.text("topic") or STREAMS_TOPIC
    request.state.access.require("write", topic)
    target = Target(topic, params.partition(), *idempotency_key(request))
    body = await read_body(request, context.settings.http, may_be_empty=media == PROTOBUF)  # an export of no records

    def work() -> bytes:
        from aggregator.server.services.otlp_export import export  # here: slow to import

        return export(context, lambda: body.plain().to_pybytes(), media, target)

    return await context.appends.run(work)


def _refusing(signal: str) -> Callable[[F], F]:
    return operation(
        "open",
        f"Export {signal} with OTLP: refused",
        tag="shippers",
        description="Only logs are stored here.",
        errors=_ERRORS,
        responses={"404": {"description": f"{signal} are not stored here"}},
    )


@_refusing("traces")
async def export_traces(context: Context, request: Request) -> Response:
    return _refuse(context, request, "traces")


@_refusing("metrics")
async def export_metrics(context: Context, request: Request) -> Response:
    return _refuse(context, request, "metrics")


def _refuse(context: Context, request: Request, signal: str) -> Response:
    problem = not_stored(signal)
    context.refused("otlp", "unsupported", why=problem.detail)
    return _failure(problem, media_of(request.headers.get("content-type")))


def _failure(problem: Problem, media: str) -> Response:
    """Return a problem as a google.rpc.Status, in the encoding of the request."""
    headers = dict(problem.headers)
    if problem.retry_after_s is not None:
        headers["Retry-After"] = str(max(1, math.ceil(problem.retry_after_s)))
    media = media if media == JSON else PROTOBUF
    return Response(failure(problem.detail, media), problem.status, headers, media)
