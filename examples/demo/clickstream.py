"""A seeded, realistic click stream as an Arrow table: the events of the demo and the benchmarks.

Shape: about one space per 50 events with Zipf-skewed sizes (median near 8, none above 20,000), arrival in time
order with jitter, an index `type` of 5 skewed values, an index `country` of 30, and a JSON payload of about
126 bytes that includes a random session ID. The same count and seed give the same table.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

TYPES = ("page", "click", "purchase", "signup", "refund")
TYPE_WEIGHTS = (0.62, 0.25, 0.09, 0.03, 0.01)
# fmt: off
COUNTRIES = (
    "SE", "US", "DE", "GB", "FR", "NL", "NO", "DK", "FI", "ES", "IT", "PL", "PT", "CH", "AT",
    "BE", "IE", "CZ", "HU", "RO", "GR", "BG", "HR", "SK", "SI", "LT", "LV", "EE", "LU", "MT",
)
# fmt: on
SECTIONS = ("product", "category", "article", "search", "account")
PAGES_PER_SECTION = 200
START_US = 1_700_000_000_000_000
SPAN_US = 30 * 86_400 * 1_000_000
EVENTS_PER_SPACE = 50
LARGEST_SPACE = 20_000
JITTER_US = 2_000_000
PIECE_EVENTS = 8_000_000  # so that the payloads of a piece fit in one array of less than 2 GiB


def space_sizes(events: int) -> npt.NDArray[np.int64]:
    """Event counts per space, largest first: Zipf, capped at `LARGEST_SPACE`, summing to `events`."""
    count = max(1, events // EVENTS_PER_SPACE)
    ranks = np.arange(1, count + 1, dtype=np.float64)
    low, high = 0.0, float(events)
    for _ in range(60):  # bisect the scale at which the capped sizes sum to `events`
        scale = (low + high) / 2
        total = np.clip(scale / ranks, 1, LARGEST_SPACE).sum()
        low, high = (scale, high) if total < events else (low, scale)
    sizes = np.clip(high / ranks, 1, LARGEST_SPACE).astype(np.int64)
    while (short := events - int(sizes.sum())) != 0:  # spread the rounding error over the smallest spaces
        step = min(abs(short), count)
        sizes[-step:] += 1 if short > 0 else -1
    return np.maximum(sizes, 0)


def _pick(rng: np.random.Generator, values: tuple[str, ...], weights: npt.ArrayLike, count: int) -> pa.Array:
    weights = np.asarray(weights, dtype=np.float64)
    codes = rng.choice(len(values), size=count, p=weights / weights.sum()).astype(np.int32)
    return pa.DictionaryArray.from_arrays(pa.array(codes), pa.array(values)).cast(pa.string())


def _zipf(count: int) -> npt.NDArray[np.float64]:
    return 1 / np.arange(1, count + 1)


def _session_ids(rng: np.random.Generator, count: int) -> pa.Array:
    """Generate IDs of 16 random hexadecimal digits, which no compressor can predict."""
    low, high = (rng.integers(0, 1 << 32, count, dtype=np.uint64) for _ in range(2))
    raw = np.stack([low.astype("<u4"), high.astype("<u4")], axis=1).view(np.uint8).reshape(count, 8)
    digits = np.frombuffer(b"0123456789abcdef", dtype=np.uint8)
    text = np.empty((count, 16), dtype=np.uint8)
    text[:, 0::2], text[:, 1::2] = digits[raw >> 4], digits[raw & 15]
    fixed = pa.Array.from_buffers(pa.binary(16), count, [None, pa.py_buffer(text.tobytes())])
    return fixed.cast(pa.binary()).cast(pa.string())


def _payloads(rng: np.random.Generator, count: int) -> pa.ChunkedArray:
    paths = tuple(f"/{section}/{page}" for section in SECTIONS for page in range(PAGES_PER_SECTION))
    urls = _pick(rng, paths, _zipf(len(paths)), count)
    referrers = _pick(rng, ("google", "newsletter", "direct", "facebook", "partner"), (5, 2, 6, 2, 1), count)
    sessions = _session_ids(rng, count)
    millis = pa.array(rng.gamma(2.0, 120.0, count).astype(np.int32)).cast(pa.string())
    widths = _pick(rng, ("1920", "1440", "390", "412", "768"), (5, 3, 6, 4, 1), count)
    columns = pa.table([urls, referrers, sessions, millis, widths], names=list("ursmw"))
    return pa.chunked_array(
        [_joined(columns.slice(at, PIECE_EVENTS)) for at in range(0, count, PIECE_EVENTS)], pa.binary()
    )


def _joined(columns: pa.Table) -> pa.Array:
    urls, referrers, sessions, millis, widths = (column.combine_chunks() for column in columns.columns)
    return pc.binary_join_element_wise(
        '{"url":"', urls, '","referrer":"', referrers, '","session":"', sessions,
        '","page_load_ms":', millis, ',"screen_width":', widths, ',"logged_in":true}', "",
    ).cast(pa.binary())  # fmt: skip


def until(events: pa.Table, moment_us: int) -> pa.Table:
    """Shift all events in time so that the newest happens at `moment_us`."""
    times = events["timestamp"].cast(pa.int64())
    moved = pc.add(times, moment_us - pc.max(times).as_py()).cast(events["timestamp"].type)
    return events.set_column(events.column_names.index("timestamp"), "timestamp", moved)


def generate(events: int, seed: int = 7) -> pa.Table:
    """Generate `events` events as a table of space, timestamp, data, type, country, in order of arrival."""
    rng = np.random.default_rng(seed)
    sizes = space_sizes(events)
    names = rng.permutation(len(sizes) * 3)[: len(sizes)]  # ids with gaps, unrelated to size
    space_ids = np.repeat(names, sizes)
    rng.shuffle(space_ids)
    timestamps = START_US + np.sort(rng.integers(0, SPAN_US, events)) + rng.integers(-JITTER_US, JITTER_US, events)
    return pa.table(
        {
            "space": pc.binary_join_element_wise("customer-", pa.array(space_ids).cast(pa.string()), ""),
            "timestamp": pa.array(timestamps).cast(pa.timestamp("us", "UTC")),
            "data": _payloads(rng, events),
            "type": _pick(rng, TYPES, TYPE_WEIGHTS, events),
            "country": _pick(rng, COUNTRIES, _zipf(len(COUNTRIES)), events),
        }
    )
