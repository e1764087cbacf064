"""Files with many small blocks, so that a few events reach every path of the reader and the writer.

The sizes below are constants of the package, chosen for real files; here they are reduced to a few rows, blocks or
bytes. Only this module knows where they are defined.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields

import pytest

from esformat.format import bloom_filter, directory, encoding, postings
from esformat.read import scan, selection
from esformat.read.blocks import reader, runs
from esformat.read.decode import cached_group, event_rows, run_events
from esformat.tools import assembly, column_indexes, index_map, interleave, number_map, plan
from esformat.write import (
    block_encoder,
    builder,
    format_choice,
    index_builder,
    index_sorter,
    intake,
    memory,
    sorter,
    table_pieces,
)

PLACES = {
    "block_rows": [(block_encoder, "BLOCK_ROWS"), (assembly, "BLOCK_ROWS")],
    "block_bytes": [(block_encoder, "BLOCK_BYTES")],
    "task_blocks": [(block_encoder, "TASK_BLOCKS")],
    "task_bytes": [(block_encoder, "TASK_BYTES")],
    "min_memory": [(memory, "MIN_MEMORY")],
    "min_chunk": [(memory, "MIN_CHUNK")],
    "group_rows": [(table_pieces, "GROUP_ROWS")],
    "row_overhead": [(sorter, "ROW_OVERHEAD")],
    "column_overhead": [(sorter, "COLUMN_OVERHEAD")],
    "window_rows": [(format_choice, "WINDOW_ROWS")],
    "window_bytes": [(format_choice, "WINDOW_BYTES")],
    "sample_bytes": [(format_choice, "SAMPLE_BYTES")],
    "fan_in": [(sorter, "FAN_IN"), (index_sorter, "FAN_IN")],
    "index_chunk_rows": [(index_sorter, "CHUNK_ROWS")],
    "leaf_runs": [(directory, "LEAF_RUNS")],
    "leaf_blocks": [(directory, "LEAF_BLOCKS")],
    "root_leaves": [(directory, "MOST_ROOT_LEAVES")],
    "chunk_entries": [(index_builder, "CHUNK_ENTRIES")],
    "page_values": [(postings, "PAGE_VALUES")],
    "page_bytes": [(postings, "PAGE_BYTES")],
    "opening_root_bytes": [(builder, "OPENING_ROOT_BYTES")],
    "filter_page_buckets": [(bloom_filter, "PAGE_BUCKETS")],
    "frame_bytes": [(encoding, "FRAME_TARGET_BYTES")],
    "opening_bytes": [(reader, "OPENING_BYTES")],
    "read_gap_bytes": [(reader, "READ_GAP_BYTES")],
    "batch_blocks": [(scan, "BATCH_BLOCKS")],
    "point_blocks": [(run_events, "POINT_BLOCKS")],
    "batch_stored_bytes": [(scan, "BATCH_STORED_BYTES")],
    "page_rows": [(selection, "PAGE_ROWS")],
    "min_parallel_batches": [(scan, "MIN_PARALLEL_BATCHES")],
    "sorted_rows": [(runs, "SORTED_ROWS")],
    "events_at_once": [(event_rows, "EVENTS_AT_ONCE")],
    "scattered_rows": [(cached_group, "SCATTERED_ROWS")],
    "flush_events": [(intake.EventRows, "FLUSH_EVENTS")],
    "least_copied_rows": [(interleave, "LEAST_COPIED_ROWS")],
    "most_dictionaries": [(plan, "MOST_DICTIONARIES")],
    "index_bytes": [(column_indexes, "INDEX_BYTES")],
    "index_step_rows": [(column_indexes, "STEP_ROWS")],
    "spill_numbers": [(index_map, "SPILL_NUMBERS"), (number_map, "SPILL_RANGES")],
}


@dataclass(frozen=True)
class Pieces:
    """The reduced sizes; None leaves a size unchanged."""

    block_rows: int | None = None
    block_bytes: int | None = None
    task_blocks: int | None = None
    task_bytes: int | None = None
    min_memory: int | None = None
    min_chunk: int | None = None
    group_rows: int | None = None
    row_overhead: int | None = None
    column_overhead: int | None = None
    window_rows: int | None = None
    window_bytes: int | None = None
    sample_bytes: int | None = None
    fan_in: int | None = None
    index_chunk_rows: int | None = None
    leaf_runs: int | None = None
    leaf_blocks: int | None = None
    root_leaves: int | None = None
    chunk_entries: int | None = None
    page_values: int | None = None
    page_bytes: int | None = None
    opening_root_bytes: int | None = None
    filter_page_buckets: int | None = None
    frame_bytes: int | None = None
    opening_bytes: int | None = None
    read_gap_bytes: int | None = None
    batch_blocks: int | None = None
    point_blocks: int | None = None
    batch_stored_bytes: int | None = None
    page_rows: int | None = None
    min_parallel_batches: int | None = None
    sorted_rows: int | None = None
    events_at_once: int | None = None
    scattered_rows: int | None = None
    flush_events: int | None = None
    least_copied_rows: int | None = None
    most_dictionaries: int | None = None
    index_bytes: int | None = None
    index_step_rows: int | None = None
    spill_numbers: int | None = None


@contextmanager
def cut_small(sizes: Pieces) -> Iterator[None]:
    """Write and read with these sizes."""
    with pytest.MonkeyPatch.context() as patch:
        for field in fields(sizes):
            size = getattr(sizes, field.name)
            if size is None:
                continue
            for owner, name in PLACES[field.name]:
                patch.setattr(owner, name, size)
            if field.name == "block_rows":
                patch.setattr(block_encoder.cut_blocks, "__defaults__", (size,))
        yield
