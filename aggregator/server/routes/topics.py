"""Topics and their upkeep: create, list, describe, alter, rename, delete; retention and others on demand."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from aggregator import InvalidRequestError, Retention, Roll, Topic, TopicExistsError
from aggregator.server.bodies.shared.columns import describe_columns, read_columns
from aggregator.server.bodies.shared.problems import ProblemError
from aggregator.server.bodies.shared.schemas import by_name, json_response, ref, shape
from aggregator.server.context import Context
from aggregator.server.control.operation import bound, operation, parameter
from aggregator.server.http.params import Params, json_object, wrong

_TOPIC = parameter("topic", "Name of a topic", where="path", example="activity", minLength=1, maxLength=1024)
_DRY_RUN = parameter("dry_run", "Only report what would be removed", kind="boolean", default=False)
_SIZE: dict[str, Any] = {
    "anyOf": [
        {"type": "integer", "minimum": 1, "maximum": 2**64 - 1},
        {"type": "string", "pattern": "^[1-9][0-9]{0,8} ?([kMG]i?)?B$"},
    ]
}
_SPAN = {"type": "string", "pattern": "^[1-9][0-9]{0,5} ?[smhd]$"}
_COUNT = {"type": "integer", "minimum": 1, "maximum": 2**64 - 1}
_COUNT_OR_NONE = {"type": ["integer", "null"], "minimum": 0}
_POLICIES = {
    "roll": shape({}, {"rows": _COUNT, "bytes": _SIZE, "age": _SPAN}) | {"type": ["object", "null"]},
    "retention": shape(
        {},
        {
            "bytes": {"anyOf": [*_SIZE["anyOf"], {"enum": [0, None]}]},
            "age": {"anyOf": [_SPAN, {"type": "null"}]},
            "segments": _COUNT_OR_NONE,
            "partition_bytes": {"anyOf": [*_SIZE["anyOf"], {"enum": [0, None]}]},
            "partition_segments": _COUNT_OR_NONE,
        },
    )
    | {"type": ["object", "null"]},
}
_DEFINITION = {
    "application/json": {
        "schema": shape(
            {},
            {
                "schema": {
                    **by_name({"type": "string", "format": "arrow-type"}),
                    "propertyNames": {"format": "column-name"},
                    "description": "columns and their Arrow types, such as string, int64, float64, bool, timestamp, "
                    "list<string>; default: taken from the first batch",
                },
                "indexes": {
                    "type": "array",
                    "uniqueItems": True,
                    "items": {"type": "string", "minLength": 1, "format": "column-name"},
                },
                "keys": {"enum": ["text", "binary"]},
                **_POLICIES,
            },
        ),
        "example": {
            "schema": {"type": "string", "price": "float64"},
            "indexes": ["type"],
            "roll": {"age": "60s"},
            "retention": {"bytes": "10 GiB", "age": "30d"},
        },
    }
}


_NEW_NAME = shape({"name": {"type": "string", "minLength": 1, "maxLength": 1024}})
_SPACES = shape({"spaces": {"type": "array", "items": {"type": "string"}}})


def _report_of(name: str) -> dict[str, Any]:
    return {"200": json_response("the result", ref(name)), "404": {"description": "no such topic"}}


def routes(context: Context) -> list[Route]:
    """Return the routes `/v1/topics`, `/v1/topics/{topic}` with `retain`, `compact`, `erase`, `rename`, and
    `/v1/stats`.
    """
    path = "/v1/topics/{topic}"
    return [
        Route("/v1/topics", bound(list_topics, context), methods=["GET"]),
        Route(path, bound(get_topic, context), methods=["GET"]),
        Route(path, bound(put_topic, context), methods=["PUT"]),
        Route(path, bound(patch_topic, context), methods=["PATCH"]),
        Route(path, bound(delete_topic, context), methods=["DELETE"]),
        Route(f"{path}/rename", bound(rename_topic, context), methods=["POST"]),
        Route(f"{path}/retain", bound(retain_topic, context), methods=["POST"]),
        Route(f"{path}/compact", bound(compact_topic, context), methods=["POST"]),
        Route(f"{path}/erase", bound(erase_topic, context), methods=["POST"]),
        Route("/v1/stats", bound(stats, context), methods=["GET"]),
    ]


@operation(
    "read",
    "List the topics that the caller may see",
    tag="topics",
    checks_topics=True,
    responses={"200": json_response("the topics", ref("Names"), {"topics": [{"name": "activity"}]})},
)
async def list_topics(context: Context, request: Request) -> Response:
    Params(request, [])
    names = await context.reads.run(context.catalog.topics)
    return JSONResponse({"topics": [{"name": name} for name in names if context.may_see(request, name)]})


@operation(
    "admin",
    "Create a topic",
    tag="topics",
    parameters=(_TOPIC,),
    body=_DEFINITION,
    body_needed=False,
    description="Roll: rows, bytes, age. Retention: bytes, age, segments. Sizes are written `64 MiB`, durations `7d`.",
    responses={
        "201": json_response("made", ref("Topic")),
        "200": json_response("the topic exists with the same definition", ref("Topic")),
        "409": {"description": "the topic exists with another definition"},
    },
)
async def put_topic(context: Context, request: Request) -> Response:
    Params(request, [])
    name = request.path_params["topic"]
    body = await json_object(request, context, ("schema", "indexes", "keys", "roll", "retention"))
    schema = read_columns(body.get("schema"))
    indexes = _texts(body.get("indexes", []), "indexes")
    roll, retention = Roll.of(_mapping(body, "roll")), Retention.of(_mapping(body, "retention"))
    keys = body.get("keys", "text")

    def make() -> tuple[dict[str, Any], int]:
        try:
            return _facts(
                context.catalog.create_topic(name, schema, indexes=indexes, keys=keys, roll=roll, retention=retention)
            ), 201
        except TopicExistsError:
            there = context.catalog.topic(name)
            found = {
                "indexes": list(there.indexes),
                "keys": there.keys,
                "roll": there.roll,
                "retention": there.retention,
            }
            wanted = {"indexes": indexes, "keys": keys, "roll": roll, "retention": retention}
            differ = [what for what in wanted if what in body and wanted[what] != found[what]]
            columns = describe_columns(there.scan().schema)  # it may have gained some
            if schema is not None and not describe_columns(schema).items() <= columns.items():
                differ.append("schema")
            if differ:
                raise ProblemError(
                    409,
                    "topic-exists",
                    f"topic {name!r} exists with other {', '.join(differ)}",
                    "use PATCH to change roll and retention; the rest is fixed",
                ) from None
            return _facts(there), 200

    facts, status = await context.appends.run(make)
    return JSONResponse(facts, status)


@operation(
    "admin",
    "Change the roll or retention of a topic",
    tag="topics",
    parameters=(_TOPIC,),
    description="Limits that are not named stay; null removes a limit of retention.",
    body={"application/json": {"schema": shape({}, _POLICIES), "example": {"retention": {"age": "7d"}}}},
    body_needed=False,
    responses={"200": json_response("the changed topic", ref("Topic")), "404": {"description": "no such topic"}},
)
async def patch_topic(context: Context, request: Request) -> Response:
    Params(request, [])
    body = await json_object(request, context, ("roll", "retention"))
    defaults: dict[str, Any] = {"roll": Roll(), "retention": Retention()}
    policies = {name: defaults[name] if body[name] is None else _mapping(body, name) for name in body}

    def change() -> dict[str, Any]:
        topic = context.catalog.topic(request.path_params["topic"])
        topic.set_policy(**policies)
        return _facts(topic)

    return JSONResponse(await context.appends.run(change))


@operation(
    "admin",
    "Rename a topic",
    tag="topics",
    parameters=(_TOPIC,),
    body={"application/json": {"schema": _NEW_NAME, "example": {"name": "clicks"}}},
    description="All its events stay. The caller's token must cover both names.",
    responses={
        "200": json_response("the changed topic", ref("Topic")),
        "404": {"description": "no such topic"},
        "409": {"description": "another topic has that name"},
    },
)
async def rename_topic(context: Context, request: Request) -> Response:
    Params(request, [])
    new_name = (await json_object(request, context, ("name",))).get("name")
    if not isinstance(new_name, str):
        raise wrong("name must be a text: the topic's new name")
    request.state.access.require("admin", new_name)
    name = request.path_params["topic"]
    return JSONResponse(await context.appends.run(lambda: _facts(context.catalog.rename_topic(name, new_name))))


@operation(
    "admin",
    "Delete a topic with all its events",
    tag="topics",
    parameters=(_TOPIC,),
    description="It is gone when the server responds, and cannot be restored. Open responses are completed.",
    responses={"204": {"description": "deleted"}, "404": {"description": "no such topic"}},
)
async def delete_topic(context: Context, request: Request) -> Response:
    Params(request, [])
    await context.appends.run(lambda: context.catalog.delete_topic(request.path_params["topic"]))
    return Response(status_code=204)


@operation(
    "read",
    "Describe a topic",
    tag="topics",
    parameters=(_TOPIC,),
    responses={
        "200": json_response("definition and statistics; times are µs since 1970", ref("TopicFigures")),
        "404": {"description": "no such topic"},
    },
)
async def get_topic(context: Context, request: Request) -> Response:
    Params(request, [])

    def look() -> dict[str, Any]:
        topic = context.catalog.topic(request.path_params["topic"])
        return _facts(topic) | topic.stats()

    return JSONResponse(await context.reads.run(look))


@operation(
    "admin", "Apply retention now", tag="upkeep", parameters=(_TOPIC, _DRY_RUN),
    body={"application/json": {"schema": shape({}, {"retention": _POLICIES["retention"]}),
                               "example": {"retention": {"age": "7d"}}}},
    body_needed=False, responses=_report_of("RetentionReport"),
    description="This also happens automatically. With `dry_run`, `retention` sets another policy to try.",
)  # fmt: skip
async def retain_topic(context: Context, request: Request) -> Response:
    dry_run = Params(request, ("dry_run",)).flag("dry_run")
    body = await json_object(request, context, ("retention",))
    instead = Retention.of(_mapping(body, "retention")) if "retention" in body else None
    return await _upkeep(context, request, lambda topic: _report(topic.retain(dry_run=dry_run, retention=instead)))


@operation(
    "admin",
    "Merge segments and remove erased events from the disk now",
    tag="upkeep",
    parameters=(_TOPIC,),
    description="This also happens automatically.",
    responses=_report_of("CompactionReport"),
)
async def compact_topic(context: Context, request: Request) -> Response:
    Params(request, [])
    return await _upkeep(context, request, lambda topic: _report(topic.compact()))


@operation(
    "admin",
    "Erase every event of some spaces",
    tag="upkeep",
    parameters=(_TOPIC,),
    description="They are hidden when the server responds, and removed from the disk soon, or immediately by "
    "`compact`.",
    body={"application/json": {"schema": _SPACES, "example": {"spaces": ["customer-1"]}}},
    responses=_report_of("Erased"),
)
async def erase_topic(context: Context, request: Request) -> Response:
    Params(request, [])
    body = await json_object(request, context, ("spaces",))
    return await _upkeep(context, request, lambda topic: _erase(topic, body))


async def _upkeep(context: Context, request: Request, work: Callable[[Topic], Any]) -> Response:
    """Apply `work` to a topic and return its report."""
    name = request.path_params["topic"]
    return JSONResponse(await context.appends.run(lambda: work(context.catalog.topic(name))))


@operation(
    "read",
    "Statistics of the catalog: bytes on disk and in memory, topics",
    tag="topics",
    responses={"200": json_response("statistics; times are µs since 1970, sizes bytes", ref("Stats"))},
)
async def stats(context: Context, request: Request) -> Response:
    Params(request, [])
    facts = await context.reads.run(context.catalog.stats)
    facts.pop("path", None)  # a path of the server, not for clients
    return JSONResponse(facts)


def _facts(topic: Topic) -> dict[str, Any]:
    return {
        "topic": topic.name,
        "schema": describe_columns(topic.scan().schema),
        "indexes": list(topic.indexes),
        "keys": topic.keys,
        "roll": topic.roll.to_json(),
        "retention": topic.retention.to_json(),
    }


def _report(report: Any) -> Any:
    """Return a report as JSON values; keys that are not text appear in Python's notation."""
    return json.loads(json.dumps(asdict(report), default=repr))


def _erase(topic: Topic, body: Mapping[str, Any]) -> dict[str, Any]:
    spaces = _texts(body.get("spaces"), "spaces")
    erased = [topic.erase(space.encode() if topic.keys == "binary" else space) for space in spaces]
    return {"erased": [{"space": name, "events": done.events} for name, done in zip(spaces, erased, strict=True)]}


def _mapping(body: Mapping[str, Any], name: str) -> Any:
    found = body.get(name)
    if isinstance(found, dict):  # 5.0 is a whole number in JSON
        whole = {key for key, value in found.items() if type(value) is float and value.is_integer()}
        found = {key: int(value) if key in whole else value for key, value in found.items()}
    plain = isinstance(found, dict) and all(value is None or type(value) in (int, str) for value in found.values())
    if found is not None and not plain:
        raise InvalidRequestError(f"{name} must be an object of numbers and texts")
    return found


def _texts(given: Any, name: str) -> list[str]:
    if not isinstance(given, list) or not all(isinstance(value, str) for value in given):
        raise wrong(f"{name} must be a list of texts")
    return given
