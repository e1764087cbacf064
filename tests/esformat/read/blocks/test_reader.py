"""Below the public methods: spare copies, contradictory parts, errors that name the file."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from event_model import event_facts

import esformat
from esformat.errors import ChecksumMismatchError, CorruptSegmentError
from esformat.format import dictionary
from esformat.format.footer import decode_footer, encode_footer
from esformat.format.frame import Block, decode_block, encode_block, handle_of
from esformat.format.layout import TRAILER_BYTES, BlockHandle, BlockKind, Trailer
from esformat.read.blocks import reader as reader_module

Key = tuple[int, int, int]


@pytest.fixture(scope="module")
def stored(clicks) -> bytes:
    """A file with dictionaries and their spare copies."""
    return clicks[0].read_bytes()


def footer_of(content: bytes) -> dict[Key, BlockHandle]:
    """The offset table of a file."""
    handle = Trailer.decode(content, len(content)).footer
    return decode_footer(block_of(content, handle, BlockKind.FOOTER))


def block_of(content: bytes, handle: BlockHandle, kind: int) -> Block:
    """A block of a file."""
    return decode_block(content[handle.offset : handle.end], kind, handle.check, handle.offset)


def flipped(content: bytes, *handles: BlockHandle) -> bytes:
    """A file with one byte flipped in the middle of some blocks."""
    damaged = bytearray(content)
    for handle in handles:
        damaged[handle.offset + handle.length // 2] ^= 0x10
    return bytes(damaged)


def resealed(content: bytes, key: Key, body: bytes) -> bytes:
    """A file with a new body for the block at `key`, one of those at the end; all checksums and handles are valid."""
    table = footer_of(content)
    footer = Trailer.decode(content, len(content)).footer
    old = block_of(content, table[key], key[0])
    table[key] = BlockHandle(footer.offset, *_sealed(old, body)[1:])
    block = _sealed(old, body)[0]
    stored_footer = encode_footer(table)
    opening = Trailer.decode(content, len(content)).opening_offset
    at = footer.offset + len(block)
    return content[: footer.offset] + block + stored_footer + Trailer(opening, handle_of(stored_footer, at)).encode()


def _sealed(old: Block, body: bytes) -> tuple[bytes, int, int]:
    block = encode_block(BlockKind(old.kind), body, count=old.count, dictionary=old.dictionary)
    handle = handle_of(block, 0)
    return block, handle.length, handle.check


def everything(content: bytes) -> list:
    """The events of a file in memory."""
    with esformat.open(esformat.BytesSource(content, "in memory")) as segment:
        return [event_facts(event) for event in segment.scan()]


DICTIONARY, SPARE = (BlockKind.DICTIONARY, 1, 0), (BlockKind.DICTIONARY, 1, 1)
METADATA = (BlockKind.METADATA, 0, 0)


def test_spare_dictionary(stored):
    """If the dictionary is damaged, its spare copy is used and all events are read."""
    table = footer_of(stored)
    assert {DICTIONARY, SPARE} <= table.keys()
    expected = everything(stored)
    assert everything(flipped(stored, table[DICTIONARY])) == expected
    assert everything(flipped(stored, table[SPARE])) == expected


def test_both_dictionaries_damaged(stored):
    """If both copies are damaged, columns that need them raise an error with the file's name; others are read."""
    table = footer_of(stored)
    damaged = flipped(stored, table[DICTIONARY], table[SPARE])
    with esformat.open(esformat.BytesSource(damaged, "in memory")) as segment:
        with pytest.raises(ChecksumMismatchError, match="in memory: block checksum"):
            list(segment.scan())
        assert segment.scan(columns=["space", "timestamp"]).to_table().num_rows == 30_000


@pytest.mark.parametrize("key", [METADATA, (BlockKind.DIRECTORY_ROOT, 0, 0)])
def test_what_opening_needs_is_damaged(stored, key):
    """A file whose opening needs a damaged block is refused with its name and the position."""
    handle = footer_of(stored)[key]
    with pytest.raises(ChecksumMismatchError, match=r"in memory: block checksum .*esdb verify") as caught:
        everything(flipped(stored, handle))
    assert (caught.value.path, caught.value.offset) == ("in memory", handle.offset)


@pytest.mark.parametrize("kind", [BlockKind.DATA, BlockKind.DIRECTORY, BlockKind.INDEX])
def test_a_damaged_block_costs_itself_alone(stored, kind):
    """A damaged block affects only itself; its error names the file and the position."""
    at = stored.find(b"ESBK" + bytes([kind]), len(stored) // 3 if kind == BlockKind.DATA else 0)
    length = int.from_bytes(stored[at + 8 : at + 12], "little") + 24
    damaged = flipped(stored, BlockHandle(at, length, 0))
    with esformat.open(esformat.BytesSource(damaged, "in memory")) as segment:
        with pytest.raises(ChecksumMismatchError) as caught:
            list(segment.scan() if kind != BlockKind.INDEX else segment.index_values("type"))
        assert (caught.value.path, caught.value.offset) == ("in memory", at)
        last = [event.space for event in segment.scan(reverse=True, limit=5)]
    with esformat.open(esformat.BytesSource(stored)) as segment:
        assert last == [event.space for event in segment.scan(reverse=True, limit=5)]


def changed_statistics(content: bytes, **changes: object) -> bytes:
    """A file with changed statistics."""
    document = json.loads(bytes(block_of(content, footer_of(content)[METADATA], BlockKind.METADATA).body))
    document["statistics"] |= changes
    return resealed(content, METADATA, json.dumps(document).encode())


def test_resealed_files_open(stored):
    """A resealed file without real changes opens, as the tests below assume."""
    assert everything(changed_statistics(stored)) == everything(stored)


@pytest.mark.parametrize("changes", [{"events": 29_999}, {"data_blocks": 1}])
def test_statistics_that_disagree_with_the_directory(stored, changes):
    """Statistics that disagree with the directory are refused: either may be wrong."""
    with pytest.raises(CorruptSegmentError, match="in memory: the directory and the statistics disagree"):
        everything(changed_statistics(stored, **changes))


def test_metadata_without_statistics(stored):
    """Only the spare copy of the metadata may lack statistics."""
    document = json.loads(bytes(block_of(stored, footer_of(stored)[METADATA], BlockKind.METADATA).body))
    del document["statistics"]
    with pytest.raises(CorruptSegmentError, match="no statistics"):
        everything(resealed(stored, METADATA, json.dumps(document).encode()))


def test_kinds_and_names_of_newer_writers(stored):
    """An unknown block kind in the footer and an unknown name in the metadata are ignored: minor versions only add."""
    table = footer_of(stored)
    document = json.loads(bytes(block_of(stored, table[METADATA], BlockKind.METADATA).body))
    newer = resealed(stored, METADATA, json.dumps(document | {"compaction": {"level": 3}}).encode())
    table = footer_of(newer) | {(77, 0, 0): table[METADATA]}
    footer = Trailer.decode(newer, len(newer)).footer
    encoded = encode_footer(table)
    trailer = Trailer(Trailer.decode(newer, len(newer)).opening_offset, handle_of(encoded, footer.offset))
    newest = newer[: footer.offset] + encoded + trailer.encode()
    assert everything(newest) == everything(stored)


def test_index_that_is_missing(stored):
    """An index that is declared in the schema but missing from the footer is reported when it is used."""
    table = footer_of(stored)
    place = next(key for key in table if key[0] == BlockKind.INDEX_ROOT)
    del table[place]
    footer = Trailer.decode(stored, len(stored)).footer
    encoded = encode_footer(table)
    trailer = Trailer(Trailer.decode(stored, len(stored)).opening_offset, handle_of(encoded, footer.offset))
    content = stored[: footer.offset] + encoded + trailer.encode()
    assert len(everything(content)) == 30_000
    with (
        esformat.open(esformat.BytesSource(content)) as segment,
        pytest.raises(CorruptSegmentError, match=r"index on .* is missing"),
    ):
        segment.scan_index(segment.indexes[place[1] - 1], "page").count()


def test_builder_writes_nothing_but_blocks(stored):
    """Between header and trailer there are only blocks, without gaps."""
    at, kinds = 16, []
    while at < len(stored) - TRAILER_BYTES:
        assert stored[at : at + 4] == b"ESBK"
        kinds.append(stored[at + 4])
        length = int.from_bytes(stored[at + 8 : at + 12], "little") + 24
        decode_block(stored[at : at + length], kinds[-1], None, at)
        at += length
    assert at == len(stored) - TRAILER_BYTES
    assert kinds[:2] == [BlockKind.METADATA, BlockKind.DICTIONARY]
    assert kinds[-2:] == [BlockKind.METADATA, BlockKind.FOOTER]


def test_file_of_another_writer_s_spare(tmp_path, stored):
    """Two concatenated files are refused."""
    path = Path(tmp_path / "glued.esdb")
    path.write_bytes(stored + stored)
    with pytest.raises(CorruptSegmentError), esformat.open(path) as segment:
        list(segment.scan())


def shaped(path: Path, first: int, names: tuple[str, ...] = ("ann", "bob"), rows: int = 3000) -> Path:
    """A file with templates."""
    values = [
        b'{"who":"%s","number":%d,"of":"things that are counted"}' % (names[n % len(names)].encode(), first + n * n)
        for n in range(rows)
    ]
    with esformat.create(path, overwrite=True) as writer:
        writer.add_table(pa.table({"space": ["s"] * rows, "timestamp": range(rows), "data": values}))
    return path


@pytest.fixture
def decoded(monkeypatch):
    """The calls that decode templates."""
    seen = []
    decode = dictionary.decode_templates
    monkeypatch.setattr(dictionary, "decode_templates", lambda *of: seen.append(of) or decode(*of))
    return seen


def test_a_file_that_is_opened_again(tmp_path, decoded):
    """A reopened file reuses its decoded dictionary, but not if another file replaced it or nothing is cached."""
    path = shaped(tmp_path / "a.esdb", 0)
    events = []
    for _ in range(3):
        with esformat.open(path) as segment:
            events.append([event.data for event in segment["s"].scan()])
    assert (events[0] == events[1] == events[2], len(decoded)) == (True, 1)
    shaped(path, 0, ("ann", "bib"))
    with esformat.open(path) as segment:
        assert [event.data[:13] for event in segment["s"].scan(limit=2)] == [b'{"who":"ann",', b'{"who":"bib",']
    assert len(decoded) == 2
    with esformat.open(path, cache_bytes=0) as segment:
        assert len(list(segment["s"].scan(limit=2))) == 2
    assert len(decoded) == 3


def test_what_only_looks_like_the_dictionary_that_is_remembered(tmp_path, decoded):
    """A cached dictionary is reused only if its bytes and the file's columns match."""
    path = shaped(tmp_path / "a.esdb", 0, ("cid", "dan"))
    with esformat.open(path) as segment:
        assert len(list(segment["s"].scan(limit=2))) == 2
        reader = segment._reader
    handle = reader.table[BlockKind.DICTIONARY, 1, 0]
    known = reader_module._remembered.find(handle)
    assert known.fits(reader.schema, memoryview(known.body))
    assert not known.fits(reader.schema, memoryview(known.body + b"\0"))
    assert not known.fits(replace(reader.schema, binary_keys=True), memoryview(known.body))
    assert len(decoded) == 1


def test_a_dictionary_read_with_many_bytes_is_not_remembered(tmp_path, monkeypatch, decoded):
    """A dictionary is not cached if the bytes that were read with it are too many, because it keeps them all."""
    monkeypatch.setattr(reader_module, "MOST_REMEMBERED_BYTES", 900)
    path = shaped(tmp_path / "a.esdb", 0, ("eve", "fay"))
    for _ in range(2):
        with esformat.open(path) as segment:
            assert len(list(segment["s"].scan(limit=2))) == 2
            dictionary = segment._reader._small_block((BlockKind.DICTIONARY, 1, 0)).body
    assert len(dictionary) < 900 < len(dictionary.obj)
    assert len(decoded) == 2


def test_the_spare_dictionary_is_not_remembered(tmp_path, decoded):
    """The spare dictionary is not cached: it has another position."""
    path = shaped(tmp_path / "a.esdb", 0, ("gus", "hal"))
    path.write_bytes(flipped(path.read_bytes(), footer_of(path.read_bytes())[BlockKind.DICTIONARY, 1, 0]))
    for _ in range(2):
        with esformat.open(path) as segment:
            assert len(list(segment["s"].scan(limit=2))) == 2
    assert len(decoded) == 2
