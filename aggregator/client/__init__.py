"""Clients of a server: appends that are stored once, lazy answers, tails, a writer in the background, a log handler."""

from aggregator.client.client import Client, RemoteTopic
from aggregator.client.errors import (
    AccessDeniedError,
    BodyTooLargeError,
    TruncatedAnswerError,
    UnavailableError,
    WriteFailedError,
)
from aggregator.client.outbox import Unsent
from aggregator.client.retry import Retry
from aggregator.client.scan import RemoteScan, RemoteSelection
from aggregator.client.sizing import Sizing
from aggregator.client.tail import Page, RemoteTail
from aggregator.client.writer import Writer

__all__ = [
    "AccessDeniedError",
    "BodyTooLargeError",
    "Client",
    "Page",
    "RemoteScan",
    "RemoteSelection",
    "RemoteTail",
    "RemoteTopic",
    "Retry",
    "Sizing",
    "TruncatedAnswerError",
    "UnavailableError",
    "Unsent",
    "WriteFailedError",
    "Writer",
]
