"""Statements with a limit read little, however much there is."""

from __future__ import annotations

import pytest

import aggregator

STREAMS, EACH = 40, 400


@pytest.fixture(scope="module")
def catalog(tmp_path_factory):
    """Streams with interleaved records in one sealed segment."""
    with aggregator.open(tmp_path_factory.mktemp("c") / "c", durability="none") as made:
        for stream in range(STREAMS):
            records = [{"ts": n * 1000 + stream, "msg": f"{n} {stream} " + "x" * 200, "n": n} for n in range(EACH)]
            made.write({"s": f"{stream:02d}"}, records)
        made.seal()
        yield made


ASKED = [
    ("SELECT LIMIT 1", ["0 0"]),
    ("SELECT LIMIT 3", ["0 0", "0 1", "0 2"]),
    ("SELECT OFFSET 40 LIMIT 2", ["1 0", "1 1"]),
    ("SELECT ORDER BY ts DESC LIMIT 2", ["399 39", "399 38"]),
    ("SELECT FROM s > '01' LIMIT 2", ["0 2", "0 3"]),
    ("SELECT POSITION TAIL OFFSET -2", ["399 38", "399 39"]),
    ("SELECT RANGE ['1970-01-01T00:00:00.2':'1970-01-01T00:00:00.200001'] LIMIT 9", ["200 0", "200 1"]),
]


@pytest.mark.parametrize(("statement", "answer"), ASKED, ids=[statement for statement, _ in ASKED])
def test_few_records_take_little_memory(catalog, statement, answer):
    """A few records need a twentieth of the segment's size in memory, and are the right ones."""
    with aggregator.Allowance(memory_bytes=STREAMS * EACH * 200 // 20):
        assert [" ".join(line.split()[:2]) for line in catalog.query(statement).lines()] == answer
        assert [event.data.decode().rsplit(" ", 1)[0] for event in catalog.query(statement)] == answer


def test_records_far_apart_are_found(tmp_path):
    """If the first time span has too few records, longer ones are read."""
    with aggregator.open(tmp_path, durability="none") as catalog:
        for stream in range(STREAMS):
            times = [0] + [10**15 + n * STREAMS + stream for n in range(EACH)]
            catalog.write({"s": f"{stream:02d}"}, [{"ts": time, "msg": f"{time}"} for time in times])
        catalog.seal()
        found = list(catalog.query("SELECT OFFSET 39 LIMIT 3").lines())
        assert found == ["0", f"{10**15}", f"{10**15 + 1}"]
        last = 10**15 + EACH * STREAMS - 1
        assert list(catalog.query("SELECT ORDER BY ts DESC LIMIT 1").lines()) == [f"{last}"]
        every = list(catalog.query(f"SELECT LIMIT {STREAMS * (EACH + 1)}").lines())
        assert every == sorted(every, key=int)
        assert len(every) == STREAMS * (EACH + 1)
