"""Arrow streams over a network: encoded whole, decoded piece by piece, refused if truncated.

pyarrow's stream reader blocks on a file, which an event loop must not do, and takes the end of the file for the end of
the stream. Here bytes are passed in as they arrive, and `finish` checks that the end of the stream was among them.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

import pyarrow as pa

from aggregator.client.http.errors import TruncatedAnswerError

MEDIA_TYPE = "application/vnd.apache.arrow.stream"
_CONTINUES = 0xFFFFFFFF  # begins each message since version 0.15 of the format
_HEAD = struct.Struct("<Ii")  # the continuation marker, then the length of the metadata; 0 ends the stream
_MAX_METADATA = 64 << 20  # about a schema of a hundred thousand columns
_MAX_BODY = (2 << 30) - 1
_BODY_LENGTH_SLOT = 10  # in the metadata's vtable: after two lengths and the slots version, header type, header


def encode(table: pa.Table | pa.RecordBatch) -> pa.Buffer:
    """Encode a table as a complete Arrow stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write(table)
    return sink.getvalue()


class StreamDecoder:
    """Decodes pieces of an Arrow stream into record batches.

    Buffers at most one message, and allocates nothing for bytes that have not arrived.
    """

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._held = 0
        self._wanted = _HEAD.size
        self._metadata = 0  # length of the message's metadata, once known
        self._body = -1  # length of its body, once known
        self._ended = False
        self.schema: pa.Schema | None = None

    def feed(self, piece: bytes) -> Iterator[pa.RecordBatch]:
        """Yield the batches that are complete with this piece. Raises TruncatedAnswerError for invalid streams."""
        if self._ended and piece:
            raise TruncatedAnswerError("bytes follow the end of the Arrow stream")
        self._pieces.append(piece)
        self._held += len(piece)
        if self._held < self._wanted:
            return
        held = memoryview(b"".join(self._pieces))
        while not self._ended and len(held) >= self._wanted:
            if self._body >= 0:
                batch = self._read(held[: self._wanted])
                held = held[self._wanted :]
                self._wanted, self._metadata, self._body = _HEAD.size, 0, -1
                if batch is not None:
                    yield batch
            elif self._metadata:
                self._body = _body_length(held[_HEAD.size : self._wanted])
                self._wanted += self._body
            else:
                self._metadata = self._begin(held)
                self._wanted += self._metadata
        if self._ended and len(held) > _HEAD.size:
            raise TruncatedAnswerError("bytes follow the end of the Arrow stream")
        self._pieces, self._held = [bytes(held)], len(held)

    def finish(self) -> None:
        """Check that the stream is complete. Raises TruncatedAnswerError if its end did not arrive."""
        if not self._ended:
            raise TruncatedAnswerError("the answer ended early", hint="try again")

    def _begin(self, held: memoryview) -> int:
        marker, length = _HEAD.unpack_from(held)
        if marker != _CONTINUES or not 0 <= length <= _MAX_METADATA or (not length and self.schema is None):
            raise TruncatedAnswerError("the answer is not an Arrow stream", hint="is this the server's address?")
        self._ended = length == 0
        return int(length)

    def _read(self, message: memoryview) -> pa.RecordBatch | None:
        try:
            if self.schema is None:
                self.schema = pa.ipc.read_schema(pa.py_buffer(message))
                return None
            batch = pa.ipc.read_record_batch(pa.py_buffer(message), self.schema)
            batch.validate(full=True)
        except (pa.ArrowException, OSError) as error:
            raise TruncatedAnswerError(f"the answer has a broken Arrow message: {error}") from None
        return batch


def _body_length(metadata: memoryview) -> int:
    """Return the field bodyLength of the flatbuffer `Message`. Raises TruncatedAnswerError."""
    try:
        (root,) = struct.unpack_from("<I", metadata)
        (back,) = struct.unpack_from("<i", metadata, root)
        table = root - back
        (size,) = struct.unpack_from("<H", metadata, table)
        slot = struct.unpack_from("<H", metadata, table + _BODY_LENGTH_SLOT)[0] if size > _BODY_LENGTH_SLOT else 0
        length = struct.unpack_from("<q", metadata, root + slot)[0] if slot else 0
    except struct.error:
        length = -1
    if not 0 <= length <= _MAX_BODY:
        raise TruncatedAnswerError("the answer has a broken Arrow message")
    return int(length)
