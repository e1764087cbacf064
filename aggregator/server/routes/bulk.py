"""Elasticsearch's routes that log shippers use: `_bulk`, and what they look at before they send anything."""

from __future__ import annotations

import math
import time
from typing import Any

from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from aggregator.catalog import STREAMS_TOPIC
from aggregator.server.asked import Asked, idempotency_key
from aggregator.server.body import read_body
from aggregator.server.bulk import (
    PRODUCT,
    Action,
    Wrong,
    about_server,
    bulk_answer,
    error_answer,
    read_actions,
    record_of,
)
from aggregator.server.context import Context
from aggregator.server.operation import operation, parameter
from aggregator.server.problems import Problem, ProblemError, problem_of
from aggregator.server.schemas import ELASTIC_ERROR, json_answer, ref, text
from aggregator.server.shipped import Outcome, Target, make_stream_topic, store

_JSON = "application/json"
_COMPATIBLE = "application/vnd.elasticsearch+json"
_LINES = '{"index": {"_index": "nginx"}}\n{"@timestamp": "2026-03-01T08:00:00Z", "message": "GET / 200"}\n'
_IGNORED = ("refresh", "timeout", "pipeline", "filter_path", "require_alias", "wait_for_active_shards", "routing",
            "_source", "_source_includes", "_source_excludes", "pretty", "human", "error_trace", "op_type")  # fmt: skip
_TOPIC = parameter("topic", "Topic of the streams; it is made where it is absent", default=STREAMS_TOPIC,
                   maxLength=1024)  # fmt: skip
_FACTS = {"200": json_answer("facts about the server", {"type": "object"})}
_STATUSES = {429: "es_rejected_execution_exception", 413: "content_too_long_exception", 403: "security_exception"}


def routes(context: Context) -> list[Route]:
    """`/_bulk`, `/{index}/_bulk`, `/`, and three that shippers ask on their way."""

    async def send_bulk(request: Request) -> Response:
        started = time.perf_counter()
        try:
            actions, outcomes = await stored(request)
        except ClientDisconnect:
            raise
        except Exception as error:  # noqa: BLE001  # Elasticsearch has answers of its own
            return _failure(problem_of(error), request)
        took = int((time.perf_counter() - started) * 1000)
        return _answer(bulk_answer(actions, outcomes, took), request)

    async def stored(request: Request) -> tuple[list[Action], list[Outcome | Wrong]]:
        asked = Asked(request, ["topic", "partition", *_IGNORED])
        topic = asked.text("topic") or STREAMS_TOPIC
        request.state.access.require("write", topic)
        index = request.path_params.get("index")
        target = Target(topic, asked.text("partition") or "0", *idempotency_key(request))
        body = await read_body(request, context.settings.http)

        def work() -> tuple[list[Action], list[Outcome | Wrong]]:
            actions = context.understand(lambda: list(read_actions(body.plain().to_pybytes(), index)))
            if not actions:
                raise ProblemError(400, "invalid-request", "request body is required")
            with context.telling("bulk") as tell:
                made = [record_of(action, tell) for action in actions]
                items = [each for each in made if not isinstance(each, Wrong)]
                if target.producer is not None and any(record.get("ts") is None for _, record in items):
                    raise ProblemError(
                        400, "invalid-event", "with an Idempotency-Key each document needs an @timestamp"
                    )
                make_stream_topic(context.catalog, topic, context.settings)
                found = iter(store(context.catalog, items, target, tell))
                return actions, [each if isinstance(each, Wrong) else next(found) for each in made]

        return await context.appends.run(work)

    @operation(
        "write", "Store documents by Elasticsearch's bulk interface", tag="shippers", checks_topics=True, source="bulk",
        description="`index` and `create` store a document as a record of the stream `{index=…}`; others "
        "are refused, item by item.",
        parameters=(_TOPIC,), body={"application/x-ndjson": text("bulk-lines", _LINES)},
        errors=ELASTIC_ERROR,
        answers={"200": json_answer("what became of each item", ref("BulkAnswer")),
                 "429": {"description": "try again"}},
    )  # fmt: skip
    async def bulk(request: Request) -> Response:
        return await send_bulk(request)

    @operation(
        "write", "Store documents of one index", tag="shippers", checks_topics=True, source="bulk",
        parameters=(parameter("index", "Index of items that name none", where="path", example="nginx"), _TOPIC),
        body={"application/x-ndjson": text("bulk-lines", _LINES)},
        errors=ELASTIC_ERROR,
        answers={"200": json_answer("what became of each item", ref("BulkAnswer")),
                 "429": {"description": "try again"}},
    )  # fmt: skip
    async def bulk_of_index(request: Request) -> Response:
        return await send_bulk(request)

    @operation("open", "What shippers for Elasticsearch look at first", tag="shippers", answers=_FACTS)
    async def about(request: Request) -> Response:
        return _answer(about_server(), request)

    @operation("open", "Elasticsearch's health check", tag="shippers", answers=_FACTS)
    async def cluster_health(request: Request) -> Response:
        return _answer({"cluster_name": "aggregator", "status": "green", "timed_out": False, "number_of_nodes": 1,
                        "number_of_data_nodes": 1}, request)  # fmt: skip

    @operation("open", "Elasticsearch's licence, for Beats", tag="shippers", answers=_FACTS)
    async def licence(request: Request) -> Response:
        return _answer({"license": {"status": "active", "uid": "aggregator", "type": "basic"}}, request)

    return [
        Route("/_bulk", bulk, methods=["POST", "PUT"]),
        Route("/{index}/_bulk", bulk_of_index, methods=["POST", "PUT"]),
        Route("/", about, methods=["GET", "HEAD"]),
        Route("/_cluster/health", cluster_health, methods=["GET"]),
        Route("/_license", licence, methods=["GET"]),
    ]


def _answer(content: Any, request: Request, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """An answer of the media type that Elasticsearch's own clients insist on."""
    compatible = "compatible-with" in request.headers.get("accept", "")
    media = f"{_COMPATIBLE};compatible-with=8" if compatible else _JSON
    make = Response if isinstance(content, bytes) else JSONResponse
    return make(content, status, {**PRODUCT, **(headers or {})}, media)


def _failure(problem: Problem, request: Request) -> Response:
    request.state.refusal = problem.detail
    headers = dict(problem.headers)
    if problem.retry_after_s is not None:
        headers["Retry-After"] = str(max(1, math.ceil(problem.retry_after_s)))
    kind = _STATUSES.get(problem.status, "illegal_argument_exception" if problem.status < 500 else "exception")
    return _answer(error_answer(problem.status, kind, problem.detail), request, problem.status, headers)
