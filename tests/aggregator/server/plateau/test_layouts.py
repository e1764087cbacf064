"""Columns as clients sent them: values get their layout back, and fields with nulls become nullable."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from aggregator.server.plateau.layouts import restore_layout
from aggregator.server.plateau.nullable import loosened, relabelled
from aggregator.server.plateau.projection import Focus

CODED = pa.dictionary(pa.int8(), pa.string())
LISTS = [["a", "b"], None, [], ["a"]]
PLAIN = pa.list_(pa.string())
SENT = {
    "texts": (["a", "b", "a", None], pa.string(), CODED),
    "lists": (LISTS, PLAIN, pa.list_(CODED)),
    "large lists": (LISTS, pa.large_list(pa.string()), pa.large_list(CODED)),
    "views": (LISTS, PLAIN, pa.list_view(CODED)),
    "large views": (LISTS, PLAIN, pa.large_list_view(CODED)),
    "pairs": ([["a", "b"], None, ["b", "b"]], pa.list_(pa.string(), 2), pa.list_(CODED, 2)),
    "maps": ([[("k", "a"), ("l", "b")], None, []], pa.map_(pa.string(), pa.string()), pa.map_(pa.string(), CODED)),
    "structs": ([{"a": "x"}, None, {"a": None}], pa.struct({"a": pa.string()}), pa.struct({"a": CODED})),
    "coded lists": (LISTS, PLAIN, pa.dictionary(pa.int8(), PLAIN)),
    "runs": ([1, 1, 2, None], pa.int64(), pa.run_end_encoded(pa.int16(), pa.int64())),
    "runs of lists": (LISTS, PLAIN, pa.run_end_encoded(pa.int32(), PLAIN)),
}


@pytest.mark.parametrize("case", SENT)
def test_restored_layouts(case):
    """Plain values get their layout back, also from a slice."""
    values, plain, kind = SENT[case]
    for array, expected in (
        (pa.array(values, plain), values),
        (pa.array([*values, *values], plain).slice(1, len(values)), [*values[1:], values[0]]),
    ):
        found = restore_layout(array, kind)
        found.validate(full=True)
        assert found.type == kind
        assert found.to_pylist() == expected


def test_more_than_the_type_counts():
    """Values of several batches may need wider indices or run ends than each batch."""
    texts = [str(n) for n in range(300)]
    found = restore_layout(pa.array(texts), CODED)
    assert (found.type.index_type, found.to_pylist()) == (pa.int64(), texts)
    found = restore_layout(pa.array(range(40_000)), pa.run_end_encoded(pa.int16(), pa.int64()))
    assert (found.type.run_end_type, found.to_pylist()) == (pa.int64(), list(range(40_000)))


def _item(null):
    return pa.field("item", pa.int64(), null)


HOLDERS = {
    "struct": lambda null: (pa.struct([pa.field("a", pa.int64(), null)]), lambda value: {"a": value}),
    "list": lambda null: (pa.list_(_item(null)), lambda value: [7, value]),
    "large list": lambda null: (pa.large_list(_item(null)), lambda value: [7, value]),
    "view": lambda null: (pa.list_view(_item(null)), lambda value: [7, value]),
    "large view": lambda null: (pa.large_list_view(_item(null)), lambda value: [7, value]),
    "pair": lambda null: (pa.list_(_item(null), 2), lambda value: [7, value]),
    "map": lambda null: (
        pa.map_(pa.string(), pa.field("value", pa.int64(), null)),
        lambda value: [("k", value)],
    ),
    "list of structs": lambda null: (
        pa.list_(pa.field("item", pa.struct([pa.field("a", pa.int64(), null)]), nullable=False)),
        lambda value: [{"a": value}],
    ),
}


@pytest.mark.parametrize("holder", HOLDERS)
@pytest.mark.parametrize(
    ("values", "whole", "part"), [([1, 2], False, False), ([1, None], False, True), ([1, ...], True, False)]
)
def test_loosened(holder, values, whole, part):
    """A field becomes nullable where it has nulls, at any depth, and nowhere else."""
    strict, hold = HOLDERS[holder](False)
    rows = [None if value is ... else hold(value) for value in values]
    table = pa.table({"c": pa.array(rows, HOLDERS[holder](True)[0])})
    schema = loosened(pa.schema([pa.field("c", strict, nullable=False)], {"m": "1"}), table)
    assert schema == pa.schema([pa.field("c", HOLDERS[holder](part)[0], nullable=whole)])
    assert schema.metadata == {b"m": b"1"}
    found = relabelled(table, schema)
    found.validate(full=True)
    assert found.schema == schema
    assert found["c"].to_pylist() == rows


def test_beneath_a_null():
    """A null in a part does not count if the whole is null."""
    parts = pa.StructArray.from_arrays([pa.array([1, None])], ["a"], mask=pa.array([False, True]))
    schema = pa.schema([pa.field("c", pa.struct([pa.field("a", pa.int64(), nullable=False)]))])
    assert loosened(schema, pa.table({"c": parts})) == schema


def test_run_ends_in_a_null_struct():
    """Flattening a null struct makes its run-end-encoded members null too, in arrays that Arrow accepts."""
    runs = pc.run_end_encode(pa.array(["a", "a", "b", None]))
    struct = pa.StructArray.from_arrays([runs, pa.array([1, 2, 3, 4])], ["x", "y"], mask=pa.array([False, True] * 2))
    table = pa.table({"s": pa.chunked_array([struct, struct.slice(1, 2)])})
    found = Focus(separator=".").select(table)
    found.validate(full=True)
    assert found.schema.field("s.x").type == runs.type
    assert found.to_pydict() == {"s.x": ["a", None, "b", None, None, "b"], "s.y": [1, None, 3, None, None, 3]}
    assert Focus(separator=".").select(table.slice(0, 0)).column_names == ["s.x", "s.y"]
