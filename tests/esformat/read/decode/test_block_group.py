"""Groups of blocks: a few rows among many get their keys from the right leaf, as do many rows."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

import esformat
from esformat.read.decode import block_group


@pytest.mark.parametrize("keys", ["text", "binary"])
def test_keys_of_few_rows(tmp_path, monkeypatch, keys):
    """Keys of a few rows in several leaves are right, with and without groupings, as columns and as events."""
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


MAP = pa.map_(pa.string(), pa.string())
COLUMNS = {
    "map": (MAP, lambda n: {"a": str(n)} if n % 3 else {}),
    "list": (pa.list_(pa.int64()), lambda n: list(range(n % 4))),
    "pair": (pa.list_(pa.int64(), 2), lambda n: [n, -n]),
    "struct": (pa.struct({"a": pa.int64(), "b": pa.string()}), lambda n: {"a": n, "b": str(n)}),
    "number": (pa.int64(), lambda n: n),
    "wide": (pa.decimal128(30), lambda n: n << 64),
}


def test_columns_without_values(tmp_path):
    """A column without values in some blocks is decoded right: for all rows, few, and many adjacent ones."""
    count = 14_000
    there = np.repeat([False, True, False, True, False], [5000, 3000, 4500, 1000, 500])
    there[[8000, 8001, 12_000]] = True
    rows = {
        name: pa.array([make(n) if has else None for n, has in enumerate(there.tolist())], kind)
        for name, (kind, make) in COLUMNS.items()
    }
    table = pa.table({"space": ["s"] * count, "timestamp": np.arange(count), "data": [b"x"] * count} | rows)
    with esformat.create(tmp_path / "a.esdb", schema=table.schema) as writer:
        writer.add_table(table)
    random = np.random.default_rng(1)
    chosen = [random.random(count) < part for part in (0.0003, 0.01, 0.9)]
    chosen += [np.isin(np.arange(count), some) for some in (range(100), range(4000, 9000), [0, 2047], [8001], [13_999])]
    with esformat.open(tmp_path / "a.esdb") as segment:
        assert segment.scan(columns=[*COLUMNS]).to_table().to_pydict() == table.select([*COLUMNS]).to_pydict()
        for mask in chosen:
            wanted = table.select([*COLUMNS]).filter(pa.array(mask)).to_pydict()
            scan = segment.scan(columns=[*COLUMNS])
            found = scan.matching(["timestamp"], lambda batch, mask=mask: pa.array(mask[batch[0].cast("int64")]))
            assert pa.Table.from_batches(found, scan.schema).to_pydict() == wanted
