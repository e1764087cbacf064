"""A segment whose blocks hold anything beneath sound checksums: what a hostile writer could make.

An input names a golden file, a question and changes to the file's bytes. Before a block is decoded its checksum is
made to fit, so that the changes reach the decoders.
"""

from __future__ import annotations

import sys

from esformat.format import frame as block
from esformat.format.checksum import checksum64
from tests.fuzz import segment

CHECK_BYTES = 8
EDIT_BYTES = 12  # offset: 3 bytes; how many of the rest to write: 1; what to write: 8
TRAILER_BYTES = 48  # has a checksum of its own that stays as it is, and so do the bytes

_decode_block = block.decode_block
SEEDS = segment.seeds()
READERS = [
    module for name, module in sys.modules.items() if name.startswith("esformat") and hasattr(module, "decode_block")
]
"""Modules that call `decode_block` under its name."""


def _decode_sealed(stored: bytes | memoryview, kind: int, _check: int | None, offset: int) -> block.Block:
    if len(stored) > CHECK_BYTES:
        content = bytes(stored[:-CHECK_BYTES])
        stored = content + checksum64(content).to_bytes(CHECK_BYTES, "little")
    return _decode_block(stored, kind, None, offset)


def seeds() -> list[bytes]:
    """Every golden file with every question and a small change."""
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
    """Ask the edited file a question, with checksums that fit."""
    if len(data) < 2:
        return
    stored = edited(data)
    for module in READERS:
        vars(module)["decode_block"] = _decode_sealed
    try:
        segment.ask(stored, [segment.QUESTIONS[data[1] % len(segment.QUESTIONS)]])
    finally:
        for module in READERS:
            vars(module)["decode_block"] = _decode_block
