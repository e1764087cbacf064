"""From slices of nested fixed-size lists, pyarrow's take and filter return the values of other rows."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import aggregator
import esformat
from esformat.write.ordered_pieces import ordered_pieces


def matrices(count):
    """Events in a few spaces, each with a distinct matrix."""
    rows = np.arange(count)
    lines = pa.FixedSizeListArray.from_arrays(pa.array(np.arange(6.0 * count)), 3)
    matrix = pa.FixedSizeListArray.from_arrays(lines, 2)
    return pa.table(
        {
            "space": pa.array((rows % 7).astype(str)),
            "timestamp": rows,
            "n": rows,
            "even": pa.array(rows % 2 == 0),
            "matrix": matrix,
            "within": pa.StructArray.from_arrays([matrix], ["matrix"]),
        }
    )


def are_their_own(table):
    """Whether each event has its own matrix."""
    assert len(table)
    firsts = [6.0 * n for n in table["n"].to_pylist()]
    matrix, within = table["matrix"].to_pylist(), table["within"].to_pylist()
    return [m[0][0] for m in matrix] == firsts and matrix == [w["matrix"] for w in within]


@pytest.fixture(params=[10, 5000])
def segment(request, tmp_path):
    with esformat.create(tmp_path / "x.esdb", indexes=["n", "even"]) as writer:
        writer.add_table(matrices(request.param))
    with esformat.open(tmp_path / "x.esdb") as opened:
        yield opened


@pytest.mark.parametrize("options", [{}, {"limit": 3}, {"start": 6}], ids=str)
@pytest.mark.parametrize("reverse", [False, True])
def test_histories(segment, reverse, options):
    """A history, or a part of it, has the matrices of its own events."""
    assert are_their_own(segment["1"].scan(reverse=reverse, **options).to_table())
    assert are_their_own(segment["1"].scan_index("even", True, reverse=reverse, **options).to_table())
    assert are_their_own(segment.scan(reverse=reverse, **options).to_table())


def test_one_value_of_an_index(segment):
    """So has an event that is found by an index."""
    assert are_their_own(segment.scan_index("n", 8).to_table())


def test_files_together(segment):
    """So have histories of several files, merged."""
    with esformat.open_many([segment.path, segment.path]) as both:
        assert are_their_own(both["1"].scan(reverse=True).to_table())
        assert are_their_own(both.scan(reverse=True, limit=9).to_table())


def test_rows_of_one_batch():
    """So have rows of a slice of a single batch."""
    (batch,) = matrices(9).combine_chunks().to_batches()
    (piece,) = ordered_pieces([batch.slice(3)], np.array([2, 1]))
    assert are_their_own(pa.Table.from_batches([piece]))


def test_filters(tmp_path):
    """So have the rows of a filter over more events than pyarrow filters at a time."""
    with esformat.create(tmp_path / "large.esdb") as writer:
        writer.add_table(matrices(70_000))
    with esformat.open(tmp_path / "large.esdb") as segment:
        events = segment.dataset()
        assert are_their_own(events.to_table(filter=pc.field("n") > 9))
        columns = {name: pc.field(name) for name in ("n", "matrix", "within")}
        assert are_their_own(events.to_table(columns=columns, filter=pc.field("n") > 9))


def test_catalogs(tmp_path):
    """So have events of a catalog, sealed or not."""
    with aggregator.open(tmp_path / "data") as catalog:
        topic = catalog.create_topic("t", indexes=["even"])
        topic.append(matrices(500))
        for _ in "us":
            assert are_their_own(topic.scan(space="1", reverse=True, limit=9).to_table())
            assert are_their_own(topic.scan_index("even", True, start=300).to_table())
            catalog.seal()
