"""The embedded aggregator: events taken in durably, rolled into segments under a manifest, kept within bounds, read."""

from aggregator.catalog import Catalog
from aggregator.catalog import open_catalog as open
from aggregator.errors import (
    AggregatorError,
    CatalogLockedError,
    CatalogNotFoundError,
    CorruptLogError,
    CorruptManifestError,
    InvalidRequestError,
    LogFailedError,
    ManifestFailedError,
    OverloadedError,
    ReadOnlyError,
    SegmentMissingError,
    SequenceConflictError,
    TopicExistsError,
    TopicNotFoundError,
    UnknownVersionError,
)
from aggregator.model import Problem, Receipt
from aggregator.policy import Durability, Limits, Retention, Roll
from aggregator.scan import Scan
from aggregator.topic import Topic

__all__ = [
    "AggregatorError",
    "Catalog",
    "CatalogLockedError",
    "CatalogNotFoundError",
    "CorruptLogError",
    "CorruptManifestError",
    "Durability",
    "InvalidRequestError",
    "Limits",
    "LogFailedError",
    "ManifestFailedError",
    "OverloadedError",
    "Problem",
    "ReadOnlyError",
    "Receipt",
    "Retention",
    "Roll",
    "Scan",
    "SegmentMissingError",
    "SequenceConflictError",
    "Topic",
    "TopicExistsError",
    "TopicNotFoundError",
    "UnknownVersionError",
    "open",
]
