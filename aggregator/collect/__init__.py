"""The collector: it stores lines of files in streams as they are written, each exactly once."""

from typing import TYPE_CHECKING

from esformat.parts import lazily

if TYPE_CHECKING:
    from aggregator.collect.choices import FORMATS, KINDS, TYPES
    from aggregator.collect.collector import Collector
    from aggregator.collect.events import Counts
    from aggregator.collect.settings import Files, Settings
    from aggregator.collect.sinks import CatalogSink, Patience, ServerSink, Sink, StoppedError
else:
    __getattr__, __dir__ = lazily(
        __name__,
        {
            "aggregator.collect.collector": "Collector",
            "aggregator.collect.events": "Counts",
            "aggregator.collect.choices": "FORMATS KINDS TYPES",
            "aggregator.collect.settings": "Files Settings",
            "aggregator.collect.sinks": "CatalogSink Patience ServerSink Sink StoppedError",
        },
    )

__all__ = [
    "FORMATS",
    "KINDS",
    "TYPES",
    "CatalogSink",
    "Collector",
    "Counts",
    "Files",
    "Patience",
    "ServerSink",
    "Settings",
    "Sink",
    "StoppedError",
]
