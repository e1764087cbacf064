"""Loki's push requests, protobuf or JSON, as records of streams. Pure.

Labels become the tags of a stream, an entry's line the message, and its structured metadata fields. Entries may be in
any order. In protobuf, lines need not be UTF-8, because Loki's own clients do not check.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

import orjson
import pyarrow as pa
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass

from aggregator.lql import LqlError
from aggregator.lql.parse.tag_set import parse_tag_list
from aggregator.server.bodies.otlp.record import add_times, as_text
from aggregator.server.bodies.shared.problems import ProblemError
from aggregator.server.bodies.shared.records import TAGS_AND_RECORD, free_name
from aggregator.server.bodies.shared.refusals import Count, ignore
from aggregator.server.bodies.shared.text_repair import read_json, varint
from esformat import InvalidEventError

MAX_PARTS = 500_000
"""Limit of entries plus metadata pairs in a request: each takes several hundred bytes of memory, however few in the
body."""
_STREAMS, _ENTRIES, _METADATA = 1, 2, 3  # field numbers
_NUMBER, _DELIMITED = 0, 2
_FIXED = {1: 8, 5: 4}
_MOST_DIGITS = 20  # in a time
_PREFIX = "metadata."  # for metadata whose name the record already has


def read_push(body: bytes, count: Count = ignore) -> list[TAGS_AND_RECORD]:
    """Return the entries of a protobuf push request, each with its stream's tags. Raises InvalidEventError."""
    try:
        if len(body) > 2 * MAX_PARTS:  # a part takes at least two bytes
            _check_parts(body)
        return list(_entries(_Push.FromString(body), count))
    except InvalidEventError:
        raise
    except (DecodeError, ValueError):
        raise InvalidEventError("the body is not a push request") from None


def read_json_push(body: bytes, count: Count = ignore) -> list[TAGS_AND_RECORD]:
    """Return the entries of a JSON push request, each with its stream's tags. Raises InvalidEventError."""
    try:
        parsed, escaped = read_json(body)
    except orjson.JSONDecodeError as error:
        raise InvalidEventError(f"the body is not JSON: {error.msg}") from None
    if escaped:
        count("text_escaped")
    streams = parsed.get("streams") if isinstance(parsed, dict) else None
    if not isinstance(streams, list):
        raise InvalidEventError('the body is not a push request: expected an object with a list "streams"')
    items = (item for number, stream in enumerate(streams) for item in _values(stream, number))
    found = list(islice(items, MAX_PARTS + 1))
    if len(found) > MAX_PARTS:
        raise _too_many()
    return found


def unpack_snappy(stored: bytes, max_bytes: int) -> bytes:
    """Decompress snappy's block format, which begins with the decompressed size. Raises ProblemError: 400, 413."""
    size = 0
    for place, byte in enumerate(stored[:5]):
        size |= (byte & 0x7F) << 7 * place
        if byte < 0x80:
            break
    else:
        raise _no_snappy("the uncompressed size is missing")
    if size > max_bytes:
        raise ProblemError(
            413,
            "body-too-large",
            f"the body has more than {max_bytes:,} bytes when decompressed",
            "split it into smaller ones",
        )
    try:
        return pa.Codec("snappy").decompress(stored, decompressed_size=size, asbytes=True) if size else b""
    except (OSError, pa.ArrowException) as error:
        raise _no_snappy(" ".join(str(error).split())[:100]) from None


def _no_snappy(why: str) -> ProblemError:
    return ProblemError(400, "invalid-body", f"the body is not snappy: {why}", "nothing was stored")


# ------------------------------------------------------------ protobuf


def _entries(request: Any, count: Count) -> Iterator[TAGS_AND_RECORD]:
    for number, stream in enumerate(request.streams):
        tags = _labels(_text(stream.labels, count), number)
        for entry in stream.entries:
            time, made = entry.timestamp, {"msg": entry.line}
            add_times(made, time.seconds * 1_000_000_000 + time.nanos)
            if entry.metadata:
                metadata = {_text(pair.name, count): _text(pair.value, count) for pair in entry.metadata}
                for name, value in metadata.items():
                    made[free_name(name, _PREFIX, made)] = value
            yield tags, made


def _check_parts(body: bytes) -> None:
    """Refuse a request with too many parts before parsing all of it, which takes up to thirty times its size."""
    left = MAX_PARTS
    for stream in _fields(body, _STREAMS):
        for entry in _fields(stream, _ENTRIES):
            left -= 1 + sum(1 for _ in islice(_fields(entry, _METADATA), left))
            if left < 0:
                raise _too_many()


def _too_many() -> InvalidEventError:
    return InvalidEventError(
        f"the request has more than {MAX_PARTS:,} entries and metadata fields", hint="split it into smaller ones"
    )


def _fields(message: bytes, wanted: int) -> Iterator[bytes]:
    """Yield the length-delimited fields of a message that have this number. Raises ValueError."""
    at = 0
    while at < len(message):
        key, at = varint(message, at)
        wire = key & 7
        if wire in (_DELIMITED, _NUMBER):
            size, at = varint(message, at)
        elif wire in _FIXED:
            size = _FIXED[wire]
        else:
            raise ValueError(f"invalid wire type {wire}")
        if wire == _NUMBER:
            continue
        if at + size > len(message):
            raise ValueError("the message is cut short")
        if key == wanted << 3 | _DELIMITED:
            yield message[at : at + size]
        at += size


def _text(given: bytes, count: Count) -> str:
    try:
        return given.decode()
    except UnicodeDecodeError:
        count("text_escaped")
        return given.decode("utf-8", "backslashreplace")


def _labels(text: str, number: int) -> dict[str, str]:
    """Parse labels in Prometheus's notation: `{app="web", env="prod"}`."""
    try:
        tags, end = parse_tag_list(text, 0) if text.startswith("{") else ({}, 0)
    except LqlError as error:
        raise InvalidEventError(f"stream {number}: the labels cannot be read: {error.message}") from None
    if end < len(text) or not text:
        raise InvalidEventError(f"stream {number}: the labels must be {{name=value, …}}, not {text[:80]!r}")
    return tags


def _push() -> Any:
    """Build the protobuf class of a push request, with texts as bytes: protobuf would refuse invalid UTF-8."""
    text, whole, message = (getattr(FieldDescriptorProto, f"TYPE_{name}") for name in ("BYTES", "INT64", "MESSAGE"))
    one, many = FieldDescriptorProto.LABEL_OPTIONAL, FieldDescriptorProto.LABEL_REPEATED
    messages: dict[str, list[tuple[str, int, int, str | None]]] = {
        "Push": [("streams", message, many, ".loki.Stream")],
        "Stream": [("labels", text, one, None), ("entries", message, many, ".loki.Entry")],
        "Entry": [
            ("timestamp", message, one, ".loki.Time"),
            ("line", text, one, None),
            ("metadata", message, many, ".loki.Pair"),
        ],
        "Time": [("seconds", whole, one, None), ("nanos", whole, one, None)],
        "Pair": [("name", text, one, None), ("value", text, one, None)],
    }
    file = FileDescriptorProto(name="push.proto", package="loki", syntax="proto3")
    for name, fields in messages.items():
        made = file.message_type.add(name=name)
        for number, (field, kind, label, of) in enumerate(fields, 1):
            made.field.add(name=field, number=number, label=label, type=kind, type_name=of)
    pool = DescriptorPool()
    pool.Add(file)
    return GetMessageClass(pool.FindMessageTypeByName("loki.Push"))


_Push = _push()


# ------------------------------------------------------------ JSON


def _values(stream: Any, number: int) -> Iterator[TAGS_AND_RECORD]:
    labels = stream.get("stream", {}) if isinstance(stream, dict) else None
    values = stream.get("values") if isinstance(stream, dict) else None
    if not isinstance(labels, dict) or not isinstance(values, list):
        raise InvalidEventError(f'stream {number}: expected an object with "stream" and a list "values"')
    tags = {name: as_text(value) for name, value in labels.items()}
    for place, value in enumerate(values):
        where = f"stream {number}, value {place}"
        if not isinstance(value, list) or not 2 <= len(value) <= 3 or not isinstance(value[1], str):
            raise InvalidEventError(f'{where}: expected ["nanoseconds", "line"], optionally with metadata')
        made: dict[str, Any] = {"msg": value[1]}
        add_times(made, _nanoseconds(value[0], where))
        for name, item in _metadata(value, where).items():
            made[free_name(name, _PREFIX, made)] = item
        yield tags, made


def _nanoseconds(given: Any, where: str) -> int:
    digits = str(given) if isinstance(given, str | int) and not isinstance(given, bool) else ""
    unsigned = digits.removeprefix("-")
    if not (unsigned.isascii() and unsigned.isdecimal() and len(unsigned) <= _MOST_DIGITS):
        raise InvalidEventError(
            f"{where}: the time {str(given)[:40]!r} is not a whole number of nanoseconds since 1970"
        )
    return int(digits)


def _metadata(value: list[Any], where: str) -> Mapping[str, Any]:
    found = value[2] if len(value) == 3 else {}
    if not isinstance(found, dict):
        raise InvalidEventError(f"{where}: structured metadata must be an object")
    return found
