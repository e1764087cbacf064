"""Count the events of each combination of values, with their times, from the codes of columns stored as codes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain, islice

import numpy as np
import pyarrow as pa

from esformat.core.leaves import BlockSlice, row_starts
from esformat.core.tallies import MOST_COMBINATIONS, MOST_COUNTED_COLUMNS, count_codes, extend_times
from esformat.format.arrays import Values, numbers_array
from esformat.format.data_block import I64
from esformat.format.schema import TIMESTAMP_TYPE
from esformat.read.ask.bounds import UNBOUNDED
from esformat.read.blocks.reader import Reader
from esformat.read.decode.block_group import BlockGroup
from esformat.read.scan import THREADS
from esformat.read.selection import select

GROUP_BLOCKS = 72
"""Data blocks that are read and counted together."""

FEW_GROUPS = 16
"""Fewer groups than this are counted one after the other: threads would wait for the GIL most of the time."""

FEW_ROWS = 1 << 14
"""A file without codes and with no more events is returned event by event: with few events, writers create no codes."""

Counts = tuple[I64, I64, I64]
"""For each combination: its number of events, their earliest timestamp and their latest, µs (or the opposite extremes
of int64, if there are none or times are not wanted).
"""


_FIRST, _LAST = np.iinfo(np.int64).min, np.iinfo(np.int64).max


class NotCodedError(Exception):
    """Some values are not stored as codes, or there are too many of them."""


def tally(reader: Reader, names: Sequence[str], count_name: str, *, timed: bool) -> pa.Table | None:
    """The combinations of values of some columns, with their numbers of events in a column `count_name`.

    timed: with a column `timestamp`. A combination then has two rows: one for its latest event, and one for all others,
    with the timestamp of the earliest. In a small file without codes, every event is a combination. Returns None if
    the values of a column of a large file are not all stored as codes, if a column does not exist, or if there are more
    than MOST_COUNTED_COLUMNS.
    """
    if len(names) > MOST_COUNTED_COLUMNS or not all(name in reader.schema.positions for name in names):
        return None
    counted: dict[int, Counts] = {}
    try:
        with reader.named:
            for number, mine in _counted(reader, names, timed=timed):
                counted[number] = _joined(counted[number], mine) if number in counted else mine
            tables = [_table(reader, names, number, mine, count_name, timed=timed) for number, mine in counted.items()]
    except NotCodedError:
        return _rows(reader, names, count_name, timed=timed) if reader.statistics.events <= FEW_ROWS else None
    return pa.concat_tables([_schema(reader, names, count_name, timed=timed).empty_table(), *tables])


def _rows(reader: Reader, names: Sequence[str], count_name: str, *, timed: bool) -> pa.Table:
    """Every event as a row with count 1."""
    scan = select(reader, UNBOUNDED, [*names, "timestamp"] if timed else names)
    rows = pa.Table.from_batches(scan.batches(), schema=scan.schema)
    return rows.append_column(pa.field(count_name, pa.int64()), pa.array(np.ones(len(rows), np.int64)))


def _schema(reader: Reader, names: Sequence[str], count_name: str, *, timed: bool) -> pa.Schema:
    columns = reader.schema.select([*names, "timestamp"] if timed else list(names))
    return columns.append(pa.field(count_name, pa.int64()))


def _counted(reader: Reader, names: Sequence[str], *, timed: bool) -> Iterator[tuple[int, Counts]]:
    """Counts of groups of blocks, each with the number of the dictionary that its codes refer to."""
    known: dict[int, Counts] = {}  # by dictionary: the counts of a group, with the extreme times of those before it
    chunks = reader.schema.chunks(names)

    def read(parts: list[BlockSlice]) -> list[tuple[int, Counts]]:
        blocks = BlockGroup(reader, parts)
        blocks.chunks = chunks
        if len(parts) > 1 and len({block.dictionary for block in blocks.blocks}) > 1:
            return [found for part in parts for found in read([part])]
        number = blocks.blocks[0].dictionary
        known[number] = found = _counts(reader, blocks, names, parts if timed else (), known.get(number))
        return [(number, found)]

    groups = _groups(reader)
    few = list(islice(groups, FEW_GROUPS))
    if len(few) < FEW_GROUPS:
        yield from chain.from_iterable(map(read, few))
        return
    yield from read(few.pop(0))  # first: it spares most others from decoding times
    with ThreadPoolExecutor(THREADS, thread_name_prefix="esformat-tally") as pool:
        try:
            for found in pool.map(read, chain(few, groups)):
                yield from found
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _groups(reader: Reader) -> Iterator[list[BlockSlice]]:
    scan = select(reader, UNBOUNDED, ["timestamp"])
    index_matches = scan._match_indexes()
    group: list[BlockSlice] = []
    for part in scan._slices(index_matches):
        group.append(part)
        if len(group) == GROUP_BLOCKS:
            yield group
            group = []
    if group:
        yield group


def _dictionaries(reader: Reader, names: Sequence[str], number: int) -> list[Values]:
    contexts = reader.contexts(number)
    found = [contexts[reader.schema.positions[name]].values for name in names]
    known = [values for values in found if values is not None]
    if len(known) < len(found) or math.prod(map(len, known)) > MOST_COMBINATIONS:
        raise NotCodedError
    return known


def _counts(
    reader: Reader, blocks: BlockGroup, names: Sequence[str], timed: Sequence[BlockSlice], before: Counts | None
) -> Counts:
    """Counts of a group of blocks.

    timed: its slices if times are wanted. They are read only of blocks whose smallest or largest time is beyond those
    in `before` of a combination that the block has.
    """
    dictionaries = _dictionaries(reader, names, blocks.blocks[0].dictionary)
    codes = []
    for name in names:
        found = blocks.codes(reader.schema.positions[name])
        if found is None:
            raise NotCodedError
        codes.append(found)
    sizes = list(map(len, dictionaries))
    combinations = math.prod(sizes)
    counts = np.zeros(combinations, np.int64)
    lows = np.full(combinations, _LAST) if before is None else before[1].copy()
    highs = np.full(combinations, _FIRST) if before is None else before[2].copy()
    if not timed:
        count_codes(blocks.row_count, codes, sizes, counts)
        return counts, lows, highs
    rows, starts = row_starts(timed)
    extremes = np.array([(part.min_timestamp, part.max_timestamp) for part in timed]).T.copy()
    beyond = count_codes(blocks.row_count, codes, sizes, counts, (starts, *extremes), lows, highs)
    if beyond:
        if len(beyond) < len(blocks):
            spans = [slice(starts[block], starts[block] + rows[block]) for block in beyond]
            codes = [np.concatenate([each[span] for span in spans]) for each in codes]
        others = BlockGroup(reader, [timed[block] for block in beyond])
        others.chunks = reader.schema.chunks(["timestamp"])
        extend_times(codes, sizes, others.timestamps(), lows, highs)
    return counts, lows, highs


def _joined(one: Counts, other: Counts) -> Counts:
    """Add two counts."""
    return one[0] + other[0], np.minimum(one[1], other[1]), np.maximum(one[2], other[2])


def _table(
    reader: Reader, names: Sequence[str], number: int, found: Counts, count_name: str, *, timed: bool
) -> pa.Table:
    """The table of combinations that events have, for one dictionary."""
    counts, lows, highs = found
    present = counts.nonzero()[0]
    counts = counts[present]
    if timed:
        several = np.flatnonzero(counts > 1)
        times = np.concatenate([highs[present], lows[present[several]]])
        present = np.concatenate([present, present[several]])
        counts = np.concatenate([np.ones(len(counts), np.int64), counts[several] - 1])
    columns = []
    rest = present
    for values in reversed(_dictionaries(reader, names, number)):
        rest, codes = np.divmod(rest, len(values))
        columns.append(values.take(codes))
    columns.reverse()
    if timed:
        columns.append(numbers_array(times, TIMESTAMP_TYPE))
    schema = _schema(reader, names, count_name, timed=timed)
    return pa.Table.from_arrays([*columns, pa.array(counts)], schema=schema)
