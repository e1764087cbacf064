"""Events for conditions on texts: JSON payloads, some of them odd, and a text column that fits templates."""

from __future__ import annotations

import datetime as dt

import pyarrow as pa

START = dt.datetime(2026, 3, 1, tzinfo=dt.UTC)


def texts(first: int = 0) -> pa.Table:
    """Events with JSON payloads, some with odd characters, and a text column that fits templates."""
    urls = ["/cart", "/list", "/é", r"\/cart", r"/c\u0061rt", "a%b_c", "17", ""]
    odd = [
        '["/cart"]',
        '{"url":["/cart"]}',
        '{"sub":{"url":"/cart"}}',
        '{"url":"/list","url":"/cart"}',
        '"/cart"',
        "17",
    ]
    numbers = range(first, first + 6000)
    payloads = [odd[n % 6] if n % 97 == 0 else f'{{"url":"{urls[n * 31 % 8]}","n":{n % 900}}}' for n in numbers]
    return pa.table(
        {
            "space": [f"s{n % 20}" for n in numbers],
            "timestamp": pa.array([START + dt.timedelta(seconds=n) for n in numbers], pa.timestamp("us", "UTC")),
            "data": [payload.encode() for payload in payloads],
            "msg": [None if n % 13 == 0 else f"user {n % 60} said {urls[n % 3]} at {n}" for n in numbers],
        }
    )
