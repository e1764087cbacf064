"""The collector: lines of files into streams as they are written, each exactly once."""

from aggregator.collect.collector import Collector
from aggregator.collect.events import Counts
from aggregator.collect.settings import FORMATS, TYPES, Files, Settings
from aggregator.collect.sinks import CatalogSink, ServerSink, Sink, StoppedError

__all__ = [
    "FORMATS",
    "TYPES",
    "CatalogSink",
    "Collector",
    "Counts",
    "Files",
    "ServerSink",
    "Settings",
    "Sink",
    "StoppedError",
]
