"""Export of a segment to an ORC file that restores every value."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.orc

from esformat.errors import InvalidEventError
from esformat.read.segment import open_segment

_HINT = "convert to Parquet, or allow the loss"


def write_orc(path: str, target: str, *, allow_loss: bool) -> int:
    """Write the events of the segment at `path` to an ORC file; return their number.

    Raises InvalidEventError for a column whose values ORC cannot restore, unless `allow_loss`.
    """
    with open_segment(path, cache_bytes=0) as segment:
        schema = segment.schema
        try:
            with pyarrow.orc.ORCWriter(target, compression="zstd") as writer:
                for batch in segment.scan().batches():
                    writer.write(pa.Table.from_batches([batch]))
                if not segment.num_events:
                    writer.write(schema.empty_table())
        except pa.ArrowException as error:
            raise InvalidEventError(f"orc cannot hold a column: {error}", hint=_HINT) from None
        if not allow_loss:
            try:
                lost = _lost(segment.scan().batches(), target)
            except pa.ArrowException as error:
                lost = str(error)
            if lost:
                raise InvalidEventError(f"orc would lose values: {lost}", hint=_HINT)
        return int(segment.num_events)


def _lost(batches: Iterator[pa.RecordBatch], target: str) -> str:
    """Describe the first column that the file does not restore; "" if it restores all."""
    file = pyarrow.orc.ORCFile(target)
    waiting: list[pa.RecordBatch] = []
    for place in range(file.nstripes):
        stripe = file.read_stripe(place)
        while sum(map(len, waiting)) < len(stripe):
            waiting.append(next(batches))
        table = pa.Table.from_batches(waiting)
        waiting = table.slice(len(stripe)).to_batches()
        for name in table.schema.names:
            lost = _difference(table[name].slice(0, len(stripe)).combine_chunks(), stripe.column(name))
            if lost is not None:
                return f"column {name!r}{lost}"
    return ""


def _difference(column: pa.Array, again: pa.Array) -> str | None:
    try:
        return None if again.cast(column.type).equals(column) else ""
    except pa.ArrowException as error:
        return f": {error}"
