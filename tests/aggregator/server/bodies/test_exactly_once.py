"""Appends with keys, sent repeatedly to a server that is killed in between: each batch is stored once."""

from __future__ import annotations

import contextlib
import json
import signal
import threading

import httpx
from served import Spawned

BATCHES = 12


def body(number: int) -> bytes:
    rows = [{"space": f"s{n % 7}", "timestamp": number * 10_000 + n, "n": number * 100 + n} for n in range(100)]
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def send(web: httpx.Client, number: int, content: bytes | None = None) -> httpx.Response:
    headers = {"content-type": "application/x-ndjson", "idempotency-key": f"loader:{number}"}
    return web.post("/v1/topics/t/events", content=content or body(number), headers=headers)


def test_each_batch_three_times_with_kills_in_between(tmp_path):
    """Every batch is sent three times, to three processes, two of which are killed while storing: it is stored once,
    with the acknowledged record indexes. The same key with another body is refused.
    """
    first: dict[int, int] = {}
    for life in range(3):
        with Spawned(tmp_path / "data") as server, httpx.Client(base_url=server.url, timeout=120) as web:
            assert web.put("/v1/topics/t", json={}).status_code == (200 if life else 201)
            killer = threading.Timer(0.02 + 0.03 * life, server.stop, (signal.SIGKILL,))
            if life < 2:
                killer.start()  # in the middle of what follows
            with contextlib.suppress(httpx.HTTPError):
                for number in range(BATCHES):
                    answer = send(web, number)
                    assert answer.status_code == 200, answer.text
                    assert first.setdefault(number, answer.json()["first"]) == answer.json()["first"]
            if life < 2:
                killer.join()
                continue
            assert all(send(web, number).json()["repeated"] for number in range(BATCHES))
            assert send(web, 3, body(4)).status_code == 409
            assert send(web, 3, body(3)[:-1] + b" \n").status_code == 200  # the same events, spelled differently
            rows = web.get("/v1/topics/t/partitions/0/records", params={"columns": "record_index,n"}).text
    found = [json.loads(line) for line in rows.splitlines()]
    assert sorted(row["n"] for row in found) == list(range(BATCHES * 100))
    places = {row["n"]: row["record_index"] for row in found}
    assert all(places[number * 100] == index for number, index in first.items())
