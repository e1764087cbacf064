"""A segment whose blocks hold anything beneath sound checksums: what a hostile writer could make.

An input names a golden file, a question and changes to the file's bytes. Checksums of blocks are taken for what the
file says that they are, so that the changes reach the decoders.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import numpy as np

import esformat
from esformat.format.checksum import checksum64
from tests.fuzz import segment

CHECK_BYTES = 8
EDIT_BYTES = 12  # offset: 3 bytes; how many of the rest to write: 1; what to write: 8
TRAILER_BYTES = 48  # has a checksum of its own that stays as it is, and so do the bytes

FEW_ROWS = 150


def _with_templates() -> bytes:
    """A small file whose payloads lie by templates, the first events of a golden one that is too long."""
    with esformat.open(segment.GOLDEN / "templates.esdb") as golden, tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "few.esdb"
        with esformat.create(path, templates=True) as writer:
            writer.add_table(golden.scan(limit=FEW_ROWS).to_table())
        return path.read_bytes()


SEEDS = [*segment.seeds(), _with_templates()]
READERS = [
    module for name, module in sys.modules.items() if name.startswith("esformat") and hasattr(module, "checksum64")
]
"""Modules that verify checksums, or have the core verify them."""


def stored_check(content: bytes | memoryview) -> int:
    """The checksum that stands behind the content of a block; of anything else its own."""
    if not isinstance(content, memoryview) or not content:
        return int(checksum64(content))
    whole = np.frombuffer(content.obj, np.uint8)
    end = np.frombuffer(content, np.uint8).ctypes.data - whole.ctypes.data + len(content)
    return int.from_bytes(whole[end : end + CHECK_BYTES].tobytes(), "little")


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
    """Ask the edited file a question, as if its checksums fitted."""
    if len(data) < 2:
        return
    stored = edited(data)
    for module in READERS:
        vars(module)["checksum64"] = stored_check
    try:
        segment.ask(stored, [segment.QUESTIONS[data[1] % len(segment.QUESTIONS)]])
    finally:
        for module in READERS:
            vars(module)["checksum64"] = checksum64
