"""Removal of members from JSON objects. The other text is unchanged: numbers keep their digits, keys their order."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import pyarrow as pa

from esformat.core.json_paths import without_members
from esformat.format.arrays import bytes_array, bytes_of


def without(objects: pa.StringArray, names: Collection[str]) -> pa.StringArray:
    """Return `objects`, which must be valid JSON objects, without the members called `names`."""
    edges, data = bytes_of(objects)
    keys = [name.encode("utf-8", "surrogatepass") for name in names]
    key_edges = np.cumsum([0, *map(len, keys)])
    lengths = np.zeros(len(objects), np.int64)
    left = without_members(np.frombuffer(data, np.uint8), edges, b"".join(keys), key_edges, lengths)
    return bytes_array(lengths, pa.py_buffer(left), pa.string())
