"""Building blocks for other data sources over segments, such as that of catalogs: options, plans, types, conditions."""

from typing import TYPE_CHECKING

from esformat.base.lazy import lazily

if TYPE_CHECKING:
    from esformat.io.commit_folder import LocalFolder
    from esformat.io.lease import owned
    from esformat.io.location import Place, local_path, locate
    from esformat.read.ask.bounds import Bounds, Domain
    from esformat.read.row_range import scan_rows, schema_of
    from esformat.spark.cluster import clustered
    from esformat.spark.condition import columns_of, matching, parse_condition
    from esformat.spark.event_columns import EventColumns
    from esformat.spark.filter_bounds import bounds_of_filters
    from esformat.spark.jobs.groups import Inputs, Published, check_count, in_groups
    from esformat.spark.jobs.inputs import GROUP_BYTES, INPUT_FORMATS, InputFile
    from esformat.spark.jobs.ledger import ledger
    from esformat.spark.jobs.summary import Progress, Summary
    from esformat.spark.options import (
        PARTITION_BYTES,
        SEGMENT_BYTES,
        SEGMENT_EVENTS,
        Options,
        WriteOptions,
        as_list,
        one_of,
        parse_bytes,
        parse_count,
        parse_indexes,
        parse_names,
    )
    from esformat.spark.portions import portions
    from esformat.spark.reader import PushFilters, freeze_imports
    from esformat.spark.scan_plan import RowRange, SegmentGoneError, find_candidates, opened_as_planned, share_out
    from esformat.spark.scoping import filters_are_scoped
    from esformat.spark.source import PUSH_DOWN, activate, in_zone, zone_of
    from esformat.spark.types import arrow_schema, check_requested, convert_batch, readable, spark_schema
else:
    __getattr__, __dir__ = lazily(  # because Spark's workers need few of these
        __name__,
        {
            "esformat.io.commit_folder": "LocalFolder",
            "esformat.io.lease": "owned",
            "esformat.io.location": "Place local_path locate",
            "esformat.read.ask.bounds": "Bounds Domain",
            "esformat.read.row_range": "scan_rows schema_of",
            "esformat.spark.cluster": "clustered",
            "esformat.spark.condition": "columns_of matching parse_condition",
            "esformat.spark.event_columns": "EventColumns",
            "esformat.spark.jobs.groups": "Inputs Published check_count in_groups",
            "esformat.spark.jobs.inputs": "GROUP_BYTES INPUT_FORMATS InputFile",
            "esformat.spark.jobs.ledger": "ledger",
            "esformat.spark.jobs.summary": "Progress Summary",
            "esformat.spark.options": (
                "PARTITION_BYTES SEGMENT_BYTES SEGMENT_EVENTS Options WriteOptions as_list "
                "one_of parse_bytes parse_count parse_indexes parse_names"
            ),
            "esformat.spark.portions": "portions",
            "esformat.spark.filter_bounds": "bounds_of_filters",
            "esformat.spark.reader": "PushFilters freeze_imports",
            "esformat.spark.scan_plan": "RowRange SegmentGoneError find_candidates opened_as_planned share_out",
            "esformat.spark.scoping": "filters_are_scoped",
            "esformat.spark.source": "PUSH_DOWN activate in_zone zone_of",
            "esformat.spark.types": "arrow_schema check_requested convert_batch readable spark_schema",
        },
    )

__all__ = [
    "GROUP_BYTES",
    "INPUT_FORMATS",
    "PARTITION_BYTES",
    "PUSH_DOWN",
    "SEGMENT_BYTES",
    "SEGMENT_EVENTS",
    "Bounds",
    "Domain",
    "EventColumns",
    "InputFile",
    "Inputs",
    "LocalFolder",
    "Options",
    "Place",
    "Progress",
    "Published",
    "PushFilters",
    "RowRange",
    "SegmentGoneError",
    "Summary",
    "WriteOptions",
    "activate",
    "arrow_schema",
    "as_list",
    "bounds_of_filters",
    "check_count",
    "check_requested",
    "clustered",
    "columns_of",
    "convert_batch",
    "filters_are_scoped",
    "find_candidates",
    "freeze_imports",
    "in_groups",
    "in_zone",
    "ledger",
    "local_path",
    "locate",
    "matching",
    "one_of",
    "opened_as_planned",
    "owned",
    "parse_bytes",
    "parse_condition",
    "parse_count",
    "parse_indexes",
    "parse_names",
    "portions",
    "readable",
    "scan_rows",
    "schema_of",
    "share_out",
    "spark_schema",
    "zone_of",
]
