"""Appending events to a topic, and its scans as streamed responses."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from aggregator import Receipt, Scan, Topic
from aggregator.server.bodies.formats import read_events
from aggregator.server.bodies.shared.media import (
    ARROW_STREAM,
    CSV,
    ESDB,
    INPUTS,
    JSON,
    LINES,
    OUTPUTS,
    PARQUET,
    media_of,
)
from aggregator.server.bodies.shared.problems import ProblemError
from aggregator.server.bodies.shared.schemas import BINARY, json_response, ref, text
from aggregator.server.bodies.shared.times import TIME_UNITS, TimeReader
from aggregator.server.context import Context
from aggregator.server.control.operation import bound, operation, parameter
from aggregator.server.http.body import read_body
from aggregator.server.http.params import Params, idempotency_key, names_in, wrong
from aggregator.server.http.responses import media_for, stream_response
from aggregator.server.services.segment_file import stream_segment

_KEYS_AND_PAYLOAD = ("space", "grouping", "timestamp", "data")
_LINE = '{"space": "customer-1", "timestamp": "2026-03-01T08:00:00Z", "data": "{\\"url\\": \\"/\\"}", "type": "page"}\n'
_CSV = "space,timestamp,data,type\ncustomer-1,2026-03-01T08:00:00Z,hello,page\n"

TOPIC = parameter("topic", "Name of a topic", where="path", example="activity", minLength=1, maxLength=1024)
_WHEN: Any = {"anyOf": [{"type": "string", "format": "date-time"}, {"type": "integer"}], "kind": None}
KEY = parameter(
    "Idempotency-Key",
    "producer:sequence. A retry with the same key and content is stored once; one with other content is refused with "
    "409. Each partition remembers the last 64 keys of a producer.",
    where="header",
    example="web-1:17",
    pattern="^[!-~]+:-?[0-9]{1,18}$",
    format="idempotency-key",
)
PARTITION = parameter("partition", "Name of a partition", default="0", maxLength=1024)
NAMES = (
    parameter("ts", "Name of the time in the body, such as @timestamp"),
    parameter("msg", "Name of the message or payload in the body, such as message"),
)
JSON_ROWS: Any = {"oneOf": [{"type": "object"}, {"type": "array", "items": {"type": "object"}, "minItems": 1}]}
TIME_UNIT = parameter(
    "time_unit",
    "Unit of numeric times, since 1970. Default: derived from their size and returned as `assumed_time_units`; "
    "integers in Arrow are µs",
    enum=list(TIME_UNITS),
)
RECEIPT: dict[str, Any] = {
    "200": {
        **json_response(
            "stored durably; record indexes, both ends included. `repeated`: the batch was stored before; "
            "`assumed_time_units`: the units assumed for numeric times",
            ref("Receipt"),
            {"topic": "activity", "partition": "0", "first": 0, "last": 999},
        ),
    },
    "400": {"description": "invalid events or parameters; nothing was stored"},
    "404": {"description": "no such topic"},
    "409": {"description": "the key was used with other content"},
    "413": {"description": "the body is too large"},
    "415": {"description": "unsupported Content-Type or Content-Encoding"},
    "429": {"description": "overloaded: nothing was stored, retry after Retry-After seconds"},
}
EVENTS: dict[str, Any] = {
    "200": {
        "description": "the events, streamed. If the connection breaks, the response is incomplete",
        "content": {
            LINES: {"example": _LINE},
            CSV: {"example": _CSV},
            ARROW_STREAM: BINARY,
            PARQUET: BINARY,
            ESDB: BINARY,
        },
    },
    "400": {"description": "an invalid parameter"},
    "404": {"description": "no such topic, partition or index"},
    "409": {"description": "a base64 key, but the topic has text keys"},
    "406": {"description": "no media type in Accept is available"},
}
_VALUES = {"text": pa.string(), "integer": pa.int64(), "boolean": pa.bool_()}
CHOICE = (
    parameter("space", "Only this space", example="customer-1"),
    parameter("grouping", "Only this grouping"),
    parameter(
        "start", "Only from this time on: ISO 8601, or a number since 1970", example="2026-03-01T00:00:00Z", **_WHEN
    ),
    parameter("end", "Only before this time", **_WHEN),
    parameter("time_unit", "Unit of numeric start and end; default: derived from their size", enum=list(TIME_UNITS)),
    parameter("partition", "Only this partition", minLength=1, maxLength=1024),
    parameter("space_base64", "A space of a topic with binary keys", format="binary-key"),
    parameter("grouping_base64", "A grouping of a topic with binary keys", format="binary-key"),
)
"""Parameters that select events of a topic."""
_QUESTION = (
    *CHOICE,
    parameter("reverse", "Newest first", kind="boolean", default=False),
    parameter("limit", "Largest number of events", kind="integer", minimum=0, maximum=2**63 - 1),
    parameter(
        "columns",
        "Column names separated by commas, quoted as in CSV; record_index and partition are available too",
        format="columns",
        minLength=1,
    ),
)


def routes(context: Context) -> list[Route]:
    """Return the routes of appends, scans, index scans, and records by index."""
    path = "/v1/topics/{topic}"
    return [
        Route(f"{path}/events", bound(append_events, context), methods=["POST"]),
        Route(f"{path}/events", bound(scan_events, context), methods=["GET"]),
        Route(f"{path}/index/{{column}}", bound(scan_index, context), methods=["GET"]),
        Route(f"{path}/partitions/{{partition}}/records", bound(read_partition, context), methods=["GET"]),
    ]


@operation(
    "write", "Append a batch of events", tag="events", source="events",
    parameters=(TOPIC, PARTITION, TIME_UNIT, *NAMES, KEY), responses=RECEIPT,
    description="Stores the whole batch durably before responding, or nothing. Columns: `space`, `timestamp` (ISO "
    "8601, or a number since 1970), optionally `grouping`, `data` and any others.",
    body={LINES: text("event-lines", _LINE), JSON: {"schema": JSON_ROWS, "example": [json.loads(_LINE)]},
          CSV: text("event-csv", _CSV), **dict.fromkeys(INPUTS[:2], BINARY)},
)  # fmt: skip
async def append_events(context: Context, request: Request) -> Response:
    params = Params(request, ["partition", "time_unit", "ts", "msg"])
    names, times = names_in(params), TimeReader(params.time_unit())
    producer, sequence = idempotency_key(request)
    media = input_media(request, INPUTS)
    body = await read_body(request, context.settings.http)

    def store() -> Receipt:
        topic = context.catalog.topic(request.path_params["topic"])
        events = context.understand(
            lambda: read_events(
                body.plain(),
                media,
                types=_types(topic, media),
                binary_keys=topic.keys == "binary",
                max_bytes=body.max_bytes,
                names=names,
                times=times,
            )
        )
        return topic.append(events, params.partition(), producer=producer, sequence=sequence)

    return receipt_answer(await context.appends.run(store), times)


@operation("read", "Events by time", tag="events", parameters=(TOPIC, *_QUESTION), responses=EVENTS)
async def scan_events(context: Context, request: Request) -> Response:
    return await _scan(context, request, {})


@operation(
    "read", "Events with a value of an index", tag="events", responses=EVENTS,
    parameters=(TOPIC, parameter("column", "An indexed column", where="path", example="type"),
                parameter("value", "The value", required=True, example="purchase"),
                parameter("type", "Type of the value; default: the type of the column",
                          enum=["text", "integer", "boolean"]), *_QUESTION),
)  # fmt: skip
async def scan_index(context: Context, request: Request) -> Response:
    return await _scan(context, request, {"index": request.path_params["column"]})


@operation(
    "read", "Records of a partition in the order of appending", tag="events", responses=EVENTS,
    parameters=(TOPIC, parameter("partition", "Name of a partition", where="path", example="0"),
                parameter("from", "First record index; with reverse the last", kind="integer", minimum=0,
                          maximum=2**63 - 1),
                *(known for known in _QUESTION if known["name"] in ("limit", "reverse", "columns"))),
)  # fmt: skip
async def read_partition(context: Context, request: Request) -> Response:
    params = Params(request, ["from", "limit", "reverse", "columns"])
    options: dict[str, Any] = {
        "limit": params.number("limit"),
        "reverse": params.flag("reverse"),
        "columns": params.names("columns"),
    }
    first = params.number("from")

    def make() -> Scan:
        topic = context.catalog.topic(request.path_params["topic"])
        return topic.read(request.path_params["partition"], first, **options)

    return await stream_response(context.reads, make, media_for(request))


def input_media(request: Request, known: tuple[str, ...]) -> str:
    """Return the media type of the request's body. Raises ProblemError (415)."""
    media = media_of(request.headers.get("content-type"))
    if media not in known:
        raise ProblemError(
            415,
            "unsupported-media-type",
            f"Content-Type {media[:80]!r} is not supported",
            f"send one of {', '.join(known)}",
        )
    return media


def receipt_answer(receipt: Receipt, times: TimeReader | None = None) -> Response:
    """Return the response to an append. times: how times were read."""
    facts: dict[str, Any] = {
        "topic": receipt.topic,
        "partition": receipt.partition,
        "first": receipt.first,
        "last": receipt.last,
    }
    if receipt.duplicate:
        facts["repeated"] = True
    if times is not None and times.assumed:
        facts["assumed_time_units"] = [unit for unit in TIME_UNITS if unit in times.assumed]
    return JSONResponse(facts)


def _types(topic: Topic, media: str) -> Mapping[str, pa.DataType]:
    """Return the types of the topic's columns, for formats whose values have no types."""
    if media not in (LINES, CSV, JSON):
        return {}
    return {field.name: field.type for field in topic.scan().schema if field.name not in _KEYS_AND_PAYLOAD}


async def _scan(context: Context, request: Request, facts: Mapping[str, str]) -> Response:
    names = [known["name"] for known in _QUESTION]
    params = Params(request, [*names, "value", "type"] if "index" in facts else names)
    if "index" in facts and params.text("value") is None:
        raise wrong("the parameter value is missing", "send the value to find, such as ?value=purchase")
    options: dict[str, Any] = {
        "reverse": params.flag("reverse"),
        "limit": params.number("limit"),
        "columns": params.names("columns"),
    }
    make = chosen(context, request, params, facts.get("index"), options)
    media = media_for(request, (*OUTPUTS, ESDB))
    if media != ESDB:
        return await stream_response(context.reads, make, media)
    return await stream_segment(context.reads, make, lambda: context.catalog.topic(request.path_params["topic"]))


def chosen(
    context: Context, request: Request, params: Params, index: str | None, options: Mapping[str, Any]
) -> Callable[[], Scan]:
    """Return a function that creates the scan selected by the parameters of `CHOICE`.

    index: also select by `value` and `type` of this column. options: further options of the scan.
    """
    options = {
        "start": params.time("start"),
        "end": params.time("end"),
        "partition": params.text("partition"),
        **options,
    }

    def make() -> Scan:
        topic = context.catalog.topic(request.path_params["topic"])
        keys = {name: params.key(name, binary=topic.keys == "binary") for name in ("space", "grouping")}
        if index is None:
            return topic.scan(**keys, **options)
        value = _value(topic, index, params.text("value") or "", params.text("type"))
        return topic.scan_index(index, value, **keys, **options)

    return make


def _value(topic: Topic, name: str, text: str, given: str | None) -> Any:
    """Return an index value from its text, with the requested type, or else the column's."""
    schema = topic.scan().schema
    kind = schema.field(name).type if name in schema.names and name in topic.indexes else pa.string()
    if given is not None:
        if given not in _VALUES:
            raise wrong(f"type is {given[:40]!r}", f"expected one of {', '.join(_VALUES)}")
        kind = _VALUES[given]
    try:
        if pa.types.is_integer(kind) or pa.types.is_decimal(kind):  # indexes with integers of several types
            return int(text)
        if pa.types.is_boolean(kind):
            return {"true": True, "false": False}[text.lower()]
    except (ValueError, KeyError):
        description = f"of type {kind}" if given is None else f"asked for {given}"
        raise wrong(f"value is {text[:40]!r}, but the index {name!r} is {description}") from None
    return text
