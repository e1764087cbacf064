"""Every codec restores its data; frames with a wrong size cost nothing."""

from __future__ import annotations

import sys
import tracemalloc

import numpy as np
import pytest
import zstandard
from damage import assert_refused_or_read
from effort import examples
from hypothesis import given
from hypothesis import strategies as st

from esformat.core.bytes_nodes import LAST_CODEC
from esformat.errors import CorruptSegmentError, UnsupportedVersionError, UsageError
from esformat.format.codec import (
    Codec,
    Decompressor,
    codec_from_name,
    load_dictionary,
    make_compressor,
    train_dictionary,
)

CODECS = list(Codec)
TEXTS = [b'{"url": "/products/%d", "agent": "Mozilla/5.0 (X11; Linux x86_64)"}' % n for n in range(4000)]


@pytest.fixture(scope="module")
def dictionary():
    """A zstd dictionary trained on TEXTS."""
    trained = train_dictionary(TEXTS, 4096)
    assert trained is not None
    return trained.as_bytes()


@pytest.mark.parametrize("codec", CODECS)
@examples(40)
@given(pieces=st.lists(st.binary(max_size=60) | st.binary(max_size=4).map(lambda b: b * 500), max_size=8))
def test_frames_come_back(codec, pieces):
    """Frames are restored, one by one and as a run into one buffer, including empty ones."""
    compressor = make_compressor(codec)
    assert compressor.codec is codec
    data = b"".join(pieces)
    edges = np.concatenate([[0], np.cumsum([len(piece) for piece in pieces])]).astype(np.int64)
    frames = [bytes(frame) for frame in compressor.compress_many(memoryview(data), edges)]
    assert frames == [compressor.compress(piece) if piece else b"" for piece in pieces]
    reader = Decompressor()
    sizes = [len(piece) for piece in pieces]
    assert [reader.decompress(codec, frame, size) for frame, size in zip(frames, sizes, strict=True)] == pieces
    out = bytearray(len(data))
    reader.decompress_run(codec, memoryview(b"".join(frames)), [len(frame) for frame in frames], sizes, memoryview(out))
    assert out == data


def test_dictionary_makes_small_frames_smaller(dictionary):
    """With a dictionary a frame is smaller, and only that dictionary can decompress it."""
    zstd = load_dictionary(dictionary)
    frame = make_compressor(Codec.ZSTD, None, zstd).compress(TEXTS[7])
    assert len(frame) < len(make_compressor(Codec.ZSTD).compress(TEXTS[7]))
    assert Decompressor(zstd).decompress(Codec.ZSTD, frame, len(TEXTS[7])) == TEXTS[7]
    with pytest.raises(CorruptSegmentError, match="zstd frame"):
        Decompressor().decompress(Codec.ZSTD, frame, len(TEXTS[7]))


def test_too_little_to_learn():
    """If there is too little data to train zstd, there is no dictionary and no error."""
    assert train_dictionary([b"a"], 4096) is None
    assert train_dictionary([], 4096) is None


def test_broken_dictionary():
    """Bytes that are not a zstd dictionary are refused as damage."""
    with pytest.raises(CorruptSegmentError, match="dictionary is broken"):
        Decompressor(load_dictionary(b"not a dictionary"))


def test_levels():
    """A higher level makes smaller frames."""
    rng = np.random.default_rng(1)
    data = b"".join(TEXTS[n] for n in rng.integers(0, 4000, 3000).tolist())
    assert len(make_compressor(Codec.ZSTD, 19).compress(data)) < len(make_compressor(Codec.ZSTD, -50).compress(data))
    assert make_compressor(Codec.ZSTD).compress(data) == make_compressor(Codec.ZSTD, 1).compress(data)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("wrong", [-1, 1, 1000])
def test_frames_of_another_size(codec, wrong):
    """A frame that is longer or shorter than expected is refused, alone and in a run."""
    frame = make_compressor(codec).compress(TEXTS[0])
    size = len(TEXTS[0]) + wrong
    with pytest.raises(CorruptSegmentError):
        Decompressor().decompress(codec, frame, size)
    with pytest.raises(CorruptSegmentError):
        Decompressor().decompress_run(codec, memoryview(frame), [len(frame)], [size], memoryview(bytearray(size)))


@pytest.mark.parametrize("codec", CODECS)
def test_damaged_frames(codec):
    """A frame that is cut or flipped is refused, or has other bytes of the same length."""
    frame = make_compressor(codec).compress(b"abcabcabcabc" * 3)

    def read(damaged: bytes) -> None:
        assert len(Decompressor().decompress(codec, damaged, 36)) == 36
        out = bytearray(36)
        Decompressor().decompress_run(codec, memoryview(damaged), [len(damaged)], [36], memoryview(out))

    assert_refused_or_read(frame, read)


def test_a_bomb_is_refused_before_it_is_unpacked():
    """A gigabyte of zeroes in 32 KiB, where 100 bytes are expected, is refused without using memory."""
    bomb = zstandard.ZstdCompressor().compress(bytes(1 << 30))
    tracemalloc.start()
    try:
        with pytest.raises(CorruptSegmentError):
            Decompressor().decompress(Codec.ZSTD, bomb, 100)
        with pytest.raises(CorruptSegmentError):
            Decompressor().decompress_run(Codec.ZSTD, memoryview(bomb), [len(bomb)], [100], memoryview(bytearray(100)))
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_a_frame_without_its_size():
    """A zstd frame without a content size is refused."""
    compressor = zstandard.ZstdCompressor(write_content_size=False)
    with pytest.raises(CorruptSegmentError):
        Decompressor().decompress(Codec.ZSTD, compressor.compress(b"abc"), 3)


def test_unknown_codec():
    """A codec of a newer writer is not reported as damage."""
    with pytest.raises(UnsupportedVersionError, match="unknown codec 9"):
        Decompressor().decompress(9, b"abc", 3)
    with pytest.raises(UnsupportedVersionError, match="unknown codec 9"):
        Decompressor().decompress_run(9, memoryview(b"abc"), [3], [3], memoryview(bytearray(3)))


@pytest.mark.parametrize("name", ["gzip", "ZSTD", "", None, 3, ["zstd"]])
def test_unknown_codec_names(name):
    """The error for an unknown codec lists the known ones."""
    with pytest.raises(UsageError, match=r"unknown codec.*choose one of none, zstd, lz4"):
        codec_from_name(name)


def test_codec_that_is_not_installed(monkeypatch):
    """Without its package, lz4 names the extra to install, for writing and reading."""
    frame = make_compressor(Codec.LZ4).compress(b"abc")
    monkeypatch.setitem(sys.modules, "lz4.block", None)
    with pytest.raises(UnsupportedVersionError, match=r'pip install "esformat\[lz4\]"'):
        codec_from_name("lz4")
    with pytest.raises(UnsupportedVersionError, match="not installed"):
        Decompressor().decompress(Codec.LZ4, frame, 3)


def test_the_core_knows_every_codec():
    """The last codec that the core knows is the last one that exists."""
    assert max(Codec) == LAST_CODEC
