"""Damage to files of every kind that disks and people cause, and how verify, reading and repair handle it.

    python -m tests.soak.salvage --cases 10000

`verify` must detect each case. A scan returns the right events or raises. `repair` never invents an event, saves all
events in intact blocks, and counts the lost ones exactly if it gives a number.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import make_damaged
import pyarrow as pa
from small_pieces import Pieces, cut_small

import esformat
from esformat.format.layout import BlockKind
from esformat.tools import repair

PIECES = Pieces(block_rows=16, leaf_blocks=4, leaf_runs=20, page_values=8, chunk_entries=12, least_copied_rows=1)
PAGE_BYTES = 512


def make_file(path: Path, seed: int) -> bytes:
    """A few hundred distinct events in about twenty blocks and several leaves."""
    rnd = random.Random(seed)
    count = 320
    table = pa.table(
        {
            "space": [f"s{rnd.randrange(30):02}" for _ in range(count)],
            "grouping": [rnd.choice(["", "g"]) for _ in range(count)],
            "timestamp": pa.array([rnd.randrange(10**6) for _ in range(count)], pa.int64()),
            "data": pa.array([b"%d of %d" % (i, seed) for i in range(count)], pa.binary()),
            "type": [rnd.choice(["view", "buy", None]) for _ in range(count)],
        }
    )
    with cut_small(PIECES), esformat.create(path, indexes=["type"], codec=rnd.choice(["zstd", "none"])) as out:
        out.add_table(table)
    return path.read_bytes()


# ── ways to damage bytes ────────────────────────────────────────────────────────────────────────────────────────────


def flip(rnd: random.Random, data: bytes, other: bytes) -> bytes:
    """Flip one bit."""
    return make_damaged.flip(data, rnd.randrange(8 * len(data)))


def zero_pages(rnd: random.Random, data: bytes, other: bytes) -> bytes:
    """Zero up to three pages."""
    damaged = bytearray(data)
    for _ in range(rnd.randint(1, 3)):
        at = rnd.randrange(0, max(1, len(data) - PAGE_BYTES), PAGE_BYTES)
        damaged[at : at + PAGE_BYTES] = bytes(PAGE_BYTES)
    return bytes(damaged)


def swap_blocks(rnd: random.Random, data: bytes, other: bytes) -> bytes:
    """Swap two neighbouring blocks, whatever their lengths."""
    places = make_damaged.blocks(data)
    first = rnd.randrange(len(places) - 1)
    a, b = places[first], places[first + 1]
    return data[: a.offset] + data[b.offset : b.end] + data[a.offset : a.end] + data[b.end :]


def double_block(rnd: random.Random, data: bytes, other: bytes) -> bytes:
    """Duplicate a block: inserted, or over the next one."""
    places = make_damaged.blocks(data)
    first = rnd.randrange(len(places) - 1)
    a, b = places[first], places[first + 1]
    return data[: a.end] + data[a.offset : a.end] + data[(a.end if rnd.random() < 0.5 else b.end) :]


def other_tail(rnd: random.Random, data: bytes, other: bytes) -> bytes:
    """Join the start of one file and the end of another."""
    return data[: rnd.randrange(1, len(data))] + other[rnd.randrange(1, len(other)) :]


def cut(rnd: random.Random, data: bytes, other: bytes) -> bytes:
    """Cut off the end."""
    return data[: rnd.randrange(len(data))]


def bad_blocks(rnd: random.Random, data: bytes, other: bytes) -> bytes:
    """Flip a bit in each of several blocks."""
    damaged = bytearray(data)
    for place in rnd.sample(make_damaged.blocks(data), rnd.randint(1, 5)):
        damaged[rnd.randrange(place.offset, place.end)] ^= 1 << rnd.randrange(8)
    return bytes(damaged)


WAYS: tuple[Callable[[random.Random, bytes, bytes], bytes], ...] = (
    flip, zero_pages, swap_blocks, double_block, other_tail, cut, bad_blocks,
)  # fmt: skip


# ── the promises ────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass
class Outcome:
    """The results of all cases so far."""

    cases: int = 0
    undetected: int = 0
    wrong_answers: int = 0
    made_up: int = 0
    missed: int = 0
    miscounted: int = 0
    unrepairable: int = 0
    exact: int = 0

    @property
    def ok(self) -> bool:
        """Whether every promise held."""
        return not (self.undetected or self.wrong_answers or self.made_up or self.missed or self.miscounted)


def events_of(data: bytes) -> Counter[str]:
    """The events that a scan of a file returns. Raises CorruptSegmentError."""
    with esformat.open(esformat.BytesSource(data)) as segment:
        return Counter(map(repr, segment.scan().to_table().to_pylist()))


def readable(data: bytes, damaged: bytes, events: list[str]) -> Counter[str]:
    """The events of data blocks whose bytes are all still there, at any place."""
    found: Counter[str] = Counter()
    copies = make_damaged.blocks_of(data, BlockKind.DICTIONARY)
    if copies and not any(data[place.offset : place.end] in damaged for place in copies):
        return found  # without its dictionary a block cannot be read
    at = 0
    for place in make_damaged.blocks_of(data, BlockKind.DATA):
        count = int.from_bytes(data[place.offset + 12 : place.offset + 16], "little")
        if data[place.offset : place.end] in damaged:
            found.update(events[at : at + count])
        at += count
    return found


def try_one(rnd: random.Random, data: bytes, other: bytes, folder: Path, outcome: Outcome) -> None:
    """Damage a file in one way and check the results."""
    way = rnd.choice(WAYS)
    damaged = way(rnd, data, other)
    if damaged == data:
        return
    outcome.cases += 1
    source = esformat.BytesSource(damaged, way.__name__)
    outcome.undetected += esformat.verify(source).ok
    whole = events_of(data)
    foreign = events_of(other) if way is other_tail else Counter()
    with contextlib.suppress(esformat.CorruptSegmentError, esformat.UnsupportedVersionError):
        outcome.wrong_answers += events_of(damaged) != whole
    saved = folder / "saved.esdb"
    try:
        report = repair(source, saved, overwrite=True)
    except (esformat.CorruptSegmentError, esformat.UnsupportedVersionError):
        outcome.unrepairable += 1
        return
    found = events_of(saved.read_bytes())
    outcome.undetected += not esformat.verify(saved).ok
    outcome.made_up += bool(found - whole - foreign)
    if way is other_tail:  # the saved events depend on which file the directory is from
        return
    with esformat.open(esformat.BytesSource(data)) as segment:
        ordered = list(map(repr, segment.scan().to_table().to_pylist()))
    outcome.missed += bool(readable(data, damaged, ordered) - found)
    lost = whole.total() - found.total()
    outcome.exact += report.lost_events is not None
    outcome.miscounted += report.lost_events not in (None, lost) or report.lost_at_least > lost


def run(cases: int, seed: int = 1) -> Outcome:
    """Run this many cases on a few files."""
    rnd = random.Random(seed)
    outcome = Outcome()
    with tempfile.TemporaryDirectory() as directory, cut_small(PIECES):
        folder = Path(directory)
        files = [make_file(folder / f"{i}.esdb", i) for i in range(4)]
        while outcome.cases < cases:
            data, other = rnd.sample(files, 2)
            try_one(rnd, data, other, folder, outcome)
    return outcome


def main() -> int:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    started = time.perf_counter()
    outcome = run(arguments.cases, arguments.seed)
    print(f"{outcome}, {time.perf_counter() - started:.0f} s")
    return 0 if outcome.ok else 1


if __name__ == "__main__":
    raise SystemExit(main())
