"""Event files: immutable, self-contained segments sorted by space, grouping and timestamp, with secondary indexes."""

from esformat.collection import Collection, CollectionSpace, open_many
from esformat.collection_scan import CollectionScan
from esformat.counts import Counts
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
from esformat.scan import Scan
from esformat.segment import Segment, set_cache_bytes
from esformat.segment import open_segment as open
from esformat.source import BytesSource, CountingSource, FileSource, Source
from esformat.space import Space
from esformat.verify import Problem, Report, verify
from esformat.writer import Writer, create

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
