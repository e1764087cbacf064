"""OpenTelemetry's logs service over gRPC.

The permissions of a call are checked before its message is read, and the number of messages read at the same time is
limited so that they cannot fill the memory. Messages arrive compressed and are decompressed in a thread, within the
limit of all bodies: grpc's own decompression is off. Requests that may be retried are refused with UNAVAILABLE and a
RetryInfo.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

import grpc
import grpc.aio

from aggregator import InvalidRequestError, OverloadedError
from aggregator.model import STREAMS_TOPIC
from aggregator.server.bodies.otlp.status import not_stored, rpc_status
from aggregator.server.bodies.shared.media import PROTOBUF
from aggregator.server.bodies.shared.problems import Problem, ProblemError, problem_of
from aggregator.server.bodies.shared.records import Target
from aggregator.server.config.settings import Settings, Tls
from aggregator.server.context import Context
from aggregator.server.control.requests import FinishedRequest
from aggregator.server.http.body import Body
from aggregator.server.services.otlp_export import export
from esformat import ClosedError

EXPORT = "/opentelemetry.proto.collector.logs.v1.LogsService/Export"
OTHERS = {
    "/opentelemetry.proto.collector.trace.v1.TraceService/Export": "traces",
    "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export": "metrics",
}
"""Methods for signals that are not stored."""
_STREAMS = 100  # concurrent calls of one connection; more wait in the client
_RETRY_S = 1.0
_CODES = {
    400: grpc.StatusCode.INVALID_ARGUMENT,
    401: grpc.StatusCode.UNAUTHENTICATED,
    404: grpc.StatusCode.UNIMPLEMENTED,
    403: grpc.StatusCode.PERMISSION_DENIED,
    408: grpc.StatusCode.DEADLINE_EXCEEDED,
    409: grpc.StatusCode.FAILED_PRECONDITION,
    413: grpc.StatusCode.RESOURCE_EXHAUSTED,
    429: grpc.StatusCode.UNAVAILABLE,
    503: grpc.StatusCode.UNAVAILABLE,
}
"""gRPC statuses by HTTP status. RESOURCE_EXHAUSTED without a RetryInfo says that retrying is useless."""


async def listen(context: Context, bind: str) -> tuple[grpc.aio.Server, int]:
    """Start a server; return it and its port. Raises InvalidRequestError."""
    settings = context.settings
    server = grpc.aio.server(options=_options(settings))
    server.add_generic_rpc_handlers((_Methods(Calls(context)),))
    try:
        if settings.tls.certificate is None:
            port = server.add_insecure_port(bind)
        else:
            port = server.add_secure_port(bind, _credentials(settings.tls))
    except RuntimeError:
        raise InvalidRequestError(
            f"cannot listen on {bind}", hint="another process may use the port: change `otlp.grpc`"
        ) from None
    await server.start()
    return server, port


def _options(settings: Settings) -> list[tuple[str, int]]:
    """Return the options that apply HTTP's limits."""
    http = settings.http
    return [
        ("grpc.so_reuseport", 0),  # else two servers could share an address unnoticed
        ("grpc.max_receive_message_length", http.max_append_bytes),
        ("grpc.per_message_decompression", 0),
        ("grpc.max_metadata_size", http.max_header_bytes),
        ("grpc.absolute_max_metadata_size", http.max_header_bytes),
        ("grpc.max_concurrent_streams", _STREAMS),
        ("grpc.max_allowed_incoming_connections", http.max_connections),
        ("grpc.server_handshake_timeout_ms", round(http.stall_s * 1000)),
        ("grpc.max_connection_idle_ms", round(http.keep_alive_s * 1000)),
    ]


def _credentials(tls: Tls) -> grpc.ServerCredentials:
    assert tls.certificate is not None
    assert tls.key is not None
    authorities = None if tls.client_ca is None else tls.client_ca.read_bytes()
    pair = (tls.key.read_bytes(), tls.certificate.read_bytes())
    return grpc.ssl_server_credentials([pair], authorities, authorities is not None)


class _Methods(grpc.GenericRpcHandler):  # type: ignore[misc]  # grpc ships no types
    """Finds methods by name. They are declared as streaming, so that a call is seen before its message is read."""

    def __init__(self, calls: Calls) -> None:
        self._known = dict.fromkeys(OTHERS, grpc.stream_unary_rpc_method_handler(calls.refuse))
        self._known[EXPORT] = grpc.stream_unary_rpc_method_handler(calls.export)

    def service(self, details: grpc.HandlerCallDetails) -> Any:
        return self._known.get(details.method)


class Calls:
    """Handles calls. Belongs to the event loop's thread."""

    def __init__(self, context: Context) -> None:
        self._context = context
        settings = context.settings
        self._reading = asyncio.Semaphore(max(1, settings.work.body_bytes // settings.http.max_append_bytes))

    async def export(self, _: Any, call: grpc.aio.ServicerContext) -> bytes:
        """Store the records of a request; they are durable when this returns."""
        began, context = time.perf_counter(), self._context
        status, answer, who = 499, b"", ""  # if the client disconnects
        context.open_requests += 1
        try:
            metadata = dict(call.invocation_metadata() or ())
            access = context.authority.access(_text(metadata.get("authorization")))
            who = access.name
            topic = _text(metadata.get("topic")) or STREAMS_TOPIC
            access.require("write", topic)
            answer = await self._stored(call, Target(topic))
            status = 200
        except Exception as error:  # noqa: BLE001  # every error has an answer; the unexpected ones are logged with it
            problem = problem_of(error)
            status = problem.status
            await _abort(call, problem)
        finally:
            context.open_requests -= 1
            context.request_finished(
                FinishedRequest("POST", EXPORT, status, time.perf_counter() - began, len(answer), who)
            )
        return answer

    async def refuse(self, _: Any, call: grpc.aio.ServicerContext) -> None:
        """Refuse signals other than logs."""
        problem = not_stored("other signals")
        self._context.refused("otlp", "unsupported", why=problem.detail)
        await _abort(call, problem)

    async def _stored(self, call: grpc.aio.ServicerContext, target: Target) -> bytes:
        context = self._context
        if not context.ready:
            raise ClosedError("the server is starting or stopping")
        await context.waiting_room.enter(0)
        message = await self._read(call)
        context.body_bytes += len(message)
        try:
            if context.body_bytes > context.settings.work.body_bytes:
                raise _too_many()
            body = Body(message, _encoding(message), context.settings.http.max_append_bytes, context.body_room)
            return await context.appends.run(export, context, lambda: body.plain().to_pybytes(), PROTOBUF, target)
        finally:
            context.body_bytes -= len(message)

    async def _read(self, call: grpc.aio.ServicerContext) -> bytes:
        """Return the message of a call as it was sent. Raises ProblemError, OverloadedError."""
        settings = self._context.settings
        try:
            async with asyncio.timeout(settings.work.patience_s):
                await self._reading.acquire()
        except TimeoutError:
            raise _too_many() from None
        try:
            async with asyncio.timeout(settings.http.stall_s):
                message: bytes = await call.read()
        except TimeoutError:
            raise ProblemError(408, "body-stalled", "the message did not arrive in time") from None
        finally:
            self._reading.release()
        if message is grpc.aio.EOF:
            raise ProblemError(400, "invalid-body", "the call has no message")
        return message


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _encoding(message: bytes) -> str:
    """Detect how a message is compressed, because grpc does not report it.

    An uncompressed request begins with the tag of its only field.
    """
    if message.startswith(b"\x1f\x8b"):
        return "gzip"
    return "deflate" if message.startswith(b"\x78") else "identity"


def _too_many() -> OverloadedError:
    return OverloadedError("too many messages are in memory", hint="try again later", retry_after_s=_RETRY_S)


async def _abort(call: grpc.aio.ServicerContext, problem: Problem) -> None:
    """End the call with a problem."""
    code = _CODES.get(problem.status, grpc.StatusCode.INTERNAL)
    details = rpc_status(problem.detail, code.value[0], problem.retry_after_s)
    await call.abort(code, problem.detail, (("grpc-status-details-bin", details),))
