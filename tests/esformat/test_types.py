"""Typed and nested columns, with or without bytes: every Arrow type is written and read back."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from arrow_strategies import NESTED_TYPES, PLAIN_TYPES, array_of, types
from effort import examples, share_of
from hypothesis import given
from hypothesis import strategies as st
from small_pieces import Pieces, cut_small

import esformat


def round_trip(
    columns: dict[str, pa.Array], pieces: Pieces, **options: object
) -> tuple[pa.Table, list[esformat.Event]]:
    """The table and the events of a file with these columns, in one space, in order."""
    count = len(next(iter(columns.values())))
    table = pa.table({"space": pa.array(["a"] * count, pa.string()), "timestamp": range(count)} | columns)
    with tempfile.TemporaryDirectory() as directory, cut_small(pieces):
        path = Path(directory) / "typed.esdb"
        with esformat.create(path, **options) as writer:
            writer.add_table(table)
        with esformat.open(path) as segment:
            return segment.scan().to_table(), list(segment.scan())


def python_value(value: pa.Scalar) -> Any:
    """A value as Python shows it, or Python's error for one that it cannot represent, such as the year 10000."""
    try:
        return value.as_py()
    except (OverflowError, ValueError) as error:
        return type(error)


@pytest.mark.parametrize("kind", share_of(PLAIN_TYPES + NESTED_TYPES, 2), ids=str)
@examples(8)
@given(data=st.data())
def test_every_type(kind, data):
    """Every type is read back as a column and by event, in one block and many, with and without nulls."""
    array = data.draw(array_of(kind))
    pieces = Pieces(
        block_rows=data.draw(st.sampled_from([2, 5, 1024])), frame_bytes=data.draw(st.sampled_from([4, 8192]))
    )
    table, events = round_trip({"x": array}, pieces, codec=data.draw(st.sampled_from(["zstd", "none"])))
    assert table.schema.field("x").type == kind
    assert table["x"].combine_chunks().equals(array)
    for event, expected in zip(events, map(python_value, array), strict=True):
        assert event.columns["x"] == expected or isinstance(expected, type)


@examples(60)
@given(st.data())
def test_several_columns(data):
    """Columns of any types are read back together, with and without `data`."""
    count = data.draw(st.integers(0, 6))
    texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=3)
    names = data.draw(st.lists(texts, min_size=1, max_size=4, unique=True))
    columns = {}
    for name in {*names} - {"space", "grouping", "timestamp"}:
        array = data.draw(array_of(data.draw(types()), max_size=count))
        columns[name] = pa.concat_arrays([array, pa.nulls(count - len(array), array.type)])
    if not columns:
        return
    table, events = round_trip(columns, Pieces(block_rows=data.draw(st.sampled_from([1, 4, 1024]))))
    assert len(events) == count
    for name, array in columns.items():
        assert table[name].combine_chunks().equals(array)


@pytest.mark.parametrize("kind", PLAIN_TYPES + NESTED_TYPES, ids=str)
def test_nothing_but_nulls(kind):
    """A column of only nulls is read back, whatever its type."""
    table, events = round_trip({"x": pa.nulls(7, kind)}, Pieces(block_rows=3))
    assert table["x"].null_count == 7
    assert [event.columns for event in events] == [{"x": None}] * 7


REPEATED = pa.array(["page", None, "signup", "page"] * 20)


@pytest.mark.parametrize(
    "array",
    [
        REPEATED,
        REPEATED.cast(pa.large_string()),
        REPEATED.dictionary_encode(),
        pa.chunked_array([REPEATED[:33].dictionary_encode(), REPEATED[33:].dictionary_encode()]),
        pa.RunEndEncodedArray.from_arrays([40, 80], pa.array(["x", None])),
        REPEATED.cast(pa.string_view()),
    ],
    ids=lambda array: str(array.type),
)
@pytest.mark.parametrize("indexed", [False, True])
def test_text_that_repeats_itself(array, indexed):
    """Repetitive text is stored as dictionary codes and read as plain text."""
    indexes = ["x"] if indexed else []
    table, events = round_trip({"x": array}, Pieces(block_rows=10), indexes=indexes)
    assert table["x"].type in (pa.string(), pa.large_string())
    assert table["x"].to_pylist() == array.to_pylist()
    shown = [event.indexes.get("x") if indexed else event.columns["x"] for event in events]
    assert shown == array.to_pylist()


def test_data_frame_with_every_kind_of_column(tmp_path):
    """A pandas frame is read back equal."""
    frame = pd.DataFrame(
        {
            "space": ["b", "a", "a"],
            "timestamp": pd.to_datetime([1_403_534_919_000_001, -86_400_000_000, 5], unit="us", utc=True).as_unit("us"),
            "whole": [1, 2, 3],
            "part": [1.5, float("nan"), -0.0],
            "flag": [True, False, True],
            "text": ["x", None, "é"],
            "day": pd.to_datetime(["2014-01-01", None, "1900-01-01"]).as_unit("s"),
            "kind": pd.Categorical(["p", "q", "p"]),
        }
    )
    with esformat.create(tmp_path / "a.esdb") as writer:
        writer.add_table(frame)
    with esformat.open(tmp_path / "a.esdb") as segment:
        found = segment.scan(columns=list(frame.columns)).to_pandas()
        assert (
            segment.scan().to_pandas(types_mapper={pa.int64(): pd.Int64Dtype()}.get)["whole"].dtype == pd.Int64Dtype()
        )
    expected = (
        frame.sort_values(["space", "timestamp"]).reset_index(drop=True).assign(kind=lambda f: f["kind"].astype("str"))
    )
    pd.testing.assert_frame_equal(found, expected)
