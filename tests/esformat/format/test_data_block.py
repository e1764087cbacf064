"""Data blocks: runs, timestamps and columns are read from a block alone; damage is refused."""

from __future__ import annotations

import struct

import numpy as np
import pyarrow as pa
import pytest
from damage import assert_refused_or_read
from data_blocks import resealed
from effort import examples
from event_strategies import HIGHEST, LOWEST
from hypothesis import given
from hypothesis import strategies as st

from esformat.errors import CorruptSegmentError
from esformat.format.codec import Codec, Decompressor
from esformat.format.data_block import DataBlock
from esformat.format.frame import decode_block
from esformat.format.layout import BlockKind
from esformat.format.node import DecodeContext
from esformat.format.schema import EventSchema, Field
from esformat.write.block_encoder import BlockEncoder, BlockFormat, SortedRows

PLAIN = Decompressor()
READ = DecodeContext(PLAIN, PLAIN)
SCHEMA = EventSchema((Field("data", pa.binary()), Field("n", pa.int64())))

times_of_runs = st.lists(
    st.lists(
        st.one_of(st.integers(-5, 5), st.integers(LOWEST, HIGHEST), st.sampled_from([LOWEST, HIGHEST])),
        min_size=1,
        max_size=8,
    ),
    min_size=1,
    max_size=6,
)


def encode(runs: list[list[int]], bounds: list[int], codec: Codec = Codec.ZSTD, raw: int = 0) -> list[bytes]:
    """Blocks of runs with these ascending timestamps; the k-th run has space k."""
    times = np.array([time for run in runs for time in run], np.int64)
    numbers = pa.array(range(len(times)), pa.int64())
    rows = SortedRows(
        timestamps=times,
        run_starts=np.cumsum([0, *map(len, runs[:-1])]),
        spaces=pa.array([b"s%d" % k for k in range(len(runs))]),
        groupings=pa.array([b""] * len(runs)),
        columns=[pa.array([b"%d" % n for n in range(len(times))]), numbers],
        continues=False,
    )
    form = BlockFormat(SCHEMA, codec, None, {}, {-1: raw, 1: raw})
    return [block.stored for block in BlockEncoder(form).encode(rows, bounds)]


def opened(stored: bytes) -> DataBlock:
    """A stored data block as a reader opens it."""
    return DataBlock(decode_block(stored, BlockKind.DATA, None, 64), len(SCHEMA.fields))


@examples(120)
@given(times_of_runs.map(lambda runs: [sorted(run) for run in runs]), st.data())
def test_a_block_alone_tells_its_events(runs, data):
    """Runs, timestamps (any int64, however far apart) and columns are read; a run may continue in the next block."""
    total = sum(map(len, runs))
    bounds = sorted({0, total, *data.draw(st.lists(st.integers(0, total), max_size=4))})
    facts = [(b"s%d" % k, time) for k, run in enumerate(runs) for time in run]
    stored = encode(runs, bounds, data.draw(st.sampled_from(Codec)), data.draw(st.integers(0, 8)))
    found = []
    for block, first, last in zip(map(opened, stored), bounds, bounds[1:], strict=False):
        assert block.row_count == last - first
        keys = block.runs(READ)
        start = 0
        for space, count in zip(keys.spaces, keys.rows.tolist(), strict=True):
            times = list(block.run_times(start, start, start + count, PLAIN))
            low = data.draw(st.integers(0, count - 1))
            assert list(block.run_times(start, start + low, start + count, PLAIN)) == times[low:]
            with pytest.raises(ValueError, match="does not have the requested rows"):
                block.run_times(start, start + low, block.row_count + 1, PLAIN)
            found += [(space, time) for time in times]
            start += count
        assert block.column(0, pa.binary(), READ).to_pylist() == [b"%d" % n for n in range(first, last)]
        assert block.column(1, pa.int64(), READ).to_pylist() == list(range(first, last))
    assert found == facts


RUNS = [[5, 6, 300], [-70000], [2, 2]]


@pytest.mark.parametrize("codec", Codec)
def test_damaged_blocks(codec):
    """Damage beneath a valid checksum is refused or yields other values, never another error."""
    (stored,) = encode(RUNS, [0, 6], codec)
    whole = decode_block(stored, BlockKind.DATA, None, 0)
    head = len(whole.body)

    def read(damaged: bytes) -> None:
        block = opened(resealed(damaged[:head], damaged[head:], 6))
        keys = block.runs(READ)
        assert sum(keys.rows.tolist()) == 6
        block.run_times(0, 0, 3, PLAIN)
        block.run_times(3, 3, 4, PLAIN)
        block.column(0, pa.binary(), READ).validate(full=True)
        block.column(1, pa.int64(), READ).validate(full=True)

    assert_refused_or_read(bytes(whole.body) + bytes(whole.chunks), read)


def wrong(head: bytes, count: int = 6) -> bytes:
    """A block with this head and valid checksums."""
    return resealed(head, CHUNKS, count)


_GOOD = decode_block(encode(RUNS, [0, 6])[0], BlockKind.DATA, None, 0)
GOOD, CHUNKS = bytes(_GOOD.body), bytes(_GOOD.chunks)
HEADS = [
    ("no head", b"", 6, "cut short"),
    ("fewer chunks than columns", GOOD[:12] + struct.pack("<I", 3) + GOOD[16:-16], 6, "gaps, or overlap"),
    ("a chunk longer than the body", GOOD[:20] + struct.pack("<I", 2**32 - 1) + GOOD[24:], 6, "does not fit its body"),
    ("no rows", GOOD, 0, "does not fit its body"),
    ("more rows than a block can have", GOOD, 65_537, "does not fit its body"),
]


@pytest.mark.parametrize(("body", "count", "message"), [c[1:] for c in HEADS], ids=[c[0] for c in HEADS])
def test_heads_that_no_writer_makes(body, count, message):
    """A head that no writer makes is refused; the error names the fault and the block's position."""
    with pytest.raises(CorruptSegmentError, match=message):
        opened(wrong(body, count))


@pytest.mark.parametrize(("runs", "count"), [(0, 6), (7, 6), (2, 6), (3, 5)])
def test_runs_that_do_not_fit_the_rows(runs, count):
    """Runs that do not fit the rows are refused: none, too many, too few, or those of other rows."""
    body = GOOD[:8] + struct.pack("<I", runs) + GOOD[12:]
    with pytest.raises(CorruptSegmentError):
        opened(wrong(body, count)).runs(READ)
