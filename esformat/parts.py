"""Internals for programs built on segments, such as the aggregator: schemas, intake, arrays, events of batches."""

from typing import TYPE_CHECKING

from esformat.base.lazy import lazily

if TYPE_CHECKING:
    from esformat.base.late import import_late
    from esformat.base.launch import hide_pandas, launch
    from esformat.base.notebook import html_facts, html_time
    from esformat.base.quantity import parse_duration, parse_size
    from esformat.core.caches import Cache
    from esformat.core.commits import CHECKING_TIME, MARKED, RECHECKING, SYNCING, Commits, now_s, sync_file
    from esformat.core.json_paths import has_odd_numbers
    from esformat.core.messages import MessageWriter
    from esformat.core.numbers import count_by_width
    from esformat.event import to_bound, to_microseconds
    from esformat.format.arrays import TextForm, have_key, in_form_of, is_binary, is_list, is_numeric, short_array
    from esformat.format.json_text import as_text, fragments
    from esformat.format.json_values import JsonValues, is_number_of, texts_around
    from esformat.format.layout import LEAST_FRAME_BYTES, MOST_FRAME_BYTES
    from esformat.format.schema import (
        KEY_COLUMNS,
        TIMESTAMP_TYPE,
        EventSchema,
        Field,
        check_unique,
        default_schema,
        make_schema,
        normalise_type,
        without_keys,
    )
    from esformat.format.unix_time import FIRST_US, LAST_US, UNIX_UNITS, from_integers, from_text, is_number, to_nanos
    from esformat.io.handles import Handles, SharedFile
    from esformat.io.publish import naming, sync_directory
    from esformat.read.anatomy import anatomy
    from esformat.read.answer import Answer, Unpicklable
    from esformat.read.ask.bounds import Bounds, admits_nothing, span_of_times
    from esformat.read.ask.question import can_hold
    from esformat.read.dataset import EventDataset
    from esformat.read.decode.event_rows import rows_of_batch
    from esformat.read.dictionaries import in_dictionaries
    from esformat.read.payload_columns import with_fields
    from esformat.read.row_range import scan_rows
    from esformat.read.scan import passed_rows
    from esformat.read.segment import announce_space, fast_history, opening_bytes
    from esformat.write.allocators import release_unused
    from esformat.write.intake import EventRows, check_table, to_arrow
    from esformat.write.lossless import are_misread, array_of, first_cut
    from esformat.write.messages import message_writer
    from esformat.write.ordered_pieces import ordered_pieces, pieces_of, rows_of
    from esformat.write.plain_array import IMPOSSIBLE_HINT, impossible_value, plain_array
else:
    __getattr__, __dir__ = lazily(
        __name__,
        {
            "esformat.read.anatomy": "anatomy",
            "esformat.write.allocators": "release_unused",
            "esformat.core.caches": "Cache",
            "esformat.core.commits": "CHECKING_TIME RECHECKING MARKED SYNCING Commits now_s sync_file",
            "esformat.core.messages": "MessageWriter",
            "esformat.core.numbers": "count_by_width",
            "esformat.event": "to_bound to_microseconds",
            "esformat.format.arrays": "TextForm have_key in_form_of is_binary is_list is_numeric short_array",
            "esformat.read.dictionaries": "in_dictionaries",
            "esformat.read.answer": "Answer Unpicklable",
            "esformat.read.decode.event_rows": "rows_of_batch",
            "esformat.write.lossless": "are_misread array_of first_cut",
            "esformat.io.handles": "Handles SharedFile",
            "esformat.read.ask.bounds": "Bounds admits_nothing span_of_times",
            "esformat.read.ask.question": "can_hold",
            "esformat.read.dataset": "EventDataset",
            "esformat.write.intake": "EventRows check_table to_arrow",
            "esformat.format.json_text": "as_text fragments",
            "esformat.core.json_paths": "has_odd_numbers",
            "esformat.format.json_values": "JsonValues is_number_of texts_around",
            "esformat.io.publish": "naming sync_directory",
            "esformat.base.late": "import_late",
            "esformat.write.messages": "message_writer",
            "esformat.base.launch": "hide_pandas launch",
            "esformat.format.layout": "LEAST_FRAME_BYTES MOST_FRAME_BYTES",
            "esformat.base.notebook": "html_facts html_time",
            "esformat.write.ordered_pieces": "ordered_pieces pieces_of rows_of",
            "esformat.write.plain_array": "IMPOSSIBLE_HINT impossible_value plain_array",
            "esformat.base.quantity": "parse_duration parse_size",
            "esformat.read.payload_columns": "with_fields",
            "esformat.read.row_range": "scan_rows",
            "esformat.read.scan": "passed_rows",
            "esformat.read.segment": "announce_space fast_history opening_bytes",
            "esformat.format.schema": (
                "KEY_COLUMNS TIMESTAMP_TYPE EventSchema Field check_unique default_schema make_schema normalise_type "
                "without_keys"
            ),
            "esformat.format.unix_time": "FIRST_US LAST_US UNIX_UNITS from_integers from_text is_number to_nanos",
        },
    )

__all__ = [
    "CHECKING_TIME",
    "FIRST_US",
    "IMPOSSIBLE_HINT",
    "KEY_COLUMNS",
    "LAST_US",
    "LEAST_FRAME_BYTES",
    "MARKED",
    "MOST_FRAME_BYTES",
    "RECHECKING",
    "SYNCING",
    "TIMESTAMP_TYPE",
    "UNIX_UNITS",
    "Answer",
    "Bounds",
    "Cache",
    "Commits",
    "EventDataset",
    "EventRows",
    "EventSchema",
    "Field",
    "Handles",
    "JsonValues",
    "MessageWriter",
    "SharedFile",
    "TextForm",
    "Unpicklable",
    "admits_nothing",
    "anatomy",
    "announce_space",
    "are_misread",
    "array_of",
    "as_text",
    "can_hold",
    "check_table",
    "check_unique",
    "count_by_width",
    "default_schema",
    "fast_history",
    "first_cut",
    "fragments",
    "from_integers",
    "from_text",
    "has_odd_numbers",
    "have_key",
    "hide_pandas",
    "html_facts",
    "html_time",
    "import_late",
    "impossible_value",
    "in_dictionaries",
    "in_form_of",
    "is_binary",
    "is_list",
    "is_number",
    "is_number_of",
    "is_numeric",
    "launch",
    "lazily",
    "make_schema",
    "message_writer",
    "naming",
    "normalise_type",
    "now_s",
    "opening_bytes",
    "ordered_pieces",
    "parse_duration",
    "parse_size",
    "passed_rows",
    "pieces_of",
    "plain_array",
    "release_unused",
    "rows_of",
    "rows_of_batch",
    "scan_rows",
    "short_array",
    "span_of_times",
    "sync_directory",
    "sync_file",
    "texts_around",
    "to_arrow",
    "to_bound",
    "to_microseconds",
    "to_nanos",
    "with_fields",
    "without_keys",
]
