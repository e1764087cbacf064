"""The embedded aggregator: appends events durably, seals them into segments, enforces retention, and reads them."""

from typing import TYPE_CHECKING

from esformat.parts import lazily

if TYPE_CHECKING:
    from aggregator.base.allowance import Allowance
    from aggregator.base.reports import (
        ClockReport,
        Collected,
        CompactionReport,
        Erasure,
        Lacking,
        RebuildReport,
        Removed,
        RestoreReport,
        RetentionReport,
        Traces,
    )
    from aggregator.catalog import Catalog
    from aggregator.engine.bulk_load import Added
    from aggregator.engine.quarantine import Quarantined, QuarantineView
    from aggregator.engine.store_view import StoreView
    from aggregator.errors import (
        AggregatorError,
        BehindError,
        CatalogLockedError,
        CatalogNotFoundError,
        CorruptLogError,
        CorruptManifestError,
        DiskFullError,
        FencedError,
        InvalidRequestError,
        LogFailedError,
        ManifestFailedError,
        OverloadedError,
        PartitionNotFoundError,
        QueryCancelledError,
        QueryLimitError,
        ReadOnlyError,
        SealingFailedError,
        SegmentMissingError,
        SequenceConflictError,
        SequenceForgottenError,
        StoreError,
        StoreUnreachableError,
        TopicExistsError,
        TopicNotFoundError,
        UnknownVersionError,
    )
    from aggregator.model import Problem, Receipt
    from aggregator.opening import Catalogs, open_many, promote, rebuild_manifest, restore
    from aggregator.opening import open_catalog as open
    from aggregator.policy import Durability, KeepLocal, Limits, Retention, Roll
    from aggregator.read.scan import Scan
    from aggregator.streams.selection import Selection
    from aggregator.streams.tail import Tail
    from aggregator.topic import Topic
else:
    __getattr__, __dir__ = lazily(
        __name__,
        {
            "aggregator.engine.bulk_load": "Added",
            "aggregator.base.allowance": "Allowance",
            "aggregator.catalog": "Catalog",
            "aggregator.errors": (
                "AggregatorError BehindError CatalogLockedError CatalogNotFoundError CorruptLogError "
                "CorruptManifestError DiskFullError FencedError InvalidRequestError LogFailedError ManifestFailedError "
                "OverloadedError PartitionNotFoundError QueryCancelledError QueryLimitError ReadOnlyError "
                "SealingFailedError SegmentMissingError SequenceConflictError SequenceForgottenError StoreError "
                "StoreUnreachableError TopicExistsError TopicNotFoundError UnknownVersionError"
            ),
            "aggregator.model": "Problem Receipt",
            "aggregator.opening": "Catalogs open=open_catalog open_many promote rebuild_manifest restore",
            "aggregator.engine.store_view": "StoreView",
            "aggregator.policy": "Durability KeepLocal Limits Retention Roll",
            "aggregator.engine.quarantine": "Quarantined QuarantineView",
            "aggregator.base.reports": (
                "ClockReport Collected CompactionReport Erasure Lacking RebuildReport Removed RestoreReport "
                "RetentionReport Traces"
            ),
            "aggregator.read.scan": "Scan",
            "aggregator.streams.selection": "Selection",
            "aggregator.streams.tail": "Tail",
            "aggregator.topic": "Topic",
        },
    )

__all__ = [
    "Added",
    "AggregatorError",
    "Allowance",
    "BehindError",
    "Catalog",
    "CatalogLockedError",
    "CatalogNotFoundError",
    "Catalogs",
    "ClockReport",
    "Collected",
    "CompactionReport",
    "CorruptLogError",
    "CorruptManifestError",
    "DiskFullError",
    "Durability",
    "Erasure",
    "FencedError",
    "InvalidRequestError",
    "KeepLocal",
    "Lacking",
    "Limits",
    "LogFailedError",
    "ManifestFailedError",
    "OverloadedError",
    "PartitionNotFoundError",
    "Problem",
    "QuarantineView",
    "Quarantined",
    "QueryCancelledError",
    "QueryLimitError",
    "ReadOnlyError",
    "RebuildReport",
    "Receipt",
    "Removed",
    "RestoreReport",
    "Retention",
    "RetentionReport",
    "Roll",
    "Scan",
    "SealingFailedError",
    "SegmentMissingError",
    "Selection",
    "SequenceConflictError",
    "SequenceForgottenError",
    "StoreError",
    "StoreUnreachableError",
    "StoreView",
    "Tail",
    "Topic",
    "TopicExistsError",
    "TopicNotFoundError",
    "Traces",
    "UnknownVersionError",
    "open",
    "open_many",
    "promote",
    "rebuild_manifest",
    "restore",
]
