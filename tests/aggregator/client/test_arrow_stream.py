"""Arrow streams decoded in pieces: whole, truncated and hostile ones."""

from __future__ import annotations

import random
import struct

import pyarrow as pa
import pytest
from effort import share_of

from aggregator.client import TruncatedAnswerError
from aggregator.client.http.arrow_stream import StreamDecoder, encode

TABLE = pa.table(
    {
        "space": ["a", "b", None, "ünï"] * 50,
        "n": range(200),
        "data": pa.array([b"x" * (n % 90) for n in range(200)], pa.binary()),
        "fields": pa.array([[("k", "v")] * (n % 3) for n in range(200)], pa.map_(pa.string(), pa.string())),
    }
)


def several(table=TABLE, rows=70):
    """The table as a stream of several batches."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=rows)
    return sink.getvalue().to_pybytes()


def decode(stream, sizes):
    """Decode a stream that arrives in pieces of these sizes, which repeat."""
    decoder, batches, at = StreamDecoder(), [], 0
    while at < len(stream):
        for size in sizes:
            batches += decoder.feed(stream[at : at + size])
            at += size
    decoder.finish()
    return pa.Table.from_batches(batches, schema=decoder.schema)


@pytest.mark.parametrize("sizes", [(1,), (7, 8, 9), (10_000_000,), (1000, 0, 3)])
def test_any_pieces(sizes):
    """The table is the same however the stream is cut into pieces."""
    assert decode(several(), sizes).equals(TABLE)
    assert decode(encode(TABLE).to_pybytes(), sizes).equals(TABLE)


def test_no_batches():
    """An empty answer has a schema."""
    found = decode(encode(TABLE.slice(0, 0)).to_pybytes(), (9,))
    assert (found.num_rows, found.schema) == (0, TABLE.schema)


def test_cut_anywhere():
    """A stream without its end is an error wherever it is cut, also between two messages."""
    stream = several()
    for length in share_of(range(len(stream)), 3):
        decoder = StreamDecoder()
        list(decoder.feed(stream[:length]))
        with pytest.raises(TruncatedAnswerError, match="ended early"):
            decoder.finish()


def test_bytes_behind_the_end():
    """Bytes after the end of the stream are an error."""
    with pytest.raises(TruncatedAnswerError, match="follow"):
        list(StreamDecoder().feed(several() + b"x"))
    decoder = StreamDecoder()
    list(decoder.feed(several()))
    with pytest.raises(TruncatedAnswerError, match="follow"):
        list(decoder.feed(b"x"))


@pytest.mark.parametrize(
    "stream", [b'{"records": []}', b"<!doctype html>", struct.pack("<Ii", 0xFFFFFFFF, 1 << 30), b"\xff" * 8, b"\0" * 64]
)
def test_no_arrow(stream):
    """Data that is not an Arrow stream is refused by its first bytes; a length is accepted only within bounds."""
    with pytest.raises(TruncatedAnswerError, match="not an Arrow stream"):
        list(StreamDecoder().feed(stream))


def test_flipped_bytes():
    """A flipped byte causes an error or another table; never a crash or an unexpected exception."""
    stream = several()
    chance = random.Random(5)
    errors = 0
    for _ in range(1500):
        broken = bytearray(stream)
        broken[chance.randrange(len(broken))] ^= 1 << chance.randrange(8)
        try:
            decode(bytes(broken), (4096,))
        except TruncatedAnswerError:
            errors += 1
    assert errors > 100


def test_dictionaries_are_refused():
    """Dictionaries, which no server sends, are refused with an error."""
    coded = pa.table({"a": pa.array(["x", "y"]).dictionary_encode()})
    with pytest.raises(TruncatedAnswerError, match="broken"):
        decode(encode(coded).to_pybytes(), (100,))
