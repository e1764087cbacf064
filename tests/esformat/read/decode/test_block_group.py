"""Groups of blocks: few rows of many get their keys from the right leaf, as many rows do."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

import esformat
from esformat.read.decode import block_group


@pytest.mark.parametrize("keys", ["text", "binary"])
def test_keys_of_few_rows(tmp_path, monkeypatch, keys):
    """Of rows in several leaves, with groupings and without, as columns and as events."""
    rng = np.random.default_rng(1)
    kind = pa.binary() if keys == "binary" else pa.string()
    for groupings in (1, 3):
        times = rng.permutation(9000)
        table = pa.table({
            "space": pa.array([f"space-{n % 3000:04d}" for n in range(9000)]).cast(kind),
            "grouping": pa.array(["" if groupings == 1 else f"g{n % groupings}" for n in range(9000)]).cast(kind),
            "timestamp": times, "data": [b"%d" % n for n in range(9000)],
        })  # fmt: skip
        path = tmp_path / f"{groupings}.esdb"
        with esformat.create(path, keys=keys) as writer:
            writer.add_table(table)
        with esformat.open(path) as segment:
            assert len(segment._reader.root) > 3
            for first, count in ((5000, 1), (100, 2), (8000, block_group.FEW_KEYS), (0, block_group.FEW_KEYS + 1)):
                scan = segment.scan(start=first, end=first + count)
                few, events = scan.to_table(), list(scan)
                assert len(few) == len(events) == count
                with monkeypatch.context() as patched:
                    patched.setattr(block_group, "FEW_KEYS", 0)
                    assert scan.to_table() == few
                    assert list(scan) == events
                known = dict(zip(times.tolist(), zip(*(table[name].to_pylist() for name in ("space", "grouping")),
                                                     strict=True), strict=True))  # fmt: skip
                assert [(event.space, event.grouping) for event in events] == [
                    known[event.timestamp] for event in events
                ]
