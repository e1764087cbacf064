"""Files that are cut, flipped or forged are read or refused with an EsdbError: no other exception, no hang."""

from __future__ import annotations

import struct
import time
import tracemalloc

import pyarrow as pa
import pytest
from effort import ALL, share_of
from go_files import path_of

from esformat import BytesSource, CorruptSegmentError, UnsupportedVersionError, customerio
from esformat.customerio.blocks import HEADER, SNAPPY
from esformat.customerio.crc import masked_crc
from esformat.customerio.sst import encode_table
from esformat.customerio.varint import encode
from tests.fuzz.go_esdb import read_all

SMALL = path_of("small").read_bytes()


def small_stream(tmp_path, *, closed):
    path = tmp_path / "stream"
    with customerio.create(path, kind="stream", closed=closed) as writer:
        for number in range(4):
            writer.add(data=b"event %d" % number, indexes={"type": "ab"[number % 2], "user": f"{number}"})
    return path.read_bytes()


def refused(data):
    try:
        read_all(data)
    except (CorruptSegmentError, UnsupportedVersionError):
        return True
    return False


def bits_of(place):
    """The bits of a byte to flip: one that varies from byte to byte, or with `make test-all` all."""
    return range(8) if ALL else [place * 5 % 8]


def test_archive_cut_short():
    """An archive cut at any length is refused: its table of spaces is at the end."""
    assert all(refused(SMALL[:length]) for length in share_of(range(len(SMALL)), 3))


def test_stream_cut_short(tmp_path):
    """A stream cut at any length has the events before the cut; one cut within its magic is refused."""
    stream = small_stream(tmp_path, closed=True)
    whole = list(customerio.open(BytesSource(stream)).scan())
    counts = []
    for length in share_of(range(len(stream)), 3):
        if length < 10:
            with pytest.raises(CorruptSegmentError, match="an archive or a stream is cut short within its first bytes"):
                customerio.open(BytesSource(stream[:length]))
            continue
        with customerio.open(BytesSource(stream[:length])) as opened:
            events = list(opened.scan())
        assert events == whole[: len(events)]
        counts.append(len(events))
    assert counts == sorted(counts)
    assert set(counts) == set(range(5))


def test_flipped_bits_of_an_archive():
    """A flip of any bit is refused or read. Flips in tables, which have checksums, are always refused.

    Blocks have no checksums: a flip in one is noticed only if a length, position or encoding no longer fits.
    """
    tables = covered_by_checksums(SMALL)
    for place in share_of(range(len(SMALL)), 3):
        for bit in bits_of(place):
            data = bytearray(SMALL)
            data[place] ^= 1 << bit
            assert refused(bytes(data)) or place not in tables, f"byte {place}, bit {bit}"


def covered_by_checksums(data):
    """The positions in the tables of an archive: those of its spaces and its own."""
    places = set()
    end = len(data)
    ends = [end]
    (length,) = struct.unpack("<q", data[end - 8 :])
    first = end - 8 - length
    with customerio.open(BytesSource(data)) as archive:
        assert archive.num_spaces == 3
    ends += [at + 8 for at in range(first) if data[at - 8 : at] == bytes.fromhex("57fb808b247547db")]
    for end in ends:
        (length,) = struct.unpack("<q", data[end - 8 : end])
        places.update(range(end - 8 - length, end))
    assert len(ends) == 4
    return places


@pytest.mark.parametrize("closed", [True, False])
def test_flipped_bits_of_a_stream(tmp_path, closed):
    """A flip of any bit is refused or read; in a closed stream every flip outside payloads is refused."""
    stream = small_stream(tmp_path, closed=closed)
    unseen = []
    for place in share_of(range(len(stream)), 3):
        for bit in bits_of(place):
            data = bytearray(stream)
            data[place] ^= 1 << bit
            if not refused(bytes(data)):
                unseen.append(place)
    payloads = {stream.index(b"event %d" % number) + at for number in range(4) for at in range(7)}
    if closed:
        assert set(unseen) <= payloads | set(range(len(stream) - 16, len(stream)))


def archive(space, length=None):
    """An archive of one space with these bytes."""
    table = encode_table([(b"s", struct.pack("<qq", 0, len(space) if length is None else length))])
    return space + table + struct.pack("<q", len(table))


def space(sections, directory=None):
    """A space with sections of stored bytes, by key."""
    at, places = 1, []
    for key, stored in sections:
        places.append((key, encode(at) + encode(len(stored))))
        at += len(stored)
    table = encode_table(directory or places)
    return b"*" + b"".join(stored for _, stored in sections) + table + struct.pack("<q", len(table))


def raw(data):
    return HEADER.pack(len(data), 0) + data


def snappy(data):
    stored = pa.Codec("snappy").compress(data, asbytes=True)
    return HEADER.pack(len(stored), SNAPPY) + stored


EVENT = b"\x01" + struct.pack("<I", 5) + b"x"
SOUND = (b"g", raw(EVENT + b"\0"))
ENTRY = struct.pack("<qH", 1, 0)

FORGED = {
    "event_beyond_its_section": [(b"g", raw(b"\x7f" + EVENT[1:] + b"\0"))],
    "event_length_of_63_bits": [(b"g", raw(b"\xff" * 8 + b"\x7f" + bytes(5)))],
    "event_length_of_70_bits": [(b"g", raw(b"\xff" * 10 + bytes(6)))],
    "section_without_end_mark": [(b"g", raw(EVENT))],
    "section_of_no_block": [(b"g", raw(b""))],
    "grouping_without_events": [(b"g", raw(b"\0"))],
    "block_beyond_its_section": [(b"g", HEADER.pack(99, 0) + EVENT + b"\0")],
    "block_header_cut_short": [(b"g", raw(EVENT + b"\0") + b"\x01")],
    "block_of_unknown_encoding": [(b"g", HEADER.pack(7, 2) + EVENT + b"\0")],
    "block_too_long": [(b"g", raw(bytes(4097)))],
    "snappy_block_empty": [(b"g", HEADER.pack(0, SNAPPY))],
    "snappy_block_claims_too_much": [(b"g", HEADER.pack(6, SNAPPY) + b"\xff\xff\xff\xff\x0f\0")],
    "snappy_block_of_more_than_4096_bytes": [(b"g", snappy(encode(5000) + bytes(5004) + b"\0"))],
    "snappy_block_claims_more_than_it_has": [(b"g", HEADER.pack(4, SNAPPY) + b"\x80\x20\x00a")],
    "entry_of_block_0": [SOUND, (b"it:v", raw(struct.pack("<qH", 0, 0) + b"\0"))],
    "entry_of_block_2": [SOUND, (b"it:v", raw(struct.pack("<qH", 2, 0) + b"\0"))],
    "entry_of_negative_block": [SOUND, (b"it:v", raw(struct.pack("<qH", -1, 0) + b"\0"))],
    "entry_of_block_far_away": [SOUND, (b"it:v", raw(struct.pack("<qH", 2**62, 0) + b"\0"))],
    "entry_inside_an_event": [SOUND, (b"it:v", raw(struct.pack("<qH", 1, 1) + b"\0"))],
    "entry_at_the_end_mark": [SOUND, (b"it:v", raw(struct.pack("<qH", 1, 6) + b"\0"))],
    "entry_behind_the_block": [SOUND, (b"it:v", raw(struct.pack("<qH", 1, 65535) + b"\0"))],
    "entry_cut_short": [SOUND, (b"it:v", raw(ENTRY[:-1] + b"\0"))],
    "entries_without_end_mark": [SOUND, (b"it:v", raw(ENTRY))],
    "entry_twice": [SOUND, (b"it:v", raw(ENTRY + ENTRY + b"\0"))],
    "two_values_of_one_index": [SOUND, (b"it:v", raw(ENTRY + b"\0")), (b"it:w", raw(ENTRY + b"\0"))],
    "index_without_groupings": [(b"it:v", raw(ENTRY + b"\0"))],
    "index_name_without_colon": [SOUND, (b"it", raw(ENTRY + b"\0"))],
    "index_name_no_text": [SOUND, (b"i\xff:v", raw(ENTRY + b"\0"))],
    "section_of_unknown_kind": [SOUND, (b"x", raw(b"\0"))],
}


@pytest.mark.parametrize("name", FORGED)
def test_forged(name):
    """A space with valid checksums but invalid sections is refused."""
    assert not refused(archive(space([SOUND, (b"it:v", raw(ENTRY + b"\0"))])))
    assert refused(archive(space(FORGED[name])))


DIRECTORIES = {
    "sections_overlap": [(b"g", encode(1) + encode(10)), (b"g2", encode(1) + encode(10))],
    "section_outside": [(b"g", encode(1) + encode(2**40))],
    "section_before_the_space": [(b"g", encode(0) + encode(11))],
    "gap_behind_the_sections": [(b"g", encode(1) + encode(9))],
    "place_too_long": [(b"g", encode(1) + encode(10) + b"\0")],
    "place_too_short": [(b"g", encode(1))],
}


@pytest.mark.parametrize("name", DIRECTORIES)
def test_forged_directory(name):
    """A directory that does not describe its space is refused."""
    assert refused(archive(space([SOUND], DIRECTORIES[name])))


@pytest.mark.parametrize("length", [0, 8, 9, 60, 2**40, 2**63 - 1, -1])
def test_forged_place_of_a_space(length):
    """So is a table of spaces that names bytes outside the file, or too few."""
    assert refused(archive(space([SOUND]), length))


@pytest.mark.parametrize("length", [0, 1, 47, 2**40, 2**63 - 1, -1, -(2**63)])
def test_forged_length_of_the_table(length):
    """An absurd length of the table is refused before anything is read or allocated."""
    assert refused(SMALL[:-8] + struct.pack("<q", length))


def test_keys_that_grow():
    """A table in which each key repeats the whole previous key, and would expand to gigabytes, is refused."""
    block = encode(0) + encode(60_000) + encode(0) + bytes(60_000)
    entries = b"".join(encode(60_000 + n) + encode(1) + encode(0) + b"\1" for n in range(50_000))
    data = table_of(block + entries)
    tracemalloc.start()
    assert refused(data + struct.pack("<q", len(data)))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 16 << 20


def table_of(entries):
    """A table with one data block of these entries."""

    def stored(block):
        return block + b"\0" + struct.pack("<I", masked_crc(block + b"\0"))

    tail = struct.pack("<II", 0, 1)
    data = stored(entries + tail)
    meta = stored(tail)
    handle = encode(0) + encode(len(entries + tail))
    index = stored(encode(0) + encode(1) + encode(len(handle)) + b"\xff" + handle + tail)
    footer = encode(len(data)) + encode(len(tail)) + encode(len(data + meta)) + encode(len(index) - 5)
    return data + meta + index + footer.ljust(40, b"\0") + bytes.fromhex("57fb808b247547db")


def test_many_tiny_indexes_are_quick():
    """An event of a stream that claims many tiny index entries is refused quickly."""
    entries = b"\x01:\x00" * 300_000
    body = b"\x01x" + encode(300_000) + entries
    started = time.process_time()
    assert refused(b"ESDBstream" + struct.pack("<I", len(body)) + body)
    assert time.process_time() - started < 10


def test_snappy_bombs_stay_small():
    """Snappy expands a file to some twenty times its size at most, because a block expands to at most 4 KiB."""
    block = pa.Codec("snappy").compress(bytes(4096), asbytes=True)
    event = raw(encode(2000 * 4096) + bytes(4))
    sections = [(b"g", event + (HEADER.pack(len(block), SNAPPY) + block) * 2000 + raw(b"\0"))]
    tracemalloc.start()
    read_all(archive(space(sections)))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 64 << 20


CHAINS = {
    "to_itself": 10,
    "to_the_end": 37,
    "inside_an_event": 12,
    "far_away": 2**40,
}


@pytest.mark.parametrize("name", CHAINS)
def test_chains_of_a_stream(name):
    """An index entry that does not name the previous event of its chain is refused, so that no loop is possible."""
    one = b"\x01a\x01\x03t:v\x00"
    two = b"\x01b\x01\x03t:v"
    sound = b"ESDBstream" + struct.pack("<I", len(one)) + one
    good = two + encode(10)
    assert not refused(sound + struct.pack("<I", len(good)) + good)
    bad = two + encode(CHAINS[name])
    wrong = sound + struct.pack("<I", len(bad)) + bad
    if name != "to_itself":
        assert refused(wrong)
    else:
        loop = sound.replace(one, one[:-1] + encode(10))
        assert refused(loop)


def test_length_that_lies_about_a_torn_event(tmp_path):
    """An event before the last whose length exceeds the file is damage, not the torn end of the stream."""
    stream = bytearray(small_stream(tmp_path, closed=False))
    stream[12] ^= 0x40  # the third byte of the first event's length
    with pytest.raises(CorruptSegmentError, match="does not fit its length"):
        read_all(bytes(stream))


def test_footer_of_other_tails(tmp_path):
    """A closed stream whose footer names the wrong newest events is refused."""
    stream = small_stream(tmp_path, closed=True)
    end = 10
    while length := struct.unpack_from("<I", stream, end)[0]:
        end += 4 + length
    table = encode_table([(b"type:a", encode(10))])
    forged = stream[: end + 4] + table + struct.pack("<q", len(table)) + b"closedESDBstream"
    with pytest.raises(CorruptSegmentError, match="other newest events"):
        read_all(forged)
