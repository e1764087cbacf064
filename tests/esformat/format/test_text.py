"""Text of a block: each value must be UTF-8, not only all of them together."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from effort import examples
from hypothesis import given
from hypothesis import strategies as st

from esformat.errors import CorruptSegmentError
from esformat.format.arrays import bytes_array, repeated_key

PIECES = ["", "a", "é", "漢", "😀", "plain text of some length"]


def _array(values: list[bytes], kind: pa.DataType) -> pa.Array:
    return bytes_array(np.array([len(value) for value in values], np.int64), pa.py_buffer(b"".join(values)), kind)


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string()], ids=str)
@examples(100)
@given(texts=st.lists(st.lists(st.sampled_from(PIECES)).map("".join), max_size=6), cut=st.data())
def test_as_each_value_by_itself(kind, texts, cut):
    """Values are accepted only if each is UTF-8, wherever the bytes are divided into values."""
    stored = "".join(texts).encode() + cut.draw(st.sampled_from([b"", b"\xff", b"\xc3"]))
    edges = sorted(cut.draw(st.lists(st.integers(0, len(stored)), max_size=5)))
    values = [stored[a:b] for a, b in zip([0, *edges], [*edges, len(stored)], strict=True)]
    try:
        expected = [value.decode() for value in values]
    except UnicodeDecodeError:
        with pytest.raises(CorruptSegmentError, match="stored text is broken"):
            _array(values, kind)
    else:
        found = _array(values, kind)
        found.validate(full=True)
        assert found.to_pylist() == expected


def test_bytes_that_end_early():
    """Lengths beyond the end of the bytes are refused before anything is read."""
    with pytest.raises(CorruptSegmentError, match="end early"):
        bytes_array(np.array([3, 5], np.int64), pa.py_buffer(b"abcd"), pa.string())


@pytest.mark.parametrize("kind", [pa.string(), pa.binary()], ids=str)
def test_one_key_for_every_row(kind):
    """A key is repeated for each row, even if it is empty or there are no rows."""
    for key, count in ((b"abc", 3), (b"", 2), (b"x", 0)):
        found = repeated_key(key, kind, count)
        found.validate(full=True)
        assert found.to_pylist() == [key if pa.types.is_binary(kind) else key.decode()] * count
