"""Records into streams: JSON lines and Arrow, plain lines of text, and CloudEvents into a topic of their own."""

from __future__ import annotations

import contextlib
import time
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from aggregator import Receipt, TopicExistsError
from aggregator.catalog import STREAMS_TOPIC
from aggregator.lql import TagSet
from aggregator.server.asked import Asked, header, idempotency_key, wrong
from aggregator.server.body import read_body
from aggregator.server.cloudevents import BATCH, INDEXES, ONE, read_cloud_events
from aggregator.server.context import Context
from aggregator.server.formats import read_lines, read_records
from aggregator.server.media import ARROW_FILE, ARROW_STREAM, LINES, TEXT
from aggregator.server.operation import operation, parameter
from aggregator.server.problems import ProblemError
from aggregator.server.routes.events import KEY, PARTITION, RECEIPT, input_media, receipt_answer
from aggregator.server.schemas import BINARY, each, many, text
from aggregator.server.shipped import make_stream_topic

_TAGS = parameter(
    "tags",
    "Tags of the stream; a header `tags` will do as well",
    required=True,
    format="tags",
    example='{app=web,host="a b"}',
)
_TOPIC = parameter("topic", "Topic of the stream; it is made where it is absent", default=STREAMS_TOPIC, maxLength=1024)
_RECORD = '{"ts": "2026-03-01T08:00:00Z", "msg": "no disk", "level": "error"}\n'
_EVENT = {
    "specversion": "1.0", "id": "17", "source": "/shop", "type": "order.paid", "subject": "customer-1",
    "time": "2026-03-01T08:00:00Z", "data": {"total": 12},
}  # fmt: skip
_CLOUD_EVENT: dict[str, Any] = {
    "type": "object", "required": ["id", "source", "specversion", "type"],
    "properties": {
        **each("id source type", {"type": "string", "minLength": 1}), "specversion": {"const": "1.0"},
        **each("subject datacontenttype", {"type": ["string", "null"]}),
        "time": {"type": "string", "format": "date-time"}, "data": {},
    },
    "propertyNames": {"pattern": "^[a-z0-9]{1,100}$"},
    "additionalProperties": {"anyOf": [
        {"type": ["string", "boolean", "null"]},
        {"type": "integer", "minimum": -(2**31), "maximum": 2**31 - 1},
    ]},
}  # fmt: skip
_EVENTS_TOPIC = "cloudevents"
_Parsed = Any  # a table, or a list of mappings: as `Catalog.write` takes records


def routes(context: Context) -> list[Route]:
    """`/v1/streams`, `/v1/lines`, `/v1/cloudevents`."""
    catalog = context.catalog

    async def write(request: Request, known: tuple[str, ...]) -> Response:
        asked = Asked(request, ["topic", "partition", "tags"])
        topic = asked.text("topic") or STREAMS_TOPIC
        request.state.access.require("write", topic)
        tags = asked.text("tags", header(request, "tags"))
        if tags is None:
            raise wrong("the tags of the stream are missing", "give ?tags={app=web}, or a header tags")
        names = TagSet.parse(tags).as_dict()
        producer, sequence = idempotency_key(request)
        media = input_media(request, known)
        body = await read_body(request, context.settings.http)

        def parse() -> _Parsed:
            plain = body.plain()
            return read_lines(plain) if media == TEXT else read_records(plain, media, max_bytes=body.max_bytes)

        def store() -> Receipt:
            records = context.understand(parse)
            if producer is not None and not _timed(records):
                raise ProblemError(400, "invalid-event", "with an Idempotency-Key each record needs a ts",
                                   "else its repetition would be another record")  # fmt: skip
            make_stream_topic(catalog, topic, context.settings)
            partition = asked.text("partition") or "0"
            return catalog.write(names, records, topic, partition=partition, producer=producer, sequence=sequence)

        return receipt_answer(await context.appends.run(store))

    @operation(
        "write", "Append records to a stream", tag="streams", source="streams",
        parameters=(_TAGS, _TOPIC, PARTITION, KEY), answers=RECEIPT, checks_topics=True,
        description="The tags name the stream; its first record makes it. A record has `ts` (ISO 8601 or whole µs; now "
        "where it is missing), `msg` and any fields.",
        body={LINES: text("record-lines", _RECORD), ARROW_STREAM: BINARY, ARROW_FILE: BINARY},
    )  # fmt: skip
    async def append_records(request: Request) -> Response:
        return await write(request, (LINES, ARROW_STREAM, ARROW_FILE))

    @operation(
        "write", "Append lines of text to a stream", tag="streams", source="lines",
        parameters=(_TAGS, _TOPIC, PARTITION), answers=RECEIPT, checks_topics=True,
        description="Each line is the message of a record of now; empty lines are none. JSON lines are taken as by "
        "`/v1/streams`.",
        body={TEXT: text("lines", "no disk\nstill no disk\n"),
              LINES: text("record-lines", _RECORD)},
    )  # fmt: skip
    async def append_lines(request: Request) -> Response:
        return await write(request, (TEXT, LINES))

    @operation(
        "write", "Append CloudEvents", tag="shippers", source="cloudevents", answers=RECEIPT, checks_topics=True,
        parameters=(parameter("topic", "It is made where it is absent, with indexes on id and type",
                              default=_EVENTS_TOPIC, maxLength=1024), PARTITION, KEY),
        description="A batch, or one event in structured mode. The subject, or else the source, is the space; the type "
        "is the grouping; attributes are columns. `id` has an index: it tells what was delivered twice. To store a "
        "repeated request once, send an Idempotency-Key.",
        body={BATCH: {"schema": many(_CLOUD_EVENT), "example": [_EVENT]},
              ONE: {"schema": _CLOUD_EVENT, "example": _EVENT}},
    )  # fmt: skip
    async def append_cloud_events(request: Request) -> Response:
        asked = Asked(request, ["topic", "partition"])
        name = asked.text("topic") or _EVENTS_TOPIC
        request.state.access.require("write", name)
        producer, sequence = idempotency_key(request)
        media = input_media(request, (BATCH, ONE))
        body = await read_body(request, context.settings.http)

        def store() -> Receipt:
            now = None if producer is not None else time.time_ns() // 1000
            with context.telling("cloudevents") as tell:
                events = context.understand(lambda: read_cloud_events(body.plain().to_pybytes(), media, now, tell))
                if name not in catalog.topics():
                    with contextlib.suppress(TopicExistsError):
                        roll, retention = context.settings.roll, context.settings.retention
                        catalog.create_topic(name, indexes=INDEXES, roll=roll, retention=retention)
                partition = asked.text("partition") or "0"
                return catalog.topic(name).append(events, partition, producer=producer, sequence=sequence)

        return receipt_answer(await context.appends.run(store))

    return [
        Route("/v1/streams", append_records, methods=["POST"]),
        Route("/v1/lines", append_lines, methods=["POST"]),
        Route("/v1/cloudevents", append_cloud_events, methods=["POST"]),
    ]


def _timed(records: _Parsed) -> bool:
    """Whether each record has a time of its own."""
    if isinstance(records, list):
        return all(record.get("ts") is not None for record in records)
    return "ts" in records.column_names and not records.column("ts").null_count
