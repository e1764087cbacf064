"""Clients of a server: appends that are stored once, lazy answers, tails, a writer in the background, a log handler."""

from aggregator.client.async_client import AsyncAnswer, AsyncClient, AsyncTopic
from aggregator.client.async_writer import AsyncWriter
from aggregator.client.client import Client, RemoteTopic
from aggregator.client.errors import (
    AccessDeniedError,
    BodyTooLargeError,
    TruncatedAnswerError,
    UnavailableError,
    WriteFailedError,
)
from aggregator.client.log_handler import LogHandler
from aggregator.client.outbox import Unsent
from aggregator.client.plateau import PlateauClient, PlateauPage, PlateauRecords, PlateauTopic, Span
from aggregator.client.retry import Retry
from aggregator.client.scan import RemoteScan, RemoteSelection
from aggregator.client.sizing import Sizing
from aggregator.client.tail import Page, RemoteTail
from aggregator.client.writer import Writer

__all__ = [
    "AccessDeniedError",
    "AsyncAnswer",
    "AsyncClient",
    "AsyncTopic",
    "AsyncWriter",
    "BodyTooLargeError",
    "Client",
    "LogHandler",
    "Page",
    "PlateauClient",
    "PlateauPage",
    "PlateauRecords",
    "PlateauTopic",
    "RemoteScan",
    "RemoteSelection",
    "RemoteTail",
    "RemoteTopic",
    "Retry",
    "Sizing",
    "Span",
    "TruncatedAnswerError",
    "UnavailableError",
    "Unsent",
    "WriteFailedError",
    "Writer",
]
