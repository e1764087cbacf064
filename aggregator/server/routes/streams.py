"""Appending records to streams: JSON lines, Arrow and plain lines of text; and CloudEvents to their own topic."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterable
from typing import Any

import pyarrow as pa
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from aggregator import Receipt, TopicExistsError
from aggregator.lql import TagSet
from aggregator.model import STREAMS_TOPIC
from aggregator.server.bodies.cloudevents import BATCH, INDEXES, ONE, PREFIX, read_binary_event, read_cloud_events
from aggregator.server.bodies.formats import read_lines, read_records
from aggregator.server.bodies.shared.media import ARROW_FILE, ARROW_STREAM, JSON, LINES, TEXT
from aggregator.server.bodies.shared.problems import ProblemError
from aggregator.server.bodies.shared.records import make_stream_topic
from aggregator.server.bodies.shared.refusals import Count
from aggregator.server.bodies.shared.schemas import BINARY, each, many, text
from aggregator.server.bodies.shared.times import TimeReader
from aggregator.server.context import Context
from aggregator.server.control.operation import bound, operation, parameter
from aggregator.server.http.body import read_body
from aggregator.server.http.params import Params, header, idempotency_key, names_in, wrong
from aggregator.server.routes.events import (
    JSON_ROWS,
    KEY,
    NAMES,
    PARTITION,
    RECEIPT,
    TIME_UNIT,
    input_media,
    receipt_answer,
)
from aggregator.streams.level import add_level

_TAGS = parameter(
    "tags",
    "Tags of the stream; may also be sent in a header `tags`",
    required=True,
    format="tags",
    example='{app=web,host="a b"}',
)
_TOPIC = parameter("topic", "Topic of the stream; created if missing", default=STREAMS_TOPIC, maxLength=1024)
_RECORD = '{"ts": "2026-03-01T08:00:00Z", "msg": "no disk", "level": "error"}\n'
_EVENT = {
    "specversion": "1.0",
    "id": "17",
    "source": "/shop",
    "type": "order.paid",
    "subject": "customer-1",
    "time": "2026-03-01T08:00:00Z",
    "data": {"total": 12},
}
_CLOUD_EVENT: dict[str, Any] = {
    "type": "object",
    "required": ["id", "source", "specversion", "type"],
    "properties": {
        **each("id source type", {"type": "string", "minLength": 1}),
        "specversion": {"const": "1.0"},
        **each("subject datacontenttype", {"type": ["string", "null"]}),
        "time": {"type": "string", "format": "date-time"},
        "data": {},
    },
    "propertyNames": {"pattern": "^[a-z0-9]{1,100}$"},
    "additionalProperties": {
        "anyOf": [
            {"type": ["string", "boolean", "null"]},
            {"type": "integer", "minimum": -(2**31), "maximum": 2**31 - 1},
        ]
    },
}
_EVENTS_TOPIC = "cloudevents"
_Parsed = Any  # a table, or a list of mappings, for `Catalog.write`


def routes(context: Context) -> list[Route]:
    """Return the routes `/v1/streams`, `/v1/lines` and `/v1/cloudevents`."""
    return [
        Route("/v1/streams", bound(append_records, context), methods=["POST"]),
        Route("/v1/lines", bound(append_lines, context), methods=["POST"]),
        Route("/v1/cloudevents", bound(append_cloud_events, context), methods=["POST"]),
    ]


async def _write(context: Context, request: Request, known: tuple[str, ...]) -> Response:
    params = Params(request, ["topic", "partition", "tags", "time_unit", "ts", "msg"])
    called, times = names_in(params), TimeReader(params.time_unit())
    topic = params.text("topic") or STREAMS_TOPIC
    request.state.access.require("write", topic)
    tags = params.text("tags", header(request, "tags"))
    if tags is None:
        raise wrong("the tags of the stream are missing", "send ?tags={app=web}, or a header tags")
    names = TagSet.parse(tags).as_dict()
    producer, sequence = idempotency_key(request)
    media = input_media(request, known)
    body = await read_body(request, context.settings.http)

    def parse() -> _Parsed:
        plain = body.plain()
        if media == TEXT:
            return read_lines(plain)
        records = read_records(plain, media, max_bytes=body.max_bytes, names=called, times=times)
        for record in records if isinstance(records, list) else ():
            add_level(record, words=True)
        return records

    def store() -> Receipt:
        records = context.understand(parse)
        if producer is not None and not _timed(records):
            raise ProblemError(
                400,
                "invalid-event",
                "with an Idempotency-Key each record needs a ts",
                "otherwise a retry would store another record",
            )
        make_stream_topic(context.catalog, topic, context.settings)
        partition = params.partition()
        return context.catalog.write(names, records, topic, partition=partition, producer=producer, sequence=sequence)

    return receipt_answer(await context.appends.run(store), times)


@operation(
    "write", "Append records to a stream", tag="streams", source="streams",
    parameters=(_TAGS, _TOPIC, PARTITION, TIME_UNIT, *NAMES, KEY), responses=RECEIPT, checks_topics=True,
    description="The tags identify the stream; its first record creates it. A record has `ts` (ISO 8601, or a number "
    "since 1970; default: now), `msg` and any fields.",
    body={LINES: text("record-lines", _RECORD),
          JSON: {"schema": JSON_ROWS, "example": [json.loads(_RECORD)]}, ARROW_STREAM: BINARY, ARROW_FILE: BINARY},
)  # fmt: skip
async def append_records(context: Context, request: Request) -> Response:
    return await _write(context, request, (LINES, JSON, ARROW_STREAM, ARROW_FILE))


@operation(
    "write", "Append lines of text to a stream", tag="streams", source="lines",
    parameters=(_TAGS, _TOPIC, PARTITION, TIME_UNIT, *NAMES), responses=RECEIPT, checks_topics=True,
    description="Each line becomes the message of a record with the current time; empty lines are skipped. JSON is "
    "accepted as in `/v1/streams`.",
    body={TEXT: text("lines", "no disk\nstill no disk\n"),
          LINES: text("record-lines", _RECORD), JSON: {"schema": JSON_ROWS}},
)  # fmt: skip
async def append_lines(context: Context, request: Request) -> Response:
    return await _write(context, request, (TEXT, LINES, JSON))


@operation(
    "write", "Append CloudEvents", tag="shippers", source="cloudevents", responses=RECEIPT, checks_topics=True,
    parameters=(parameter("topic", "Name of a topic; created if missing, with indexes on id and type",
                          default=_EVENTS_TOPIC, maxLength=1024), PARTITION, KEY),
    description="A batch, or one event in structured or binary mode; in binary mode attributes are headers such as "
    "`ce-id`, and the body is the payload, of any Content-Type. The subject, or else the source, becomes the space; "
    "the type the grouping; attributes become columns. `id` has an index, which finds duplicates. To store a retried "
    "request once, send an Idempotency-Key.",
    body={BATCH: {"schema": many(_CLOUD_EVENT), "example": [_EVENT]},
          ONE: {"schema": _CLOUD_EVENT, "example": _EVENT}, "*/*": BINARY},
)  # fmt: skip
async def append_cloud_events(context: Context, request: Request) -> Response:
    params = Params(request, ["topic", "partition"])
    name = params.text("topic") or _EVENTS_TOPIC
    request.state.access.require("write", name)
    producer, sequence = idempotency_key(request)
    headers = request.scope["headers"]
    binary = _in_binary_mode(headers)
    media = "" if binary else input_media(request, (BATCH, ONE))
    body = await read_body(request, context.settings.http, may_be_empty=binary)  # an event needs no payload

    def read(now: int | None, count: Count) -> pa.Table:
        plain = body.plain().to_pybytes()
        return read_binary_event(headers, plain, now, count) if binary else read_cloud_events(plain, media, now, count)

    def store() -> Receipt:
        now = None if producer is not None else time.time_ns() // 1000
        with context.counting("cloudevents") as count:
            events = context.understand(lambda: read(now, count))
            if name not in context.catalog.topics():
                with contextlib.suppress(TopicExistsError):
                    roll, retention = context.settings.roll, context.settings.retention
                    context.catalog.create_topic(name, indexes=INDEXES, roll=roll, retention=retention)
            partition = params.partition()
            return context.catalog.topic(name).append(events, partition, producer=producer, sequence=sequence)

    return receipt_answer(await context.appends.run(store))


def _in_binary_mode(headers: Iterable[tuple[bytes, bytes]]) -> bool:
    """Whether the attributes of a CloudEvent are headers, and the body is not in a CloudEvents format."""
    given = [value for name, value in headers if name == b"content-type"]
    formatted = any(value.strip().lower().startswith(b"application/cloudevents") for value in given)
    return not formatted and any(name.startswith(PREFIX) for name, _ in headers)


def _timed(records: _Parsed) -> bool:
    """Whether each record has its own time."""
    if isinstance(records, list):
        return all(record.get("ts") is not None for record in records)
    return "ts" in records.column_names and not records.column("ts").null_count
