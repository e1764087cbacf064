"""The memtable: tiny batches are joined, and lookups equal a plain search."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from effort import ALL, examples
from hypothesis import given
from hypothesis import strategies as st

from aggregator.model import SchemaInfo
from aggregator.storage.memtable import lookup as lookup_module
from aggregator.storage.memtable import memtable as module
from aggregator.storage.memtable.batch import join, make_batch, times_of
from aggregator.storage.memtable.lookup import Rows, look_up
from aggregator.storage.memtable.memtable import Memtable
from esformat.parts import default_schema

SCHEMAS = [SchemaInfo(number, 1, 1, default_schema([], binary_keys=False)) for number in (1, 2)]


def batch_of(first, spaces, schema=SCHEMAS[0], *, as_message=False):
    """A batch, or the message that it is read from."""
    columns = {
        "space": spaces,
        "timestamp": pa.array(range(first, first + len(spaces))).cast(pa.timestamp("us", "UTC")),
        "grouping": [""] * len(spaces),
        "data": [b"%d" % (first + number) for number in range(len(spaces))],
    }
    arrow = schema.schema.arrow
    batch = pa.record_batch([pa.array(columns[field.name], field.type) for field in arrow], schema=arrow)
    made = make_batch(first, schema, batch, batch.nbytes, 7)
    return replace(made, content=batch.serialize().to_pybytes()) if as_message else made


def add(memtable, some):
    """Add a batch and join small ones, as a catalog's state does."""
    memtable.add(some)
    end = None
    while few := memtable.small_ones(end):
        end = memtable.replace(few, join(few))


@pytest.mark.parametrize("given_as", ["batches", "messages", "both"])
@examples(60)
@given(
    st.lists(
        st.tuples(
            st.lists(st.sampled_from("abcd"), min_size=1, max_size=4),
            st.integers(0, 1),
            st.integers(0, 2),
            st.booleans(),
        ),
        max_size=60,
    ),
)
def test_lookups(given_as, steps):
    """Lookups find every event once, in order, whatever the sizes, schemas and gaps between record indexes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "MERGED", 3)
        patch.setattr(lookup_module, "MAX_LOOKUP_ROWS", 5)
        patch.setattr(lookup_module, "FEW_RUNS", 2)
        patch.setattr(lookup_module, "NEWEST_ROWS", 3)
        patch.setattr(lookup_module, "INDEXED_ROWS", 2)
        patch.setattr(lookup_module, "INDEX_AFTER", 1)
        patch.setattr(lookup_module, "COMMON_SHARE", 1)
        memtable = Memtable.empty()
        expected = []
        at = 0
        for spaces, schema, gap, look in steps:
            at += gap
            as_message = given_as == "messages" or (given_as == "both" and look)
            add(memtable, batch_of(at, spaces, SCHEMAS[schema], as_message=as_message))
            expected += [(at + number, space) for number, space in enumerate(spaces)]
            at += len(spaces)
            if look:
                memtable.lookups = look_up(tuple(memtable.batches), memtable.lookups)
                for lookup in memtable.lookups:
                    rows, times = lookup.having(b"b")
                    assert rows.tolist() == lookup.find(b"b").tolist()
                    assert times.tolist() == lookup.times[rows].tolist()
                    assert len(lookup.times) == lookup.edges[-1] == lookup.rows
        lookups = look_up(tuple(memtable.batches), memtable.lookups)
        assert sum(lookup.rows for lookup in lookups) == memtable.rows == len(expected)
        for space in ("a", "d", "absent"):
            for _ in range(3):
                found = [
                    row | {"record_index": int(number)}
                    for lookup in lookups
                    if len(rows := lookup.having(space.encode())[0])
                    for row, number in rows_of(Rows([lookup]).take(rows, ["space", "data"]))
                ]
                assert found == [
                    {"space": space, "data": b"%d" % index, "record_index": index}
                    for index, s in expected
                    if s == space
                ]
        for group in groups(lookups):
            rows = Rows(group)
            assert [lookup.times.tolist() for lookup in group] == [
                [time for p in lookup.batches for time in times_of(p.events).tolist()] for lookup in group
            ]
            order = np.random.default_rng(len(expected)).permutation(rows.bases[-1])
            for some in (np.arange(rows.bases[-1]), np.arange(rows.bases[-1])[::-1], order):
                wanted = [int(number) for lookup in group for p in lookup.batches for number in p.record_indexes()]
                taken, numbers = rows.take(some, ["data", "space"])
                assert taken.schema.names == ["data", "space"]
                assert numbers.tolist() == [wanted[row] for row in some]
                assert taken.column("data").to_pylist() == [b"%d" % wanted[row] for row in some]
        whole = [int(number) for lookup in lookups for p in lookup.batches for number in p.record_indexes()]
        assert whole == [index for index, _ in expected]
        for index in (0, at // 2, at):
            left = memtable.after(index)
            numbers = [int(number) for p in left.batches for number in p.record_indexes()]
            assert numbers == [number for number, _ in expected if number >= index]


def rows_of(taken):
    """Each row taken, with its record index."""
    batch, numbers = taken
    return zip(batch.to_pylist(), numbers, strict=True)


def groups(lookups):
    """Lookups by schema, in order."""
    return [found for s in SCHEMAS if (found := [lookup for lookup in lookups if lookup.batches[0].schema is s])]


def test_newest_batches_stand_apart():
    """The newest of many batches have a separate lookup; none is built before its use, and there are few of them."""
    memtable = Memtable.empty()
    for number in range(0, 60_000, 1000):
        memtable.add(replace(batch_of(number, ["a"] * 1000), size_bytes=1 << 20))
    found = look_up(tuple(memtable.batches[:5]), ())
    assert [len(lookup.batches) for lookup in found] == [3, 2]
    found = look_up(tuple(memtable.batches), found)
    assert [len(lookup.batches) for lookup in found] == [58, 2]
    assert not any({"times", "edges", "_index"} & set(vars(lookup)) for lookup in found)
    for number in range(60_000, 400_000, 1000):
        memtable.add(replace(batch_of(number, ["a"] * 1000), size_bytes=1 << 20))
        found = look_up(tuple(memtable.batches), found)
        assert found[-1].rows == 2000
        assert len(found) < 12


def test_tiny_batches_are_put_together():
    """Thousands of tiny batches become a few, without losing an event."""
    memtable, count = Memtable.empty(), 10_000 if ALL else 2_000
    for number in range(count):
        add(memtable, batch_of(number, ["a"]))
    assert len(memtable.batches) < 200
    assert np.concatenate([p.record_indexes() for p in memtable.batches]).tolist() == list(range(count))
    assert memtable.rows == count
    assert memtable.oldest_us == 7


def test_more_came_meanwhile():
    """Batches that arrive while others are joined stay after them; batches being sealed are not joined."""
    memtable = Memtable.empty()
    for number in range(module.MERGED + 3):
        memtable.add(batch_of(number, ["a"]))
    few = memtable.small_ones()
    assert [p.first_index for p in few] == list(range(module.MERGED))
    sealing, left = memtable.split(10 * few[0].size_bytes)
    before = list(sealing.batches), list(left.batches)
    assert sealing.replace(few, join(few)) is None
    assert left.replace(few, join(few)) is None
    assert (sealing.batches, left.batches) == before
    assert memtable.replace(few, join(few)) == 1
    assert [p.rows for p in memtable.batches] == [module.MERGED, 1, 1, 1]
    assert memtable.small_ones(1) is None
    assert memtable.small_ones(module.MERGED + 3) is None  # from a time when there were more


@pytest.mark.parametrize("batches", [1, 40])
def test_batches_that_come_at_once_are_put_together(batches):
    """If several batches arrive before joining, joined ones are joined again, and single ones follow them."""
    memtable, count = Memtable.empty(), 4000 if ALL else 1000
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "MERGED", 5)
        for number in range(0, count, batches):
            for more in range(batches - 1):
                memtable.add(batch_of(number + more, ["a"]))
            add(memtable, batch_of(number + batches - 1, ["a"]))
    assert len(memtable.batches) < 60
    assert np.concatenate([p.record_indexes() for p in memtable.batches]).tolist() == list(range(count))


@given(st.lists(st.integers(1, 5), min_size=1, max_size=20), st.integers(0, 3000))
def test_split(counts, size_bytes):
    """A split returns the first batches that reach the size, at least one, and the others; counts add up."""
    whole = Memtable.empty()
    for count in counts:
        add(whole, batch_of(whole.rows, ["a"] * count))
    batches, rows, size = list(whole.batches), whole.rows, whole.size_bytes
    whole.lookups = look_up(batches, ())
    first, others = whole.split(size_bytes)
    assert first.batches + others.batches == batches
    assert first.rows + others.rows == rows
    assert first.size_bytes + others.size_bytes == size
    for part in (first, others):
        assert part.rows == sum(each.rows for each in part.batches)
        assert part.size_bytes == sum(each.size_bytes for each in part.batches)
        assert [each for lookup in look_up(part.batches, part.lookups) for each in lookup.batches] == part.batches
    assert first.batches
    assert first.size_bytes - first.batches[-1].size_bytes < size_bytes or len(first.batches) == 1
    assert not others.batches or first.size_bytes >= size_bytes


@examples(60)
@given(st.lists(st.integers(1, 4), min_size=1, max_size=40), st.integers(1, 400), st.integers(0, 3))
def test_splits_fall_between_batches(sizes, size_bytes, passed):
    """Parts contain all events in order, end at the end of a batch, and are not larger than their size requires."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "MERGED", 3)
        left = Memtable.empty()
        ends = np.cumsum(sizes)
        for rows, end in zip(sizes, ends, strict=True):
            add(left, batch_of(int(end) - rows, ["a"] * rows))
        left = left.after(min(passed, int(ends[-1]) - 1))  # like a reader, which may not know where batches end
        seen, most = [], max(size // rows for size, rows in ((p.size_bytes, p.rows) for p in left.batches))
        while left.batches:
            first, left = left.split(size_bytes)
            assert first.end_index in ends
            assert first.size_bytes <= size_bytes + (most + 1) * max(sizes) + len(sizes)
            assert (first.rows, first.size_bytes) == (
                sum(p.rows for p in first.batches), sum(p.size_bytes for p in first.batches),
            )  # fmt: skip
            seen += [index for p in first.batches for index in p.record_indexes().tolist()]
        assert seen == list(range(min(passed, int(ends[-1]) - 1), int(ends[-1])))
