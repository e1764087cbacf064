"""Elasticsearch's routes that log shippers use: `_bulk`, `_doc`, and those that they query before sending."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from aggregator.model import STREAMS_TOPIC
from aggregator.server.bodies.bulk import (
    Action,
    Wrong,
    being_stored,
    bulk_answer,
    document_answer,
    exists,
    read_actions,
    record_of,
)
from aggregator.server.bodies.document_ids import key_of
from aggregator.server.bodies.shared import elastic
from aggregator.server.bodies.shared.problems import ProblemError
from aggregator.server.bodies.shared.records import TAGS_AND_RECORD, Outcome, Place, Target, make_stream_topic, store
from aggregator.server.bodies.shared.refusals import Count
from aggregator.server.bodies.shared.schemas import ELASTIC_ERROR, json_response, ref, text
from aggregator.server.context import Context
from aggregator.server.control.operation import F, bound, operation, parameter
from aggregator.server.http.body import read_body
from aggregator.server.http.params import Params, idempotency_key

_JSON = "application/json"
_COMPATIBLE = "application/vnd.elasticsearch+json"
_LINES = '{"index": {"_index": "nginx"}}\n{"@timestamp": "2026-03-01T08:00:00Z", "message": "GET / 200"}\n'
_IGNORED = ("refresh", "timeout", "pipeline", "filter_path", "require_alias", "wait_for_active_shards", "routing",
            "_source", "_source_includes", "_source_excludes", "pretty", "human", "error_trace", "op_type",
            "require_data_stream", "list_executed_pipelines", "include_source_on_error", "type")  # fmt: skip
_TOPIC = parameter("topic", "Topic of the streams; created if missing", default=STREAMS_TOPIC, maxLength=1024)
_INDEX = parameter("index", "The index, a tag of the stream", where="path", example="nginx")
_ID = parameter("id", "The document's id", where="path", example="17")
_OTHER_INDEX = parameter("index", "Index of items that do not name one", where="path", example="nginx")
_MANY = "`index` and `create` store a document as a record of the stream `{index=…}`; other actions are refused."
_ANSWERED = {"200": json_response("the result of each item", ref("BulkAnswer")), "429": {"description": "retry later"}}
_ONE = "A record of the stream `{index=…}`, with its id as the field `_id`."
_DOCUMENT = {"@timestamp": "2026-03-01T08:00:00Z", "message": "GET / 200"}
_BODY: Any = {"application/json": {"schema": {"type": "object"}, "example": _DOCUMENT}}
_STORED: dict[str, Any] = {"201": json_response("stored", {"type": "object"}), "429": {"description": "retry later"}}
_KEPT_NOWHERE = ("_index_template", "_template", "_component_template", "_ilm/policy", "_data_stream")
_FACTS = {"200": json_response("facts about the server", {"type": "object"})}


def routes(context: Context) -> list[Route]:
    """Return the routes for documents, in bulk and single, and for what shippers query first."""
    looks, sends = ["GET", "HEAD"], ["POST", "PUT"]
    return [
        *(
            Route(path, bound(bulk, context), methods=sends) for path in ("/_bulk", "/_bulk/")
        ),  # Fluent Bit with a pipeline
        *(Route(path, bound(bulk_of_index, context), methods=sends) for path in ("/{index}/_bulk", "/{index}/_bulk/")),
        Route("/{index}/_doc", bound(store_document, context), methods=["POST"]),
        Route("/{index}/_doc/{id}", bound(store_document_with_id, context), methods=sends),
        Route("/{index}/_create/{id}", bound(create_document, context), methods=sends),
        Route("/_cluster/health", cluster_health, methods=looks),
        Route("/_license", licence, methods=looks),
        Route("/_xpack", features, methods=looks),
        *(Route(f"/{kind}/{{name}}", template, methods=looks) for kind in _KEPT_NOWHERE),
    ]


def _in_bulk(summary: str, *parameters: Any) -> Callable[[F], F]:
    return operation(
        "write", summary, tag="shippers", checks_topics=True, source="bulk", description=_MANY,
        parameters=(*parameters, _TOPIC), body={"application/x-ndjson": text("bulk-lines", _LINES)},
        errors=ELASTIC_ERROR, responses=_ANSWERED,
    )  # fmt: skip


def _alone(summary: str, *parameters: Any, once: bool = False) -> Callable[[F], F]:
    responses = _STORED | {"409": {"description": "a document with this id exists already"}} if once else _STORED
    return operation(
        "write", summary, tag="shippers", checks_topics=True, source="bulk", description=_ONE,
        parameters=(*parameters, _TOPIC), body=_BODY, errors=ELASTIC_ERROR, responses=responses,
    )  # fmt: skip


@_in_bulk("Store documents with Elasticsearch's bulk API")
async def bulk(context: Context, request: Request) -> Response:
    return await _send_bulk(context, request)


@_in_bulk("Store documents of one index", _OTHER_INDEX)
async def bulk_of_index(context: Context, request: Request) -> Response:
    return await _send_bulk(context, request)


@_alone("Store a document", _INDEX)
async def store_document(context: Context, request: Request) -> Response:
    return await _send_document(context, request, _verb(request))


@_alone("Store a document under an id", _INDEX, _ID)
async def store_document_with_id(context: Context, request: Request) -> Response:
    return await _send_document(context, request, _verb(request))


@_alone("Store a document under an id, once", _INDEX, _ID, once=True)
async def create_document(context: Context, request: Request) -> Response:
    return await _send_document(context, request, "create")


@operation("open", "The first request of shippers for Elasticsearch", tag="shippers", responses=_FACTS)
async def about(request: Request) -> Response:
    return _answer(elastic.about_server(), request)


@operation("open", "Elasticsearch's health check", tag="shippers", responses=_FACTS)
async def cluster_health(request: Request) -> Response:
    return _answer(elastic.health(), request)


@operation("open", "Elasticsearch's licence, for Beats and Logstash", tag="shippers", responses=_FACTS)
async def licence(request: Request) -> Response:
    return _answer(elastic.licence(), request)


@operation("open", "Elasticsearch's features, of which none is supported", tag="shippers", responses=_FACTS)
async def features(request: Request) -> Response:
    return _answer(elastic.features(), request)


@operation(
    "open",
    "A template or policy, which always exists and is empty",
    tag="shippers",
    description="Keeps shippers from creating theirs. None is stored; creating one is refused.",
    parameters=(parameter("name", "Any name", where="path", example="logs"),),
)
async def template(request: Request) -> Response:
    kind = request.state.route.split("/")[1]
    return _answer(elastic.template(kind, request.path_params["name"]), request)


async def _send_bulk(context: Context, request: Request) -> Response:
    started = time.perf_counter()
    index = request.path_params.get("index")
    actions, outcomes = await _stored(context, request, lambda body: list(read_actions(body, index)))
    took = int((time.perf_counter() - started) * 1000)
    return _answer(bulk_answer(actions, outcomes, took), request)


async def _send_document(context: Context, request: Request, verb: str) -> Response:
    index, document_id = request.path_params["index"], request.path_params.get("id")
    actions, outcomes = await _stored(context, request, lambda body: [Action(verb, index, document_id, body, 1)])
    status, answer = document_answer(actions[0], outcomes[0])
    return _answer(answer, request, status)


async def _stored(
    context: Context, request: Request, read: Callable[[bytes], list[Action]]
) -> tuple[list[Action], list[Outcome | Wrong]]:
    params = Params(request, ["topic", "partition", *_IGNORED])
    topic = params.text("topic") or STREAMS_TOPIC
    request.state.access.require("write", topic)
    target = Target(topic, params.partition(), *idempotency_key(request))
    body = await read_body(request, context.settings.http)

    def work() -> tuple[list[Action], list[Outcome | Wrong]]:
        actions = context.understand(lambda: read(body.plain().to_pybytes()))
        if not actions:
            raise ProblemError(400, "invalid-request", "request body is required")
        with context.counting("bulk") as count:
            made = [record_of(action, count) for action in actions]
            if target.producer is not None and any(
                not isinstance(each, Wrong) and each[1].get("ts") is None for each in made
            ):
                raise ProblemError(400, "invalid-event", "with an Idempotency-Key each document needs an @timestamp")
            return actions, _store_once(context, actions, made, target, count)

    return await context.appends.run(work)


def _verb(request: Request) -> str:
    return "create" if request.query_params.get("op_type") == "create" else "index"


def _store_once(
    context: Context, actions: Sequence[Action], made: Sequence[TAGS_AND_RECORD | Wrong], target: Target, count: Count
) -> list[Outcome | Wrong]:
    """Store the records, except documents to be created that exist already.

    With an idempotency key the whole request is stored once; ids are only recorded then.
    """
    ids = context.document_ids
    keys = {
        place: key_of(target.topic, target.partition, action.index, action.id)
        for place, (action, each) in enumerate(zip(actions, made, strict=True))
        if action.id is not None and not isinstance(each, Wrong)
    }
    creates = [place for place in keys if actions[place].verb == "create" and target.producer is None]
    if creates:
        ids.read_back(context.catalog, target.topic, target.partition)
        ids.forget_gone(context.catalog, target.topic, target.partition, (keys[place] for place in creates))
    found: dict[int, Outcome | Wrong] = {place: each for place, each in enumerate(made) if isinstance(each, Wrong)}
    claimed: set[bytes] = set()
    try:
        for place in creates:
            state = ids.claim(keys[place])
            if state == "new":
                claimed.add(keys[place])
            else:
                again = keys[place] in claimed
                found[place] = exists(actions[place]) if state == "known" or again else being_stored(actions[place])
        rest = [(place, each) for place, each in enumerate(made) if place not in found and not isinstance(each, Wrong)]
        if rest:
            make_stream_topic(context.catalog, target.topic, context.settings)
        outcomes = store(context.catalog, [each for _, each in rest], target, count)
        found |= {place: outcome for (place, _), outcome in zip(rest, outcomes, strict=True)}
    finally:
        stored = ((key, found.get(place)) for place, key in keys.items())
        ids.settle(claimed, {key: at.index for key, at in stored if isinstance(at, Place)})
    return [found[place] for place in range(len(made))]


def _answer(content: Any, request: Request, status: int = 200) -> Response:
    """Return a response with the media type that Elasticsearch's own clients require."""
    compatible = "compatible-with" in request.headers.get("accept", "")
    media = f"{_COMPATIBLE};compatible-with=8" if compatible else _JSON
    make = Response if isinstance(content, bytes) else JSONResponse
    return make(content, status, elastic.PRODUCT, media)
