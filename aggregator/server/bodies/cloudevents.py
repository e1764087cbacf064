"""CloudEvents as events of a topic: JSON, a single event or a batch, or one event in headers and body. Pure.

The subject, or else the source, becomes the space, and the type the grouping. Every attribute, including extensions, is
also a column, so that truncating a key that is too long loses nothing. `data` is the payload: text as it is, bytes from
`data_base64`, anything else as JSON exactly as sent.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import unquote_to_bytes

import orjson
import pyarrow as pa

from aggregator.engine.ingest.batch import MAX_KEY_BYTES
from aggregator.server.bodies.shared.refusals import Count, ignore
from aggregator.server.bodies.shared.text_repair import json_text, objects_in, parse_json
from aggregator.server.bodies.shared.times import read_iso
from esformat import InvalidEventError
from esformat.parts import JsonValues

BATCH = "application/cloudevents-batch+json"
ONE = "application/cloudevents+json"
PREFIX = b"ce-"
"""Prefix of headers that are attributes, in binary mode."""
INDEXES = ("id", "type")
"""Indexes of a topic that is created for CloudEvents. `id` finds duplicates, because delivery is at least once."""
MAX_EVENTS = 100_000
_ESCAPED = re.compile(rb"\\(.)")
_NAME = re.compile(r"[a-z0-9]+")
_REQUIRED = ("id", "source", "specversion", "type")
_RENAMED = {"space": "space_", "grouping": "grouping_", "timestamp": "timestamp_", "partition": "partition_"}
_OWN = ("time", "data", "data_base64")


def read_cloud_events(body: bytes, media: str, now_us: int | None, count: Count = ignore) -> pa.Table:
    """Return the events of a body as a table for a topic.

    now_us: the time of events that have none; None: such events are refused. Raises InvalidEventError with the number
    of the invalid event.
    """
    try:
        found = parse_json(body)
    except orjson.JSONDecodeError as error:
        raise InvalidEventError(f"the body is not JSON: {error.msg}") from None
    if media == ONE:
        found = [found]
    if not isinstance(found, list):
        raise InvalidEventError("a batch must be a JSON array of events")
    if len(found) > MAX_EVENTS:
        raise InvalidEventError(f"the batch has more than {MAX_EVENTS:,} events", hint="split it into smaller ones")
    events = [_checked(event, number) for number, event in enumerate(found)]
    written = _written(body, media, events)
    data = [_data(event, written[number], number) for number, event in enumerate(events)]
    return _table(events, data, now_us, count)


def read_binary_event(
    headers: Iterable[tuple[bytes, bytes]], body: bytes, now_us: int | None, count: Count = ignore
) -> pa.Table:
    """Return the event of a request in binary mode: attributes are headers, the body is the payload as sent.

    headers: of the request, names in lower case. Raises InvalidEventError.
    """
    event: dict[str, str] = {}
    for name, value in headers:
        if name == b"content-type":
            event["datacontenttype"] = value.decode("latin-1")
        elif name.startswith(PREFIX):
            attribute = name.removeprefix(PREFIX).decode("latin-1")
            if attribute in event or attribute in ("data", "data_base64", "datacontenttype"):
                raise InvalidEventError(f"the header {name.decode('latin-1')[:40]!r} is not allowed, or occurs twice")
            event[attribute] = _header_text(value, attribute)
    return _table([_checked(event, 0)], [body], now_us, count)


def _header_text(value: bytes, name: str) -> str:
    """Return an attribute from a header, unquoted and percent-decoded once."""
    if len(value) >= 2 and value[:1] == value[-1:] == b'"':
        value = _ESCAPED.sub(rb"\1", value[1:-1])
    try:
        return unquote_to_bytes(value).decode()
    except UnicodeDecodeError:
        raise InvalidEventError(f"the header ce-{name[:40]} is not UTF-8", hint="percent-encode it") from None


def _table(events: Sequence[Mapping[str, Any]], data: Sequence[bytes], now_us: int | None, count: Count) -> pa.Table:
    names = dict.fromkeys(name for event in events for name in event if name not in _OWN)
    columns: dict[str, Any] = {
        "space": pa.array([_key(event.get("subject") or event["source"], count) for event in events], pa.string()),
        "grouping": pa.array([_key(event["type"], count) for event in events], pa.string()),
        "timestamp": pa.array([_time(event, number, now_us) for number, event in enumerate(events)], pa.int64()),
        "data": pa.array(data, pa.binary()),
    }
    for name in names:
        columns[_RENAMED.get(name, name)] = _column([event.get(name) for event in events])
    return pa.table(columns)


def _checked(event: Any, number: int) -> Mapping[str, Any]:
    if not isinstance(event, dict):
        raise InvalidEventError(f"event {number}: expected a JSON object")
    for name in _REQUIRED:
        value = event.get(name)
        if not isinstance(value, str) or not value:
            raise InvalidEventError(f"event {number}: {name} must be a non-empty text")
    if not event["specversion"].startswith("1."):
        raise InvalidEventError(f"event {number}: specversion {event['specversion'][:20]!r} is not supported; use 1.0")
    for name, value in event.items():
        if name in _OWN:
            continue
        if isinstance(value, float) and value.is_integer():  # 5.0 is a whole number in JSON
            value = event[name] = int(value)
        if not _NAME.fullmatch(name) or len(name) > 100:
            raise InvalidEventError(
                f"event {number}: attribute {name[:40]!r} may have only lower-case letters and digits"
            )
        if value is not None and not isinstance(value, str | bool | int):
            raise InvalidEventError(f"event {number}: attribute {name!r} is not a string, boolean or integer")
        if isinstance(value, int) and not -(2**31) <= value < 2**31:
            raise InvalidEventError(f"event {number}: attribute {name!r} is outside the range that CloudEvents allow")
    for name in ("subject", "datacontenttype"):
        if event.get(name) is not None and not isinstance(event[name], str):
            raise InvalidEventError(f"event {number}: {name} must be a text")
    return {name: value for name, value in event.items() if value is not None}  # in CloudEvents null means absent


def _key(text: str, count: Count) -> str:
    """Return a text as a space or grouping, truncated if it is too long. Counts a truncation."""
    if 4 * len(text) <= MAX_KEY_BYTES:
        return text
    key = text.encode()[:MAX_KEY_BYTES].decode("utf-8", "ignore")
    count("key_cut", key != text)
    return key


def _time(event: Mapping[str, Any], number: int, now_us: int | None) -> int:
    given = event.get("time", now_us)
    if given is None:
        raise InvalidEventError(
            f"event {number}: the time is missing", hint="with an Idempotency-Key each event needs a time"
        )
    if "time" in event and not isinstance(given, str):
        raise InvalidEventError(f"event {number}: time must be an RFC 3339 text")
    return read_iso(given, f"event {number}: time") if isinstance(given, str) else int(given)


def _written(body: bytes, media: str, events: Sequence[Mapping[str, Any]]) -> list[bytes | None]:
    """Return the `data` of each event as written in the body; None if it is text or nested too deeply."""
    if all(isinstance(event.get("data"), str | None) for event in events):
        return [None] * len(events)
    text = body.decode()
    try:
        documents = [text] if media == ONE else list(objects_in(text))
    except RecursionError:
        return [None] * len(events)
    values = JsonValues(pa.array(documents, pa.large_string()), ("data",)).texts().cast(pa.large_binary())
    pairs = zip(events, values.to_pylist(), strict=True)
    return [None if isinstance(event.get("data"), str) else value for event, value in pairs]


def _data(event: Mapping[str, Any], written: bytes | None, number: int) -> bytes:
    encoded = event.get("data_base64")
    if encoded is not None:
        try:
            if "data" in event or not isinstance(encoded, str):
                raise ValueError
            return base64.b64decode(encoded, validate=True)
        except (binascii.Error, ValueError):
            raise InvalidEventError(
                f"event {number}: data_base64 is not base64, or the event has data as well"
            ) from None
    given = event.get("data")
    if given is None:
        return b""
    kind = event.get("datacontenttype") or ""
    if isinstance(given, str) and kind and "json" not in kind:
        return given.encode()
    try:
        rewritten = json_text(given)
    except ValueError as error:
        raise InvalidEventError(f"event {number}: data: {error}") from None  # nested too deeply
    return rewritten if written is None else written


def _column(values: list[Any]) -> pa.Array:
    """Return a column of the type that all values share, or of strings if their types differ."""
    kinds = {type(value) for value in values if value is not None}
    if kinds <= {bool} or kinds <= {int}:
        return pa.array(values, pa.bool_() if bool in kinds else pa.int64() if kinds else pa.string())
    return pa.array(
        [value if value is None or isinstance(value, str) else json_text(value).decode() for value in values],
        pa.string(),
    )
