"""Signatures of keys: a function of the bytes alone, whatever column they are in, and different for different keys."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from aggregator.signatures import signature_of, signatures_of

TYPES = st.sampled_from([pa.binary(), pa.large_binary()])


@given(st.lists(st.binary(max_size=80)), TYPES, st.integers(0, 3), st.integers(0, 3))
def test_signatures_do_not_depend_on_the_neighbours(keys, kind, front, back):
    """A slice of a longer column gives what each key alone gives."""
    column = pa.array([b"before"] * front + keys + [b"after"] * back, kind).slice(front, len(keys))
    assert signatures_of(column).tolist() == [int(signature_of(key)) for key in keys]


@given(st.text(max_size=20))
def test_text_and_bytes_have_one_signature(key):
    """A question is asked in bytes, whatever the keys of a topic are."""
    assert signatures_of(pa.array([key]))[0] == signature_of(key.encode())


def test_numbered_keys_differ():
    """Of a hundred thousand keys that differ in one place, hardly any share a signature."""
    for form in (
        "customer-%06d",
        "%06d",
        "%06d@a-rather-long-name.example.org",
        "a-rather-long-prefix/%06d/and-a-suffix",
    ):
        keys = pa.array([form % number for number in range(100_000)])
        assert len(np.unique(signatures_of(keys))) > 99_000, form
