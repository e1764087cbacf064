"""The number of records and messages in a protobuf export request, counted before memory is allocated for them. Pure.

An empty record takes two bytes of the body and 140 bytes of memory; any other empty message takes up to 70 bytes of
memory.
"""

from __future__ import annotations

from collections.abc import Iterator

from google.protobuf.descriptor import Descriptor
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord

from aggregator.server.bodies.shared.text_repair import varint
from esformat import InvalidEventError

MAX_RECORDS = 500_000
"""Limit of records in a request: each takes about 600 bytes of memory, however few it takes in the body."""
MAX_MESSAGES = 3_000_000
"""Limit of messages in a request, including attributes and values. Unless nearly empty, each takes at least nine bytes
of the body."""
_DEEPEST = 100  # limit of protobuf's own parser
_VARINT, _DELIMITED = 0, 2
_FIXED_BYTES = {1: 8, 5: 4}  # by wire type
_REQUEST, _RECORD = ExportLogsServiceRequest.DESCRIPTOR, LogRecord.DESCRIPTOR


def check_records(count: int) -> None:
    """Raise InvalidEventError if a request has too many records."""
    if count > MAX_RECORDS:
        raise InvalidEventError(f"the request has more than {MAX_RECORDS:,} records", hint="split it into smaller ones")


def check_size(body: bytes) -> None:
    """Raise InvalidEventError if a request has too many records, or too many messages in total."""
    most = len(body) - len(body.translate(None, _FIRST_BYTES))
    if most <= min(MAX_RECORDS, MAX_MESSAGES):
        return
    records = 0
    for messages, kind in enumerate(_messages(body), 1):
        records += kind is _RECORD
        check_records(records)
        if messages > MAX_MESSAGES:
            raise InvalidEventError(
                f"the request has more than {MAX_MESSAGES:,} attributes and values", hint="split it into smaller ones"
            )


def _messages(body: bytes) -> Iterator[Descriptor]:
    """Yield the type of each message in a request. Stops at invalid bytes: the parser will report them."""
    fields, end = _WITHIN[_REQUEST], len(body)
    outer: list[tuple[dict[int, Descriptor], int]] = []
    at = 0
    try:
        while at < len(body) and len(outer) < _DEEPEST:
            while at >= end:
                fields, end = outer.pop()
            key, at = (body[at], at + 1) if body[at] < 0x80 else varint(body, at)
            wire = key & 7
            if wire not in (_VARINT, _DELIMITED):
                at += _FIXED_BYTES.get(wire, 0)
                continue
            size, at = (body[at], at + 1) if body[at] < 0x80 else varint(body, at)
            kind = fields.get(key >> 3)
            if wire == _DELIMITED and kind is None:
                at += size
            elif wire == _DELIMITED and kind is not None:
                yield kind
                outer.append((fields, end))
                fields, end = _WITHIN[kind], at + size
    except (ValueError, IndexError):
        return


def _kinds_within(kind: Descriptor, known: dict[Descriptor, dict[int, Descriptor]]) -> None:
    """Record which fields of a message type are messages, recursively."""
    known[kind] = {field.number: field.message_type for field in kind.fields if field.message_type is not None}
    for within in known[kind].values():
        if within not in known:
            _kinds_within(within, known)


_WITHIN: dict[Descriptor, dict[int, Descriptor]] = {}
_kinds_within(_REQUEST, _WITHIN)
_KEYS = {number << 3 | _DELIMITED for fields in _WITHIN.values() for number in fields}
_FIRST_BYTES = bytes(byte for key in _KEYS for byte in (key, key | 0x80))
"""Every message begins with one of these bytes. Each key has two: the second is for keys encoded with extra bytes."""
