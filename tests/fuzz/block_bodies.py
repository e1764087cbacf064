"""A segment with arbitrary blocks beneath valid checksums, as a hostile writer could make it.

An input names a golden file, a query and changes to the file's bytes. The stored checksums of blocks count as right, so
that the changes reach the decoders.
"""

from __future__ import annotations

import struct
import sys
import tempfile
from pathlib import Path

import numpy as np

import esformat
from esformat.format.checksum import checksum64
from esformat.format.layout import BlockKind
from tests.fuzz import segment

CHECK_BYTES = 8
HEADER_BYTES, FRAME_BYTES, FRAME = 16, 24, struct.Struct("<4sBxxxI4x")
TABLE_AT, ENTRY = 32, struct.Struct("<IIQ")  # of a data block: its table of chunks, and an entry
EDIT_BYTES = 12  # offset: 3 bytes; how many of the rest to write: 1; new bytes: 8
TRAILER_BYTES = 48  # has its own checksum, and stays unchanged

FEW_ROWS = 150


def _with_templates() -> bytes:
    """A small file whose payloads are stored by templates: the first events of a golden file that is too long."""
    with esformat.open(segment.GOLDEN / "templates.esdb") as golden, tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "few.esdb"
        with esformat.create(path, templates=True) as writer:
            writer.add_table(golden.scan(limit=FEW_ROWS).to_table())
        return path.read_bytes()


def _data_blocks(stored: bytes) -> list[int]:
    """The offsets of the data blocks of a segment."""
    places, at = [], HEADER_BYTES
    while at < len(stored) - TRAILER_BYTES:
        _, kind, body_bytes = FRAME.unpack_from(stored, at)
        if kind == BlockKind.DATA:
            places.append(at)
        at += FRAME_BYTES + body_bytes
    return places


SEEDS = [*segment.seeds(), _with_templates()]
DATA_BLOCKS = [_data_blocks(stored) for stored in SEEDS]
"""The offsets of the data blocks of each seed; changes do not move them."""
READERS = [
    module for name, module in sys.modules.items() if name.startswith("esformat") and hasattr(module, "checksum64")
]
"""The modules that verify checksums, themselves or through the core."""


_chunk_checks: dict[int, int] = {}  # the checksums that the head of a data block has, by those of the chunks there


def _read_chunk_checks(stored: bytes, places: list[int]) -> None:
    """Read the checksums of chunks from the heads of data blocks at some places."""
    _chunk_checks.clear()
    for place in places:
        (count,) = struct.unpack_from("<I", stored, place + TABLE_AT - 4)
        chunks = place + TABLE_AT + count * ENTRY.size + CHECK_BYTES
        if chunks > len(stored):
            continue
        for offset, length, check in ENTRY.iter_unpack(stored[place + TABLE_AT : chunks - CHECK_BYTES]):
            _chunk_checks[checksum64(stored[chunks + offset : chunks + offset + length])] = check


def stored_check(content: bytes | memoryview) -> int:
    """The checksum stored for the content of a block or chunk; for other content the computed one."""
    computed = int(checksum64(content))
    if computed in _chunk_checks:
        return _chunk_checks[computed]
    if not isinstance(content, memoryview) or not content:
        return computed
    whole = np.frombuffer(content.obj, np.uint8)
    end = np.frombuffer(content, np.uint8).ctypes.data - whole.ctypes.data + len(content)
    return int.from_bytes(whole[end : end + CHECK_BYTES].tobytes(), "little")


def seeds() -> list[bytes]:
    """Every golden file with every query and a small change."""
    return [
        bytes([number, *b"\x40\x01\x00\x02", 255, 1, *bytes(6), *bytes(EDIT_BYTES)]) for number in range(len(SEEDS))
    ]


def edited(data: bytes) -> bytes:
    """The golden file that an input names, with the input's changes."""
    stored = bytearray(SEEDS[data[0] % len(SEEDS)])
    for at in range(2, len(data) - EDIT_BYTES + 1, EDIT_BYTES):
        edit = data[at : at + EDIT_BYTES]
        place = int.from_bytes(edit[:3], "little") % (len(stored) - TRAILER_BYTES)
        piece = edit[4 : 5 + edit[3] % 8]
        stored[place : min(place + len(piece), len(stored) - TRAILER_BYTES)] = piece[
            : len(stored) - TRAILER_BYTES - place
        ]
    return bytes(stored)


def one_input(data: bytes) -> None:
    """Query the edited file as if its checksums were valid."""
    if len(data) < 2:
        return
    stored = edited(data)
    _read_chunk_checks(stored, DATA_BLOCKS[data[0] % len(SEEDS)])
    for module in READERS:
        vars(module)["checksum64"] = stored_check
    try:
        segment.ask(stored, [segment.QUESTIONS[data[1] % len(segment.QUESTIONS)]])
    finally:
        for module in READERS:
            vars(module)["checksum64"] = checksum64
