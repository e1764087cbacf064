"""Announcements to a source that prefetches: nothing that is cached, and nothing if only one read is needed."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import esformat
from esformat import parts
from esformat.io.source import BytesSource

SPACES, EACH = 150, 40


class Far(BytesSource):
    """A source that records announcements and reads."""

    def __init__(self, data: bytes) -> None:
        super().__init__(data)
        self.announced: list[tuple[int, int]] = []
        self.read: list[tuple[int, int]] = []

    def will_read(self, start: int, stop: int) -> None:
        self.announced.append((start, stop))

    def read_at(self, offset: int, length: int) -> bytes:
        self.read.append((offset, offset + length))
        return super().read_at(offset, length)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Spaces of 40 events each, dozens of them in each of a few data blocks."""
    count = SPACES * EACH
    table = pa.table(
        {
            "space": pa.array([f"s{n // EACH:03}" for n in range(count)]),
            "grouping": pa.array(["g"] * count),
            "timestamp": pa.array(range(count)),
            "data": pa.array([n.to_bytes(4, "big") * 100 for n in range(count)]),
        }
    )
    path: Path = tmp_path_factory.mktemp("near") / "events.esdb"
    with esformat.create(path) as writer:
        writer.add_table(table)
    return path


@pytest.fixture
def far(path: Path) -> Far:
    return Far(path.read_bytes())


def history(segment: esformat.Segment, space: str, **question: object) -> list[int]:
    found = segment.find(space)
    assert found is not None
    return [event.timestamp for event in found.scan(**question)]


def test_a_history_within_one_block_is_read_at_once(far: Far) -> None:
    with esformat.open(far) as segment:
        segment.find("s009")
        far.read.clear()
        far.announced.clear()
        assert history(segment, "s009") == list(range(9 * EACH, 10 * EACH))
        assert len(far.read) == 1
        assert history(segment, "s010", reverse=True, limit=2) == [11 * EACH - 1, 11 * EACH - 2]
        assert len(far.read) == 1
        assert not far.announced


def test_beginning_announces_only_what_is_not_local(far: Far) -> None:
    with esformat.open(far) as segment:
        assert parts.announce_space(segment, "s009", wait=True)
        announced = far.announced[-1]
        far.read.clear()
        history(segment, "s009")
        assert far.read == [announced]
        far.announced.clear()
        assert parts.announce_space(segment, "s010", wait=True)  # of the same block
        assert not far.announced
        assert parts.announce_space(segment, "s140", wait=True)
        assert len(far.announced) == 1
