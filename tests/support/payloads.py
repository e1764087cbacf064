"""Events with payloads of common shapes, for which templates are found, and some without."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pyarrow as pa

import esformat

URLS = [f"/page/{n}" for n in range(40)]


def payload(rnd: random.Random, name: str = "") -> bytes:
    """A JSON object with values of each kind."""
    made: dict[str, Any] = {
        "url": rnd.choice(URLS),
        "session": rnd.randbytes(8).hex(),
        "visit": "-".join(rnd.randbytes(n).hex() for n in (4, 2, 2, 2, 6)),
        "address": ".".join(str(rnd.randrange(256)) for _ in range(4)),
        "at": f"2024-0{rnd.randrange(1, 10)}-{rnd.randrange(10, 29)}T12:{rnd.randrange(10, 60)}:07Z",
        "order": f"order-{rnd.randrange(10**6)}",
        "price": f"{rnd.randrange(10**4)}.{rnd.randrange(10, 100)}",
        "number": f"{rnd.randrange(1000):05}",
        "ms": rnd.randrange(-50, 5000),
        "cart": {
            "items": rnd.randrange(9),
            "note": name or rnd.choice(["", "é", 'a "quoted" note', "x" * rnd.randrange(40)]),
        },
    }
    if rnd.random() < 0.3:
        made["referrer"] = rnd.choice(["google", "direct"])
    return json.dumps(made, ensure_ascii=False, separators=(",", ":")).encode()


def payload_table(count: int, seed: int = 1) -> pa.Table:
    """Events of some spaces: payloads as binary and text, with nulls, and with some that fit no template."""
    rnd = random.Random(seed)
    odd = [b"", b"{}", b"not JSON", b'{"url":1}', b"\xff\xfe" * 9]
    data = [rnd.choice(odd) if rnd.random() < 0.02 else payload(rnd) for _ in range(count)]
    text = [None if rnd.random() < 0.05 else payload(rnd).decode() for _ in range(count)]
    return pa.table(
        {
            "space": pa.array([f"s{int(rnd.paretovariate(0.5)) % 30:02}" for _ in range(count)]),
            "timestamp": pa.array(range(count), pa.int64()),
            "data": pa.array(data, pa.binary()),
            "text": pa.array(text, pa.string()),
            "type": pa.array([rnd.choice("abc") for _ in range(count)]),
        }
    )


def write_payloads(path: Path, table: pa.Table, **options: Any) -> pa.Table:
    """Write events to a segment; return them in file order."""
    with esformat.create(path, indexes=["type"], templates=True, **options) as writer:
        writer.add_table(table)
    return table.sort_by([("space", "ascending"), ("timestamp", "ascending")])
