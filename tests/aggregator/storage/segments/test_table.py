"""Selecting segments equals checking each, whatever was added and removed before."""

from __future__ import annotations

import numpy as np
import pytest
from effort import examples, share_of
from hypothesis import given
from hypothesis import strategies as st

import aggregator
from aggregator.model import SegmentInfo
from aggregator.storage.segments import table as segment_table
from aggregator.storage.segments.signature import MAX_SPACES, can_hold, columns_of, signature_of_spaces
from aggregator.storage.segments.table import Bounds, SegmentTable, key_prefix

KEYS = st.binary(max_size=3).map(lambda tail: b"customer-" + tail) | st.sampled_from([b"", b"\xff" * 12, b"customer"])


@st.composite
def infos(draw, number):
    low, high = sorted([draw(KEYS), draw(KEYS)])
    first, last = sorted([draw(st.integers(0, 20)), draw(st.integers(0, 20))])
    start, end = sorted([draw(st.integers(-5, 5)), draw(st.integers(-5, 5))])
    return SegmentInfo(number, draw(st.integers(1, 3)), 1, first, last, start, end, low, high, 1, 1, 1, 0, 0)


BOUNDS = st.builds(
    Bounds, st.none() | KEYS, st.none() | st.integers(-6, 6), st.none() | st.integers(-6, 6),
    st.none() | st.integers(1, 3), st.none() | st.integers(0, 21), st.none() | st.integers(0, 21),
)  # fmt: skip


@pytest.fixture(autouse=True, scope="module")
def small():
    """Make the table grow and compact after a few segments."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(segment_table, "_LEAST_CAPACITY", 4)
        patch.setattr(segment_table, "_MANY_GONE", 4)
        patch.setattr(segment_table, "FEW_SPACES", 2)
        yield


def overlaps(info, bounds):
    """Whether a segment satisfies the bounds, checked directly."""
    return (
        (bounds.space is None or info.min_space <= bounds.space <= info.max_space)
        and (bounds.start is None or info.max_timestamp >= bounds.start)
        and (bounds.end is None or info.min_timestamp < bounds.end)
        and bounds.partition in (None, info.partition)
        and (bounds.first_index is None or info.last_index >= bounds.first_index)
        and (bounds.end_index is None or info.first_index < bounds.end_index)
    )


@examples(60)
@given(st.data())
def test_selection(data):
    """Selection is right after any additions and removals; views show the segments at their creation."""
    table = SegmentTable()
    there = {}
    views = []
    number = 0
    for _ in range(data.draw(st.integers(1, 4))):
        new = []
        for _ in range(data.draw(st.integers(0, 8))):
            number += 1
            new.append(data.draw(infos(number)))
        table.add(new)
        there |= {info.number: info for info in new}
        gone = data.draw(st.lists(st.integers(1, max(1, number)), max_size=10))
        table.remove(gone)
        for place in gone:
            there.pop(place, None)
        views.append((table.view(), list(there.values())))
        if data.draw(st.booleans()):  # from now on their columns exist and grow
            table.view().select(data.draw(BOUNDS))
        assert len(table) == len(there)
        assert all(number in table for number in there)
    bounds, ends = data.draw(BOUNDS), data.draw(st.dictionaries(KEYS, st.integers(0, 21), max_size=12))
    asked = [Bounds(space=space, partition=2, end_index=end) for space, end in ends.items()]
    for view, expected in views:
        assert list(view.holding(2, ends)) == [info for info in expected if any(overlaps(info, each) for each in asked)]
        assert list(view) == expected
        assert len(view) == len(expected)
        assert view.select(bounds) == [info for info in expected if overlaps(info, bounds)]


@given(KEYS, KEYS, st.binary(max_size=12))
def test_prefixes_order_as_keys(left, right, common):
    """A smaller key never has a larger prefix number."""
    if left <= right:
        assert key_prefix(left, common) <= key_prefix(right, common)


def test_what_keys_begin_with_becomes_shorter():
    """Segments are still found, also by earlier views, after segments with another common key prefix arrive."""
    keys = [b"customer-%06d" % number for number in range(20)]
    older = [SegmentInfo(n, 1, 1, 0, 9, 0, 9, key, key, 1, 1, 1, 0, 0) for n, key in enumerate(keys)]
    newer = [SegmentInfo(n + 20, 1, 1, 0, 9, 0, 9, key[3:], key[3:], 1, 1, 1, 0, 0) for n, key in enumerate(keys)]
    table = SegmentTable(older[:9])
    before = table.view()
    for infos in ((), older[9:], newer):
        table.add(infos)
        there = list(table.view())
        for key in (key for info in there for key in (info.min_space, info.min_space + b"0")):
            bounds = Bounds(space=key)
            assert table.view().select(bounds) == [info for info in there if info.min_space == key]
            assert before.select(bounds) == [info for info in older[:9] if info.min_space == key]


def test_segments_without_the_space_are_passed_over():
    """Among segments with the same key range, those with few spaces are selected by their signature, others always."""
    infos = []
    for number in range(200):
        spaces = [b"customer-%03d-%d" % (number, place) for place in range(20)]
        infos.append(SegmentInfo(number, 1, 1, 0, 9, 0, 9, b"a", b"z", 1, 1, 1, 0, 0, signature_of_spaces(spaces)))
    unsigned = SegmentInfo(999, 1, 1, 0, 9, 0, 9, b"a", b"z", 1, 1, 1, 0, 0)
    view = SegmentTable([*infos, unsigned]).view()
    chosen, asked = 0, share_of(range(200), 5)
    for number in asked:
        found = view.select(Bounds(space=b"customer-%03d-7" % number))
        assert infos[number] in found
        assert unsigned in found
        ends = {b"customer-%03d-7" % number: 9, **{b"b%d" % other: 9 for other in range(number % 40)}}
        assert set(found) <= set(view.holding(1, ends))
        chosen += len(found) - 2
    assert chosen < len(asked) * 200 / 100
    everywhere = {b"customer-%03d-%d" % (number, place): 1 for number in range(200) for place in range(7, 20)}
    assert list(view.holding(1, everywhere)) == [*infos, unsigned]


@given(st.lists(st.binary(max_size=12), max_size=MAX_SPACES))
def test_signatures_hold_what_they_were_made_of(spaces):
    """A signature never excludes a space that it contains."""
    columns = columns_of([signature_of_spaces(spaces)])
    assert all(can_hold(columns, space)[0] for space in spaces)


@pytest.mark.parametrize("spaces", [3, MAX_SPACES + 1])
def test_catalogs_find_every_space(tmp_path, spaces):
    """Every space is found after sealing, merging with other spaces, reopening and rebuilding the manifest."""

    def counts(topic):
        names = [f"{segment}-{place}" for segment in range(3) for place in range(spaces)]
        chosen = [topic.scan(space=name).count() for name in names[:: max(1, spaces // 10)]]
        return set(chosen), topic.scan(space="0-absent").count(), topic.scan().count()

    expected = {1}, 0, 3 * spaces
    root = tmp_path / "data"
    with aggregator.open(root) as catalog:
        topic = catalog.create_topic("t")
        for segment in range(3):
            topic.append([{"space": f"{segment}-{place}", "timestamp": place} for place in range(spaces)])
            catalog.seal()
        assert counts(topic) == expected
        catalog.compact()
        assert counts(topic) == expected
    with aggregator.open(root) as catalog:
        assert counts(catalog.topic("t")) == expected
    (root / "manifest.sqlite").unlink()
    aggregator.rebuild_manifest(root)
    with aggregator.open(root) as catalog:
        assert counts(catalog.topic("t")) == expected


@examples(100)
@given(BOUNDS, st.lists(st.tuples(st.integers(-6, 6), st.integers(-6, 6)), min_size=1, max_size=6))
def test_rows_within_bounds(bounds, rows):
    """Masks keep the rows within the bounds, and skipping a batch loses no row."""
    times, indexes = (np.array(column) for column in zip(*rows, strict=True))
    kept = [bool(all(mask[row] for mask in bounds.masks(times, indexes))) for row in range(len(rows))]
    limits = ((bounds.start, bounds.end), (bounds.first_index, bounds.end_index))
    expected = [
        all(
            (low is None or low <= at) and (end is None or at < end) for at, (low, end) in zip(row, limits, strict=True)
        )
        for row in rows
    ]
    assert kept == expected
    spans = [(int(column.min()), int(column.max())) for column in (times, indexes)]
    assert bounds.overlap(*spans) or not any(kept)
