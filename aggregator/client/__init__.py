"""Clients of a server: appends that are stored once, lazy results, tails, a background writer, a log handler."""

from typing import TYPE_CHECKING

from esformat.parts import lazily

if TYPE_CHECKING:
    from aggregator.client.async_client import AsyncAnswer, AsyncClient, AsyncTopic
    from aggregator.client.client import Client, RemoteTopic
    from aggregator.client.following.follower import Follower
    from aggregator.client.http.errors import (
        AccessDeniedError,
        BodyTooLargeError,
        TruncatedAnswerError,
        UnavailableError,
        WriteFailedError,
    )
    from aggregator.client.http.retry import Retry
    from aggregator.client.log_handler import LogHandler
    from aggregator.client.plateau import PlateauClient, PlateauPage, PlateauRecords, PlateauTopic, Span
    from aggregator.client.routing import RoutingClient
    from aggregator.client.scan import RemoteRows, RemoteScan, RemoteSelection
    from aggregator.client.tail import Page, RemoteTail
    from aggregator.client.writing.async_writer import AsyncWriter
    from aggregator.client.writing.outbox import Unsent
    from aggregator.client.writing.sizing import Sizing
    from aggregator.client.writing.writer import Writer
else:
    __getattr__, __dir__ = lazily(
        __name__,
        {
            "aggregator.client.async_client": "AsyncAnswer AsyncClient AsyncTopic",
            "aggregator.client.writing.async_writer": "AsyncWriter",
            "aggregator.client.client": "Client RemoteTopic",
            "aggregator.client.following.follower": "Follower",
            "aggregator.client.http.errors": (
                "AccessDeniedError BodyTooLargeError TruncatedAnswerError UnavailableError WriteFailedError"
            ),
            "aggregator.client.log_handler": "LogHandler",
            "aggregator.client.writing.outbox": "Unsent",
            "aggregator.client.plateau": "PlateauClient PlateauPage PlateauRecords PlateauTopic Span",
            "aggregator.client.http.retry": "Retry",
            "aggregator.client.routing": "RoutingClient",
            "aggregator.client.scan": "RemoteRows RemoteScan RemoteSelection",
            "aggregator.client.writing.sizing": "Sizing",
            "aggregator.client.tail": "Page RemoteTail",
            "aggregator.client.writing.writer": "Writer",
        },
    )

__all__ = [
    "AccessDeniedError",
    "AsyncAnswer",
    "AsyncClient",
    "AsyncTopic",
    "AsyncWriter",
    "BodyTooLargeError",
    "Client",
    "Follower",
    "LogHandler",
    "Page",
    "PlateauClient",
    "PlateauPage",
    "PlateauRecords",
    "PlateauTopic",
    "RemoteRows",
    "RemoteScan",
    "RemoteSelection",
    "RemoteTail",
    "RemoteTopic",
    "Retry",
    "RoutingClient",
    "Sizing",
    "Span",
    "TruncatedAnswerError",
    "UnavailableError",
    "Unsent",
    "WriteFailedError",
    "Writer",
]
