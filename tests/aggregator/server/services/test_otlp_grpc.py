"""OTLP over gRPC: what OpenTelemetry's exporter sends is stored; a refusal says whether to retry."""

from __future__ import annotations

import asyncio
import gzip
import logging
import sys
import threading
from contextlib import ExitStack, contextmanager

import httpx
import pytest
from certificates import CertificateAuthority
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceResponse
from opentelemetry.sdk._logs import LoggerProvider, LoggingHandler
from opentelemetry.sdk._logs.export import SimpleLogRecordProcessor
from opentelemetry.sdk.resources import Resource
from ports import free_port
from served import served

import aggregator
from aggregator import InvalidRequestError
from aggregator.server import Settings
from aggregator.server.config.settings import Http, Otlp, Tls, Work
from aggregator.server.context import Context
from aggregator.server.control.tokens import create
from aggregator.server.services import otlp_service
from tests.aggregator.server.bodies.test_otlp import process, request
from tests.aggregator.server.http.test_limits import wait_for_requests

grpc = pytest.importorskip("grpc")
exporters = pytest.importorskip("opentelemetry.exporter.otlp.proto.grpc._log_exporter")
details_pb2 = pytest.importorskip("google.rpc.error_details_pb2")
status_pb2 = pytest.importorskip("google.rpc.status_pb2")

EXPORT = "/opentelemetry.proto.collector.logs.v1.LogsService/Export"
OTHERS = ("/opentelemetry.proto.collector.trace.v1.TraceService/Export", EXPORT.replace("Export", "Import"))
ONE = request({"body": "one"}).SerializeToString()
Code = grpc.StatusCode


@contextmanager
def listening(path, **settings):
    """A server with OTLP over gRPC. Yields it and the address."""
    bind = f"127.0.0.1:{free_port()}"
    with served(path, Settings(otlp=Otlp(grpc=bind), **settings)) as server:
        yield server, bind


@pytest.fixture
def running(tmp_path):
    with listening(tmp_path / "data") as (server, address):
        yield server, address


def call(address, body, method=EXPORT, compression=None, **metadata):
    """The answer to a call, or its error."""
    with grpc.insecure_channel(address) as channel:
        sent = channel.unary_unary(method)
        try:
            return sent(body, timeout=120, metadata=list(metadata.items()), compression=compression)
        except grpc.RpcError as error:
            return error


def messages(server):
    if "logs" not in server.catalog.topics():
        return []
    return [event.data.decode() for event in server.catalog.topic("logs").scan()]


COMPRESSIONS = list(grpc.Compression)


@pytest.mark.filterwarnings("ignore:.*LoggingHandler.*:DeprecationWarning")
@pytest.mark.parametrize("compression", COMPRESSIONS, ids=lambda each: each.name)
@pytest.mark.parametrize("secure", [False, True], ids=["plain", "tls"])
def test_the_exporter_of_opentelemetry(tmp_path, secure, compression):
    """A program that logs through OpenTelemetry's SDK is stored, with a token, over TLS or not, compressed or not."""
    authority = CertificateAuthority(tmp_path)
    token = create(tmp_path / "tokens.json", "otel", ["write"], ["logs"])
    tls = Tls(*authority.issue("server")) if secure else Tls()
    trust = grpc.ssl_channel_credentials(authority.certificate.read_bytes()) if secure else None
    with listening(tmp_path / "data", tls=tls, tokens=tmp_path / "tokens.json") as (server, address):
        exporter = exporters.OTLPLogExporter(
            address, insecure=not secure, credentials=trust, compression=compression,
            headers={"authorization": f"Bearer {token}"},
        )  # fmt: skip
        provider = LoggerProvider(Resource(process(1)))
        provider.add_log_record_processor(SimpleLogRecordProcessor(exporter))
        logger = logging.Logger("test_otlp_grpc")
        logger.addHandler(LoggingHandler(logger_provider=provider))
        for number in range(5):
            logger.warning("order %d failed", number, extra={"order": number})
        provider.shutdown()
        assert messages(server) == [f"order {number} failed" for number in range(5)]
        query = 'SELECT "{vars:host.name}" FROM service.name = shop WHERE fields:order = 3'
        assert list(server.catalog.query(query).lines()) == ["shop-7f9c-1"]


def test_what_is_stored_is_durable_and_counted(running):
    """The answer equals HTTP's; calls count as requests in the figures; metadata selects another topic."""
    server, address = running
    assert call(address, ONE, topic="others") == b""
    assert server.catalog.topic("others").scan().count() == 1
    with httpx.Client(base_url=server.url) as web:
        figures = web.get("/metrics").text
    assert f'aggregator_requests_total{{method="POST",route="{EXPORT}",status="200"}} 1.0' in figures


def test_partial_success(running, monkeypatch):
    """Records that can never be stored are reported, and the others are stored."""
    server, address = running
    monkeypatch.setattr("aggregator.engine.ingest.quota.MAX_BODY_BYTES", 4096 + 1_500)
    mixed = request({"body": "good"}, {"body": "x" * 2_000}).SerializeToString()
    told = ExportLogsServiceResponse.FromString(call(address, mixed)).partial_success
    assert told.rejected_log_records == 1
    assert messages(server) == ["good"]


def test_refused_for_good(running):
    """A permanent refusal has a code that forbids a retry, and nothing is stored."""
    server, address = running
    zeros = b"\0" * 21_000_000
    for body, method, expected in (
        (b"junk", EXPORT, Code.INVALID_ARGUMENT), (b"\x1f\x8bjunk", EXPORT, Code.INVALID_ARGUMENT),
        (gzip.compress(ONE)[:-9], EXPORT, Code.INVALID_ARGUMENT), (zeros, EXPORT, Code.RESOURCE_EXHAUSTED),
        (gzip.compress(zeros), EXPORT, Code.RESOURCE_EXHAUSTED),
        (ONE, OTHERS[0], Code.UNIMPLEMENTED), (ONE, OTHERS[1], Code.UNIMPLEMENTED),
    ):  # fmt: skip
        error = call(address, body, method)
        assert error.code() == expected, (body[:9], method)
        status = dict(error.trailing_metadata() or ()).get("grpc-status-details-bin")
        if status is not None:
            told = status_pb2.Status.FromString(status)
            assert (told.code, told.message, len(told.details)) == (expected.value[0], error.details(), 0)
    assert messages(server) == []
    assert call(address, ONE) == b""


def test_tokens(tmp_path):
    """Each call needs a token that may write to its topic."""
    file = tmp_path / "tokens.json"
    reader, writer = create(file, "r", ["read"]), create(file, "w", ["write"], ["logs"])
    with listening(tmp_path / "data", tokens=file) as (server, address):
        assert call(address, ONE).code() == Code.UNAUTHENTICATED
        assert call(address, ONE, authorization="Bearer agg_1_2").code() == Code.UNAUTHENTICATED
        assert call(address, ONE, authorization=f"Bearer {reader}").code() == Code.PERMISSION_DENIED
        assert call(address, ONE, authorization=f"Bearer {writer}", topic="other").code() == Code.PERMISSION_DENIED
        assert messages(server) == []
        assert call(address, ONE, authorization=f"Bearer {writer}") == b""


def test_client_certificates(tmp_path):
    """If client certificates are required, a client without one is refused."""
    authority = CertificateAuthority(tmp_path)
    tls = Tls(*authority.issue("server"), authority.certificate)
    certificate, key = (file.read_bytes() for file in authority.issue("client"))
    root = authority.certificate.read_bytes()
    with listening(tmp_path / "data", tls=tls) as (server, address):
        with (
            grpc.secure_channel(address, grpc.ssl_channel_credentials(root)) as stranger,
            pytest.raises(grpc.RpcError) as error,
        ):
            stranger.unary_unary(EXPORT)(ONE, timeout=120)
        assert error.value.code() == Code.UNAVAILABLE
        assert messages(server) == []
        with grpc.secure_channel(address, grpc.ssl_channel_credentials(root, key, certificate)) as known:
            assert known.unary_unary(EXPORT)(ONE, timeout=120) == b""


def retry_delay_s(error) -> float:
    """The retry delay in the error, in seconds."""
    status = status_pb2.Status.FromString(dict(error.trailing_metadata())["grpc-status-details-bin"])
    (detail,) = status.details
    info = details_pb2.RetryInfo()
    assert detail.Unpack(info)
    return info.retry_delay.ToMilliseconds() / 1000


def test_refused_for_now(tmp_path):
    """Without room, a call is told to retry after a delay; an open call completes."""
    few = Work(body_bytes=10_240_000, patience_s=0.05)
    with (
        listening(tmp_path / "data", work=few, http=Http(stall_s=60)) as (server, address),
        grpc.insecure_channel(address) as channel,
        ExitStack() as ended,
    ):
        more = threading.Event()
        ended.callback(more.set)

        def slowly():
            more.wait(60)
            yield ONE

        first = channel.stream_unary(EXPORT).future(slowly(), timeout=120)
        wait_for_requests(server, 1)
        error = call(address, ONE)
        assert (error.code(), retry_delay_s(error)) == (Code.UNAVAILABLE, 1.0)
        more.set()
        assert first.result() == b""
        server.context.ready = False
        error = call(address, ONE)
        assert (error.code(), retry_delay_s(error)) == (Code.UNAVAILABLE, 1.0)
        server.context.ready = True
        assert call(address, ONE) == b""


def test_calls_that_are_cancelled_leave_nothing(tmp_path):
    """Clients that leave before they send a message, at any moment, occupy neither a place nor memory."""
    few = Work(body_bytes=20_480_000, patience_s=60)
    with (
        listening(tmp_path / "data", work=few) as (server, address),
        grpc.insecure_channel(address) as channel,
        ExitStack() as ended,
    ):
        more = threading.Event()
        ended.callback(more.set)

        def never():
            more.wait(60)
            yield from ()

        calls = [channel.stream_unary(EXPORT).future(never(), timeout=60) for _ in range(20)]
        for number, left in enumerate(calls):
            if number % 2:
                wait_for_requests(server, len(calls) - number)
            left.cancel()
        wait_for_requests(server, 0)
        assert [call(address, ONE) for _ in range(3)] == [b""] * 3
        assert server.context.body_bytes == 0


def test_a_message_that_does_not_come(tmp_path):
    """A call that sends nothing is ended and its memory released; one that ends without a message is refused."""
    with (
        listening(tmp_path / "data", http=Http(stall_s=0.3)) as (server, address),
        grpc.insecure_channel(address) as channel,
    ):
        more = threading.Event()

        def never():
            more.wait(60)
            yield from ()

        with pytest.raises(grpc.RpcError) as stalled:
            channel.stream_unary(EXPORT)(never(), timeout=60)
        assert stalled.value.code() == Code.DEADLINE_EXCEEDED
        assert "did not arrive in time" in stalled.value.details()
        more.set()
        with pytest.raises(grpc.RpcError) as empty:
            channel.stream_unary(EXPORT)(iter(()), timeout=120)
        assert empty.value.code() == Code.INVALID_ARGUMENT
        wait_for_requests(server, 0)
        assert server.context.body_bytes == 0


def test_calls_under_way_are_finished_at_stop(tmp_path, monkeypatch):
    """A call in progress is answered and stored when the server is told to stop."""
    from aggregator.server.services import otlp_grpc

    stored, begun, go_on = otlp_grpc.export, threading.Event(), threading.Event()

    def held(*args):
        begun.set()
        assert go_on.wait(120)
        return stored(*args)

    monkeypatch.setattr(otlp_grpc, "export", held)
    with ExitStack() as last:
        with listening(tmp_path / "data") as (_, address):
            channel = last.enter_context(grpc.insecure_channel(address))
            answer = channel.unary_unary(EXPORT).future(ONE, timeout=120)
            assert begun.wait(120)
            threading.Timer(0.2, go_on.set).start()
        assert answer.result() == b""
    with aggregator.open(tmp_path / "data") as catalog:
        assert catalog.topic("logs").scan().count() == 1


@pytest.mark.parametrize(("bind", "message"), [
    ("0.0.0.0:0", "is reachable from other machines"), ("taken", "cannot listen on"), ("nowhere", "invalid address"),
])  # fmt: skip
def test_addresses_that_cannot_be(running, tmp_path, bind, message):
    """A public address without a token, an address in use and an invalid one are each refused with a reason."""
    bind = running[1] if bind == "taken" else bind

    async def listen(catalog):
        async with otlp_service.listening(Context.of(catalog, Settings(otlp=Otlp(grpc=bind)))):
            pass

    with aggregator.open(tmp_path / "other") as catalog, pytest.raises(InvalidRequestError, match=message):
        asyncio.run(listen(catalog))


def test_without_grpcio(tmp_path, monkeypatch):
    """Without grpcio the setting is refused with what to install."""
    monkeypatch.setitem(sys.modules, "aggregator.server.services.otlp_grpc", None)

    async def listen(catalog):
        async with otlp_service.listening(Context.of(catalog, Settings(otlp=Otlp(grpc="127.0.0.1:0")))):
            pass

    with aggregator.open(tmp_path) as catalog, pytest.raises(InvalidRequestError, match="needs grpcio") as error:
        asyncio.run(listen(catalog))
    assert "esformat[grpc]" in error.value.hint
