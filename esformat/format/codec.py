"""Compression by codec id, with output sizes bounded before memory is allocated.

zstd frames always carry their content size, so every size is known and checked before decompression. A `Compressor` or
`Decompressor` belongs to one thread.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import zstandard

from esformat.errors import CorruptSegmentError, UnsupportedVersionError, UsageError

MAX_WINDOW_LOG = 23
MAX_WINDOW_BYTES = 1 << MAX_WINDOW_LOG
"""Largest zstd window that a reader accepts, because a streaming decompressor may allocate that much."""
_SINGLE_SEGMENT = 0x20  # bit of a zstd frame's descriptor, its fifth byte: the frame content itself is the window


class Codec(enum.IntEnum):
    """How frames are compressed. The numbers are part of the format."""

    NONE = 0
    ZSTD = 1
    LZ4 = 2


CODEC_NAMES = {"none": Codec.NONE, "zstd": Codec.ZSTD, "lz4": Codec.LZ4}
DEFAULT_LEVEL = {Codec.NONE: 0, Codec.ZSTD: 1, Codec.LZ4: 0}


def codec_from_name(name: str) -> Codec:
    """The codec called `name`. Raises UsageError for an unknown name.

    Raises UnsupportedVersionError for lz4 if its package is missing.
    """
    try:
        codec = CODEC_NAMES[name]
    except (KeyError, TypeError):
        raise UsageError(f"unknown codec {name!r}", hint=f"choose one of {', '.join(CODEC_NAMES)}") from None
    if codec is Codec.LZ4:
        _lz4()
    return codec


def _lz4() -> Any:
    try:
        import lz4.block
    except ImportError:
        raise UnsupportedVersionError("codec lz4 is not installed", hint='pip install "esformat[lz4]"') from None
    return lz4.block


class Compressor(Protocol):
    """Compresses frames with one codec."""

    codec: Codec

    def compress(self, data: bytes | memoryview) -> bytes:
        """Compress one frame."""
        ...

    def compress_many(self, data: memoryview, offsets: npt.NDArray[np.int64]) -> Sequence[Any]:
        """Compress data[offsets[i]:offsets[i+1]] for each i into bytes-like objects; empty input becomes b""."""
        ...


class _NoCompressor:
    codec = Codec.NONE

    def compress(self, data: bytes | memoryview) -> bytes:
        return bytes(data)

    def compress_many(self, data: memoryview, offsets: npt.NDArray[np.int64]) -> Sequence[Any]:
        return [bytes(data[a:b]) for a, b in pairwise(offsets.tolist())]


class _ZstdCompressor:
    codec = Codec.ZSTD

    def __init__(self, level: int, dictionary: zstandard.ZstdCompressionDict | None) -> None:
        window_log = min(zstandard.ZstdCompressionParameters.from_level(level).window_log, MAX_WINDOW_LOG)
        params = zstandard.ZstdCompressionParameters.from_level(
            level, window_log=window_log, write_content_size=True, write_checksum=False, write_dict_id=False
        )
        self._zstd = zstandard.ZstdCompressor(compression_params=params, dict_data=dictionary)

    def compress(self, data: bytes | memoryview) -> bytes:
        return self._zstd.compress(data)

    def compress_many(self, data: memoryview, offsets: npt.NDArray[np.int64]) -> Sequence[Any]:
        segments = np.empty((len(offsets) - 1, 2), dtype=np.uint64)
        segments[:, 0] = offsets[:-1]
        segments[:, 1] = np.diff(offsets)
        if len(segments) < 2 or not segments[:, 1].all():  # the batch call rejects empty lists and empty frames
            return [self._zstd.compress(data[a : a + n]) if n else b"" for a, n in segments.tolist()]
        source = zstandard.BufferWithSegments(data, segments.tobytes())
        frames: Any = self._zstd.multi_compress_to_buffer(
            source, threads=1
        )  # indexable, though not typed as a sequence
        return frames  # type: ignore[no-any-return]


class _Lz4Compressor:
    codec = Codec.LZ4

    def __init__(self) -> None:
        self._block = _lz4()

    def compress(self, data: bytes | memoryview) -> bytes:
        return self._block.compress(data, store_size=False)  # type: ignore[no-any-return]

    def compress_many(self, data: memoryview, offsets: npt.NDArray[np.int64]) -> Sequence[Any]:
        return [self.compress(data[a:b]) if a < b else b"" for a, b in pairwise(offsets.tolist())]


def make_compressor(
    codec: Codec, level: int | None = None, dictionary: zstandard.ZstdCompressionDict | None = None
) -> Compressor:
    """Return a compressor for `codec`. `level` None selects the codec's default; a dictionary works with zstd only."""
    if codec is Codec.NONE:
        return _NoCompressor()
    if codec is Codec.LZ4:
        return _Lz4Compressor()
    return _ZstdCompressor(DEFAULT_LEVEL[codec] if level is None else level, dictionary)


class Decompressor:
    """Decompresses frames of any codec, with an optional zstd dictionary. Belongs to one thread."""

    __slots__ = ("_made",)

    def __init__(self, dictionary: zstandard.ZstdCompressionDict | None = None) -> None:
        """Raises CorruptSegmentError if zstd cannot use the dictionary."""
        self._made = None if dictionary is None else _zstd_decompressor(dictionary)

    @property
    def _zstd(self) -> zstandard.ZstdDecompressor:
        """The zstd decompressor, created on first use: it takes 150 KB, and many threads of engines never need it."""
        if self._made is None:
            self._made = _zstd_decompressor(None)
        return self._made

    def decompress(self, codec: int, frame: bytes | memoryview, size: int) -> bytes:
        """Decompress one frame of `size` uncompressed bytes. Raises CorruptSegmentError if it has another size."""
        if not size or codec == 0:
            if len(frame) != size:
                raise CorruptSegmentError(f"a stored frame has {len(frame)} bytes, expected {size}")
            return bytes(frame)
        if codec == 1:
            try:
                if zstandard.frame_content_size(frame) != size:
                    raise CorruptSegmentError(f"a zstd frame does not hold the {size} bytes that it should")
                return self._zstd.decompress(frame)
            except zstandard.ZstdError as error:
                raise CorruptSegmentError(f"a zstd frame does not decompress: {error}") from None
        if codec == 2:
            return _decompress_lz4(frame, size)
        raise UnsupportedVersionError(f"unknown codec {codec}", hint="read the file with a newer esformat")

    def check(self, codec: int, frame: bytes | memoryview, size: int) -> None:
        """Check one frame of `size` uncompressed bytes against all rules of the format; reading enforces only some of
        them.

        Raises CorruptSegmentError, UnsupportedVersionError.
        """
        self.decompress(codec, frame, size)
        if codec != Codec.ZSTD or not size:
            return
        try:
            facts = zstandard.get_frame_parameters(frame)
            self._zstd.decompress(frame, allow_extra_data=False)
        except zstandard.ZstdError as error:
            raise CorruptSegmentError(f"a zstd frame does not decompress: {error}") from None
        if facts.has_checksum or facts.dict_id:
            raise CorruptSegmentError("a zstd frame has a checksum or a dictionary id")
        if facts.window_size > MAX_WINDOW_BYTES and not frame[4] & _SINGLE_SEGMENT:
            raise CorruptSegmentError(f"a zstd frame needs a window of {facts.window_size} bytes")

    def decompress_run(
        self, codec: int, frames: memoryview, lengths: Sequence[int], sizes: Sequence[int], out: memoryview
    ) -> None:
        """Decompress adjacent frames, stored in `lengths` bytes each, into `out`, whose size is the sum of `sizes`."""
        if codec == 1 and len(out):
            self._decompress_zstd_run(frames, out)
            return
        out = out.cast("B")  # Arrow's buffers have signed bytes; memoryviews are assigned only between equal formats
        if codec == 0 or not len(out):
            if len(frames) != len(out):
                raise CorruptSegmentError(f"stored frames have {len(frames)} bytes, expected {len(out)}")
            out[:] = frames
            return
        at = to = 0
        for length, size in zip(lengths, sizes, strict=True):
            out[to : to + size] = self.decompress(codec, frames[at : at + length], size)
            at, to = at + length, to + size

    def _decompress_zstd_run(self, frames: memoryview, out: memoryview) -> None:
        """Decompress all frames with one call; a frame that fits into `out` is decoded into it without a window."""
        try:
            reader = self._zstd.stream_reader(frames, read_across_frames=True, read_size=max(1, len(frames)))
            filled = reader.readinto(out)
            if filled != len(out) or reader.read(1):
                raise CorruptSegmentError(f"zstd frames hold {filled} bytes or more, expected {len(out)}")
        except zstandard.ZstdError as error:
            raise CorruptSegmentError(f"a zstd frame does not decompress: {error}") from None


def _zstd_decompressor(dictionary: zstandard.ZstdCompressionDict | None) -> zstandard.ZstdDecompressor:
    try:
        return zstandard.ZstdDecompressor(max_window_size=MAX_WINDOW_BYTES, dict_data=dictionary)
    except zstandard.ZstdError as error:
        raise CorruptSegmentError(f"the compression dictionary is broken: {error}") from None


def _decompress_lz4(frame: bytes | memoryview, size: int) -> bytes:
    block = _lz4()
    try:
        data: bytes = block.decompress(frame, uncompressed_size=size)
    except block.LZ4BlockError as error:
        raise CorruptSegmentError(f"an lz4 frame does not decompress: {error}") from None
    if len(data) != size:
        raise CorruptSegmentError(f"an lz4 frame holds {len(data)} bytes, expected {size}")
    return data


def train_dictionary(samples: Sequence[bytes], size: int) -> zstandard.ZstdCompressionDict | None:
    """Train a zstd dictionary of at most `size` bytes on `samples`; None if zstd finds too little to learn.

    COVER parameters (k=1024, d=8) measured best on JSON payloads: docs/decisions/0004-codec-and-dictionary.md. Its 2^18
    counters fit into a processor's cache: 2^20 take three times as long and compress no better.
    """
    try:
        return zstandard.train_dictionary(size, list(samples), k=1024, d=8, f=18, accel=4)
    except zstandard.ZstdError:
        return None


def load_dictionary(data: bytes) -> zstandard.ZstdCompressionDict:
    """The zstd dictionary stored as `data`. Invalid data is detected only when a `Decompressor` is created with it."""
    return zstandard.ZstdCompressionDict(data, dict_type=zstandard.DICT_TYPE_FULLDICT)
