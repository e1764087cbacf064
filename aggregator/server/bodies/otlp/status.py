"""OTLP's error responses: a google.rpc.Status. Pure; loads protobuf only when needed."""

from __future__ import annotations

import math

import orjson

from aggregator.server.bodies.shared.media import PROTOBUF
from aggregator.server.bodies.shared.problems import Problem


def not_stored(signal: str) -> Problem:
    """Return the refusal of traces and metrics. Its status keeps senders from retrying."""
    return Problem(404, "not-stored", f"{signal} are not supported: this server stores only logs")


def failure(message: str, media: str) -> bytes:
    """Return the error response: a google.rpc.Status with the message."""
    return rpc_status(message) if media == PROTOBUF else orjson.dumps({"message": message})


def rpc_status(message: str, code: int = 0, retry_after_s: float | None = None) -> bytes:
    """Encode a google.rpc.Status, with a google.rpc.RetryInfo in its details if `retry_after_s` is set.

    Encoded by hand, because no library here includes this message.
    """
    written = (_field(1, code) if code else b"") + _field(2, message.encode()[:2000])
    if retry_after_s is not None:
        from google.protobuf import any_pb2  # here: slow to import
        from google.protobuf.duration_pb2 import Duration

        delay = Duration()
        delay.FromMilliseconds(max(1, math.ceil(retry_after_s * 1000)))
        info = any_pb2.Any(
            type_url="type.googleapis.com/google.rpc.RetryInfo", value=_field(1, delay.SerializeToString())
        )
        written += _field(3, info.SerializeToString())
    return written


def _field(number: int, value: int | bytes) -> bytes:
    """Encode a protobuf field: a small number, or bytes."""
    if isinstance(value, int):
        return bytes([number << 3, value])
    length = bytearray()
    size = len(value)
    while size >= 0x80:
        length.append(size & 0x7F | 0x80)
        size >>= 7
    return bytes([number << 3 | 2, *length, size]) + value
