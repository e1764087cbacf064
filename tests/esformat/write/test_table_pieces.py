"""Tables in slices: nothing is lost, and streams are read only on demand."""

from __future__ import annotations

import pandas as pd
import pyarrow as pa
import pytest
from effort import share_of
from small_pieces import Pieces, cut_small

from esformat.errors import InvalidEventError
from esformat.write.table_pieces import pieces_of

TABLE = pa.table({"a": range(1000), "b": [b"x" * (n % 50) for n in range(1000)]})
FORMS = {
    "table": lambda: TABLE,
    "batch": lambda: TABLE.to_batches()[0],
    "chunks": lambda: pa.concat_tables([TABLE.slice(0, 300), TABLE.slice(300)]),
    "stream": lambda: TABLE.to_reader(max_chunksize=7),
    "one large batch": lambda: TABLE.to_reader(),
    "pandas": lambda: pd.DataFrame({"a": range(1000), "b": TABLE["b"].to_pylist()}),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("piece_bytes", share_of([1, 100, 5000, 1 << 20], 2))
def test_pieces_are_the_table(form, piece_bytes):
    """Slices are in order, and no larger than allowed unless they have one row."""
    with cut_small(Pieces(group_rows=100)):
        pieces = list(pieces_of(FORMS[form](), piece_bytes))
    assert pa.concat_tables(pieces).combine_chunks().equals(TABLE.combine_chunks())
    assert all(piece.nbytes <= piece_bytes or len(piece) == 1 for piece in pieces)
    assert len(pieces) > 1 or piece_bytes == 1 << 20


@pytest.mark.parametrize(
    "empty", [TABLE.slice(0, 0), TABLE.slice(0, 0).to_reader(), pa.RecordBatch.from_pylist([], TABLE.schema)]
)
def test_nothing_is_one_piece(empty):
    """An empty table is one slice, with its schema."""
    (piece,) = pieces_of(empty, 100)
    assert piece.schema == TABLE.schema
    assert len(piece) == 0


def test_streams_are_not_read_ahead():
    """A batch of a stream is read when its slice is requested."""
    read = []

    def batches():
        for number in range(10):
            read.append(number)
            yield TABLE.to_batches()[0]

    pieces = pieces_of(pa.RecordBatchReader.from_batches(TABLE.schema, batches()), TABLE.nbytes)
    assert read == []
    next(pieces)
    assert read == [0]
    next(pieces)
    assert read == [0, 1]


def test_shared_dictionaries_are_not_cut_to_nothing():
    """Rows that share a large dictionary are not split further, which would save nothing."""
    table = pa.table({"a": pa.array(["x" * 1000 + str(n) for n in range(100)]).dictionary_encode()})
    assert len(list(pieces_of(table, 1000))) == 1


def test_no_table():
    """Other objects are refused with the accepted ones."""
    with pytest.raises(InvalidEventError, match="cannot read events from int; give a pyarrow table"):
        next(pieces_of(5, 100))
