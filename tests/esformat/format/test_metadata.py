"""The metadata block: schema, properties and statistics are read back; broken JSON is refused as damage."""

# ruff: noqa: E501 - tables read better in one line per case

from __future__ import annotations

import json
import math

import pyarrow as pa
import pytest
from damage import assert_refused_or_read

from esformat.errors import CorruptSegmentError, UsageError
from esformat.format.frame import Block, decode_block, encode_block
from esformat.format.layout import BlockKind
from esformat.format.metadata import Metadata, Statistics, check_properties
from esformat.format.schema import EventSchema, Field

SCHEMA = EventSchema((Field("data", pa.binary(), nullable=False), Field("type", pa.string(), indexed=True)))
STATISTICS = Statistics(2, 1, 1, 1, -5, 2**62, {"type": {"values": 2, "events": 2}})


def block(document: object) -> Block:
    """A metadata block with a document, or with these bytes."""
    body = document if isinstance(document, bytes) else json.dumps(document).encode()
    return decode_block(encode_block(BlockKind.METADATA, body), BlockKind.METADATA, None, 16)


def document(metadata: Metadata) -> dict:
    """The document in the block of some metadata."""
    return json.loads(bytes(decode_block(metadata.encode(), BlockKind.METADATA, None, 16).body))


@pytest.mark.parametrize(
    "metadata",
    [
        Metadata(SCHEMA, "zstd", None, {}, STATISTICS),
        Metadata(SCHEMA, "zstd", -3, {"source": "shop", "ключ": "\0 значение"}),
        Metadata(SCHEMA, "zstd", 3, {}, STATISTICS, 1 << 16),
        Metadata(EventSchema((), binary_keys=True), "none", None, {}, Statistics(0, 0, 0, 0, None, None)),
    ],
)
def test_metadata_comes_back(metadata):
    """Metadata is read back, with and without statistics."""
    assert Metadata.decode(decode_block(metadata.encode(), BlockKind.METADATA, None, 16)) == metadata


def test_names_of_newer_writers_are_skipped():
    """Names from newer writers are ignored at every level except within types."""
    stored = document(Metadata(SCHEMA, "zstd", None, {}, STATISTICS))
    stored["new"] = [1]
    stored["statistics"]["new"] = 1
    stored["schema"]["new"] = {}
    stored["schema"]["columns"][0]["new"] = 0
    assert Metadata.decode(block(stored)) == Metadata(SCHEMA, "zstd", None, {}, STATISTICS)


def broken(**changes: object) -> dict:
    """A valid document with some names changed; `...` removes one."""
    stored = document(Metadata(SCHEMA, "zstd", None, {}, STATISTICS)) | changes
    return {name: value for name, value in stored.items() if value is not ...}


def statistics(**changes: object) -> dict:
    """A valid document with some of its statistics changed."""
    return broken(statistics=document(Metadata(SCHEMA, "zstd", None, {}, STATISTICS))["statistics"] | changes)


WRONG = [
    b"", b"\xff", b"[]", b"null", b"7", b"[" * 100_000, b'{"format": "esdb"}', broken(format="parquet"),
    broken(schema=...), broken(schema={"keys": "numbers", "columns": []}), broken(schema={"keys": "text", "columns": 5}),
    broken(schema={"keys": "text", "columns": [{"name": "a", "type": "int7", "nullable": True, "indexed": False}]}),
    broken(level="high"), broken(level=math.inf), broken(level=1.5), broken(codec=5), broken(properties=[1]),
    broken(properties={"a": 5}), broken(properties={"a": "\ud800"}), broken(frame_bytes=math.inf), broken(frame_bytes=9.5),
    statistics(events=1.0), statistics(runs=True), statistics(spaces="1"), statistics(max_timestamp=1 << 63),
    statistics(indexes={"a": {"values": 1.0, "events": 1}}), statistics(indexes={"a": {"values": -1, "events": 1}}),
    broken(frame_bytes=0), broken(frame_bytes=-5), broken(frame_bytes=1 << 40), broken(frame_bytes="large"),
    broken(statistics={}), broken(statistics=3),
    broken(statistics={"events": -1, "spaces": 0, "runs": 0, "data_blocks": 0, "min_timestamp": None, "max_timestamp": None, "indexes": {}}),
    broken(statistics={"events": 1, "spaces": 0, "runs": 0, "data_blocks": 0, "min_timestamp": "x", "max_timestamp": None, "indexes": {}}),
]  # fmt: skip


@pytest.mark.parametrize("stored", WRONG, ids=lambda stored: str(stored)[:60])
def test_metadata_that_no_writer_makes(stored):
    """Invalid metadata is refused with an error that names the metadata and its position."""
    with pytest.raises(CorruptSegmentError, match=r"metadata|schema") as caught:
        Metadata.decode(block(stored))
    assert caught.value.offset == 16


def test_damaged_metadata():
    """Damage beneath a valid checksum is refused or yields other metadata."""
    body = bytes(decode_block(Metadata(SCHEMA, "zstd", None, {"a": "b"}, STATISTICS).encode(), 1, None, 0).body)
    assert_refused_or_read(body, lambda damaged: Metadata.decode(block(damaged)))


@pytest.mark.parametrize("properties", [{"a": 1}, {1: "a"}, {"a": None}, {"a": b"b"}])
def test_properties_map_text_to_text(properties):
    """Properties other than text are a UsageError."""
    with pytest.raises(UsageError, match="must map text to text"):
        check_properties(properties)


@pytest.mark.parametrize("properties", [{"a": "\ud800"}, {"\udfff": "b"}, {"a": "\U0010ffff\ud800"}])
def test_properties_that_no_file_can_hold(properties):
    """Properties with lone surrogates are refused immediately, not at the end of the write."""
    with pytest.raises(UsageError, match="is not Unicode text"):
        check_properties(properties)


def test_properties_are_copied():
    """Properties are copied: later changes to the caller's dict have no effect."""
    given = {"a": "b"}
    kept = check_properties(given)
    given["a"] = "c"
    assert kept == {"a": "b"}
    assert check_properties(None) == {}
