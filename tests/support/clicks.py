"""A file of realistic clicks: skewed spaces, JSON payloads, two indexes, nearly ordered times; also as a frame."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

import esformat

if TYPE_CHECKING:
    import pandas as pd

TYPES = ["page", "search", "cart", "purchase", "signup"]


def click_table(count: int, seed: int = 7) -> pa.Table:
    """Events in order of arrival: about 25 per space, times with jitter and ties."""
    rng = np.random.default_rng(seed)
    spaces = np.minimum(rng.zipf(1.3, count), count // 25)
    times = 1_403_534_919_000_000 + np.arange(count) * 1000 + rng.integers(-50, 50, count) * 1000
    kinds = rng.choice(5, count, p=[0.7, 0.15, 0.09, 0.05, 0.01])
    countries = rng.integers(0, 31, count)
    data = [
        json.dumps({"url": f"/products/{n % 977}", "agent": "Mozilla/5.0 (X11; Linux)", "session": s}).encode()
        for n, s in zip(range(count), rng.bytes(8 * count).hex(":", 8).split(":"), strict=True)
    ]
    return pa.table(
        {
            "space": [f"customer-{n}" for n in spaces.tolist()],
            "grouping": [("app", "web", "")[n] for n in rng.integers(0, 3, count).tolist()],
            "timestamp": pa.array(times, pa.timestamp("us", "UTC")),
            "data": data,
            "type": [TYPES[n] for n in kinds.tolist()],
            "country": [f"C{n:02}" if n < 30 else None for n in countries.tolist()],
        }
    )


def write_clicks(path: Path, table: pa.Table, **options: object) -> None:
    """Write a table of clicks with both indexes."""
    with esformat.create(path, indexes=["type", "country"], **options) as writer:
        writer.add_table(table)


def in_file_order(table: pa.Table) -> pd.DataFrame:
    """The events of a table in segment order, with times in µs."""
    frame = table.set_column(2, "timestamp", table["timestamp"].cast(pa.int64())).to_pandas()
    return frame.sort_values(["space", "grouping", "timestamp"], kind="stable", ignore_index=True)


def frame_of(scan: esformat.Scan) -> pd.DataFrame:
    """A scan's rows, with times in µs."""
    table = scan.to_table()
    return table.set_column(2, "timestamp", table["timestamp"].cast(pa.int64())).to_pandas()


def frame_of_events(scan: esformat.Scan) -> pd.DataFrame:
    """The same rows from the scan's events."""
    rows = [(e.space, e.grouping, e.timestamp, e.data, e.indexes.get("type"), e.indexes.get("country")) for e in scan]
    import pandas as pd  # imported here because the process that starts test processes does not need it

    frame = pd.DataFrame(rows, columns=["space", "grouping", "timestamp", "data", "type", "country"])
    return frame.astype({"timestamp": "int64"})
