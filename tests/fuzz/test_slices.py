"""Some mutated inputs for every fuzz target; `make fuzz` gives each a million, guided by coverage."""

from __future__ import annotations

import importlib
import pkgutil
import random

import pytest
from effort import example_count

import esformat
import tests.fuzz

INPUTS = example_count(300)
TARGETS = [name for _, name, _ in pkgutil.iter_modules(tests.fuzz.__path__) if not name.startswith(("_", "test_"))]


def mutated(seed: bytes, chance: random.Random) -> bytes:
    """The seed with a few bytes changed, cut short, or with a part repeated."""
    stored = bytearray(seed)
    for _ in range(chance.randint(1, 6)):
        at = chance.randrange(len(stored) + 1)
        kind = chance.randrange(8)
        if kind == 0:
            del stored[at:]
        elif kind == 1:
            stored[at:at] = stored[at : at + chance.randint(1, 40)]
        elif kind == 2:
            stored[at : at + 8] = chance.choice([bytes(8), b"\xff" * 8, chance.randbytes(8)])
        elif at < len(stored):
            stored[at] = chance.choice([0, 1, 127, 128, 255, stored[at] ^ 1 << chance.randrange(8)])
    return bytes(stored)


@pytest.mark.parametrize("name", TARGETS)
def test_foreign_bytes_are_read_or_refused(name):
    """No input makes a reader fail in any way other than promised."""
    target = importlib.import_module(f"tests.fuzz.{name}")
    seeds = target.seeds()
    chance = random.Random(name)
    for number in range(INPUTS):
        data = mutated(seeds[number % len(seeds)], chance)
        try:
            target.one_input(data)
        except Exception as error:
            raise AssertionError(f"input {data.hex()}") from error


def test_seeds_are_sound():
    """The seeds of the segment target open and succeed in every query."""
    target = importlib.import_module("tests.fuzz.segment")
    seeds = target.seeds()
    assert seeds
    for seed in seeds:
        with esformat.open(esformat.BytesSource(seed)) as segment:
            for question in target.QUESTIONS:
                question(segment)


@pytest.mark.parametrize("number", range(6))
def test_changed_blocks_reach_the_decoders(number, monkeypatch):
    """No change of a block's body is refused by its checksum, whatever the query."""
    bodies = importlib.import_module("tests.fuzz.block_bodies")
    refused = []
    monkeypatch.setattr(esformat.ChecksumMismatchError, "__init__", lambda self, *_, **__: refused.append(self))
    stored = bodies.SEEDS[-1]
    for place in range(100, len(stored) // 2, 97):
        edit = [*place.to_bytes(3, "little"), 0, stored[place] ^ 1, *bytes(7)]
        bodies.one_input(bytes([len(bodies.SEEDS) - 1, number, *edit]))
    assert not refused
