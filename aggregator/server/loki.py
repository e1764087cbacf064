"""Loki's push requests, protobuf or JSON, as records of streams. Pure.

Labels are the tags of a stream; of an entry, the line is the message, structured metadata are fields. Entries may come
in any order. Lines need not be UTF-8 in protobuf, as Loki's own clients do not look at them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import orjson
import pyarrow as pa
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass

from aggregator.lql import LqlError
from aggregator.lql.tag_set import parse_tag_list
from aggregator.server.odd_text import read_json
from aggregator.server.otlp_record import add_times, as_text
from aggregator.server.problems import ProblemError
from aggregator.server.refusals import Tell, untold
from aggregator.server.shipped import TAGS_AND_RECORD, free_name
from esformat import InvalidEventError

_MOST_DIGITS = 20  # of a time
_PREFIX = "metadata."  # of metadata whose name the record has itself


def read_push(body: bytes, tell: Tell = untold) -> list[TAGS_AND_RECORD]:
    """The entries of a push request in protobuf, each with the tags of its stream. Raises InvalidEventError."""
    try:
        request = _PushRequest.FromString(body)
    except DecodeError:
        raise InvalidEventError("the body is no push request") from None
    return list(_entries(request, tell))


def read_json_push(body: bytes, tell: Tell = untold) -> list[TAGS_AND_RECORD]:
    """The same in JSON."""
    try:
        found, escaped = read_json(body)
    except orjson.JSONDecodeError as error:
        raise InvalidEventError(f"the body is no JSON: {error.msg}") from None
    if escaped:
        tell("text_escaped")
    streams = found.get("streams") if isinstance(found, dict) else None
    if not isinstance(streams, list):
        raise InvalidEventError('the body is no push request: an object with a list of "streams" is expected')
    return [item for number, stream in enumerate(streams) for item in _values(stream, number)]


def unpack_snappy(stored: bytes, max_bytes: int) -> bytes:
    """The bytes behind snappy's block format, which begins with their number. Raises ProblemError: 400, 413."""
    size = 0
    for place, byte in enumerate(stored[:5]):
        size |= (byte & 0x7F) << 7 * place
        if byte < 0x80:
            break
    else:
        raise _no_snappy("it does not say its size")
    if size > max_bytes:
        raise ProblemError(413, "body-too-large", f"the body has more than {max_bytes:,} bytes, decompressed",
                           "send it in smaller ones")  # fmt: skip
    try:
        return pa.Codec("snappy").decompress(stored, decompressed_size=size, asbytes=True) if size else b""
    except (OSError, pa.ArrowException) as error:
        raise _no_snappy(" ".join(str(error).split())[:100]) from None


def _no_snappy(why: str) -> ProblemError:
    return ProblemError(400, "invalid-body", f"the body is not snappy: {why}", "nothing was stored")


# ------------------------------------------------------------ protobuf


def _entries(request: Any, tell: Tell) -> Iterator[TAGS_AND_RECORD]:
    for number, stream in enumerate(request.streams):
        tags = _labels(_text(stream.labels, tell), number)
        for entry in stream.entries:
            time, made = entry.timestamp, {"msg": entry.line}
            add_times(made, time.seconds * 1_000_000_000 + time.nanos)
            for pair in entry.metadata:
                made[free_name(_text(pair.name, tell), _PREFIX, made)] = _text(pair.value, tell)
            yield tags, made


def _text(given: bytes, tell: Tell) -> str:
    try:
        return given.decode()
    except UnicodeDecodeError:
        tell("text_escaped")
        return given.decode("utf-8", "backslashreplace")


def _labels(text: str, number: int) -> dict[str, str]:
    """Labels as Prometheus writes them: `{app="web", env="prod"}`."""
    try:
        tags, end = parse_tag_list(text, 0) if text.startswith("{") else ({}, 0)
    except LqlError as error:
        raise InvalidEventError(f"stream {number}: the labels cannot be read: {error.message}") from None
    if end < len(text) or not text:
        raise InvalidEventError(f"stream {number}: the labels must be {{name=value, …}}, not {text[:80]!r}")
    return tags


def _push_request() -> Any:
    """The class of Loki's PushRequest. Texts are bytes here: protobuf would refuse those that are not UTF-8."""
    many, one = FieldDescriptorProto.LABEL_REPEATED, FieldDescriptorProto.LABEL_OPTIONAL
    text, whole = FieldDescriptorProto.TYPE_BYTES, FieldDescriptorProto.TYPE_INT64
    messages = {
        "Push": [("streams", 1, many, "Stream")],
        "Stream": [("labels", 1, one, text), ("entries", 2, many, "Entry")],
        "Entry": [("timestamp", 1, one, "Time"), ("line", 2, one, text), ("metadata", 3, many, "Pair")],
        "Time": [("seconds", 1, one, whole), ("nanos", 2, one, whole)],
        "Pair": [("name", 1, one, text), ("value", 2, one, text)],
    }
    file = FileDescriptorProto(name="push.proto", package="loki", syntax="proto3")
    for name, fields in messages.items():
        made = DescriptorProto(name=name)
        for field, number, label, kind in fields:
            added = made.field.add(name=field, number=number, label=label)
            if isinstance(kind, str):
                added.type, added.type_name = FieldDescriptorProto.TYPE_MESSAGE, f".loki.{kind}"
            else:
                added.type = kind
        file.message_type.append(made)
    pool = DescriptorPool()
    pool.Add(file)
    return GetMessageClass(pool.FindMessageTypeByName("loki.Push"))


_PushRequest = _push_request()


# ------------------------------------------------------------ JSON


def _values(stream: Any, number: int) -> Iterator[TAGS_AND_RECORD]:
    labels = stream.get("stream", {}) if isinstance(stream, dict) else None
    values = stream.get("values", []) if isinstance(stream, dict) else None
    if not isinstance(labels, dict) or not isinstance(values, list):
        raise InvalidEventError(f'stream {number}: an object with "stream" and a list of "values" is expected')
    tags = {name: as_text(value) for name, value in labels.items()}
    for place, value in enumerate(values):
        where = f"stream {number}, value {place}"
        if not isinstance(value, list) or not 2 <= len(value) <= 3 or not isinstance(value[1], str):
            raise InvalidEventError(f'{where}: ["nanoseconds", "line"] is expected, perhaps with metadata')
        made: dict[str, Any] = {"msg": value[1]}
        add_times(made, _nanoseconds(value[0], where))
        for name, item in _metadata(value, where).items():
            made[free_name(name, _PREFIX, made)] = item
        yield tags, made


def _nanoseconds(given: Any, where: str) -> int:
    digits = str(given) if isinstance(given, str | int) and not isinstance(given, bool) else ""
    unsigned = digits.removeprefix("-")
    if not (unsigned.isascii() and unsigned.isdecimal() and len(unsigned) <= _MOST_DIGITS):
        raise InvalidEventError(f"{where}: the time {str(given)[:40]!r} is no whole number of nanoseconds since 1970")
    return int(digits)


def _metadata(value: list[Any], where: str) -> Mapping[str, Any]:
    found = value[2] if len(value) == 3 else {}
    if not isinstance(found, dict):
        raise InvalidEventError(f"{where}: structured metadata must be an object")
    return found
