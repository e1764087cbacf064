"""Event files: immutable, self-contained segments sorted by space, grouping and timestamp, with secondary indexes."""

from typing import TYPE_CHECKING

from esformat.base.lazy import lazily

if TYPE_CHECKING:
    from esformat.errors import (
        ChecksumMismatchError,
        ClosedError,
        CorruptSegmentError,
        EsdbError,
        InvalidEventError,
        SegmentChangedError,
        SpaceNotFoundError,
        UnknownIndexError,
        UnsupportedVersionError,
        UsageError,
    )
    from esformat.event import Event
    from esformat.format.json_fields import PayloadField, PayloadFields
    from esformat.io.source import BytesSource, CountingSource, FileSource, Source
    from esformat.read.collection.collection import Collection, CollectionSpace, open_many
    from esformat.read.collection.scan import CollectionScan
    from esformat.read.counts import Counts
    from esformat.read.scan import Scan
    from esformat.read.segment import Segment, set_cache_bytes
    from esformat.read.segment import open_segment as open
    from esformat.read.space import Space
    from esformat.tools.verification import Problem, Report, verify
    from esformat.write.known_templates import KnownTemplates
    from esformat.write.writer import Writer, create
else:
    __getattr__, __dir__ = lazily(
        __name__,
        {
            "esformat.read.collection.collection": "Collection CollectionSpace open_many",
            "esformat.read.collection.scan": "CollectionScan",
            "esformat.read.counts": "Counts",
            "esformat.errors": (
                "ChecksumMismatchError ClosedError CorruptSegmentError EsdbError InvalidEventError "
                "SegmentChangedError SpaceNotFoundError UnknownIndexError UnsupportedVersionError UsageError"
            ),
            "esformat.event": "Event",
            "esformat.format.json_fields": "PayloadField PayloadFields",
            "esformat.read.scan": "Scan",
            "esformat.read.segment": "Segment set_cache_bytes open=open_segment",
            "esformat.io.source": "BytesSource CountingSource FileSource Source",
            "esformat.read.space": "Space",
            "esformat.tools.verification": "Problem Report verify",
            "esformat.write.known_templates": "KnownTemplates",
            "esformat.write.writer": "Writer create",
        },
    )

__version__ = "0.1.0"

__all__ = [
    "BytesSource",
    "ChecksumMismatchError",
    "ClosedError",
    "Collection",
    "CollectionScan",
    "CollectionSpace",
    "CorruptSegmentError",
    "CountingSource",
    "Counts",
    "EsdbError",
    "Event",
    "FileSource",
    "InvalidEventError",
    "KnownTemplates",
    "PayloadField",
    "PayloadFields",
    "Problem",
    "Report",
    "Scan",
    "Segment",
    "SegmentChangedError",
    "Source",
    "Space",
    "SpaceNotFoundError",
    "UnknownIndexError",
    "UnsupportedVersionError",
    "UsageError",
    "Writer",
    "__version__",
    "create",
    "open",
    "open_many",
    "set_cache_bytes",
    "verify",
]
