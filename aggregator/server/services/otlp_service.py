"""OTLP over gRPC, if the settings enable it. Only this module loads the extra `grpc`."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import AsyncIterator

from aggregator import InvalidRequestError
from aggregator.server.config.address import is_loopback, split_address
from aggregator.server.context import Context

_log = logging.getLogger("aggregator.server.bodies.otlp.message")


@contextlib.asynccontextmanager
async def listening(context: Context) -> AsyncIterator[None]:
    """Listen while the context is open, then finish the open calls. Raises InvalidRequestError."""
    settings = context.settings
    bind = settings.otlp.grpc
    if bind is None:
        yield
        return
    host, _ = split_address(bind)
    requires_token = context.authority.requires_token or settings.tls.client_ca is not None
    if not requires_token and not settings.http.public and not is_loopback(host):
        raise InvalidRequestError(
            f"{bind} is reachable from other machines and requires no token",
            hint="create a token with `aggregator token create`, require client certificates, or use --public",
        )
    try:
        from aggregator.server.services.otlp_grpc import listen
    except ImportError:
        raise InvalidRequestError("otlp.grpc needs grpcio", hint="pip install 'esformat[grpc]'") from None
    server, port = await listen(context, bind)
    _log.info("listening for OTLP over gRPC", extra={"address": f"{host}:{port}"})
    try:
        yield
    finally:
        await server.stop(settings.http.drain_s)
