"""The background writer: nothing is lost or stored twice, whatever the connection does."""

from __future__ import annotations

import functools
import subprocess
import sys
import threading
import time

import pyarrow as pa
import pytest
from breaking_proxy import BreakingProxy, Fate

from aggregator import OverloadedError
from aggregator.client import Client, Retry, Sizing, UnavailableError, WriteFailedError
from esformat import ClosedError, InvalidEventError

SMALL = Sizing(min_rows=10, max_rows=100)


def stored(catalog):
    """The stored timestamps in storage order."""
    return catalog.topic("activity").read().to_table()["timestamp"].cast(pa.int64()).to_pylist()


def test_rows_and_tables(catalog, client):
    """Rows and tables are stored in the order they were added; `flush` and `close` wait for all of them."""
    with client.topic("activity").writer(sizing=SMALL) as writer:
        for n in range(250):
            writer.add(f"s-{n % 3}", b"x", timestamp=n, grouping="g", indexes={"type": "page"}, columns={"extra": n})
        writer.flush()
        assert stored(catalog) == list(range(250))
        assert writer.acknowledged == 250
        writer.add_table(pa.table({"space": ["t"] * 333, "timestamp": range(250, 583)}))
        writer.add("s", timestamp=583)
    assert stored(catalog) == list(range(584))
    event = next(iter(catalog.topic("activity").scan()))
    assert (event.space, event.grouping, event.data, event.indexes, event.columns) == (
        "s-0", "g", b"x", {"type": "page"}, {"extra": 0},
    )  # fmt: skip
    with pytest.raises(ClosedError):
        writer.add("s", timestamp=1)
    writer.close()


def wait_for(catalog, times):
    end = time.monotonic() + 60
    while stored(catalog) != times and time.monotonic() < end:
        time.sleep(0.01)
    assert stored(catalog) == times


def test_lingering(catalog, client):
    """A single event or a small table is sent after a while on its own."""
    writer = client.topic("activity").writer(linger_s=0.01)
    writer.add("s", timestamp=7)
    wait_for(catalog, [7])
    writer.add_table(pa.table({"space": ["s"] * 3, "timestamp": [8, 9, 10]}))
    wait_for(catalog, [7, 8, 9, 10])
    writer.close()


def test_a_full_batch_does_not_linger(catalog, client):
    """A full batch is sent immediately."""
    writer = client.topic("activity").writer(linger_s=60, sizing=SMALL)
    for n in range(10):
        writer.add("s", timestamp=n)
    wait_for(catalog, list(range(10)))
    writer.close()


def test_over_a_breaking_line(server, catalog):
    """Every connection breaks while several threads add, with several batches in flight: each event is stored once."""
    with (
        BreakingProxy(server.url, lambda n: Fate(down_bytes=200 + 150 * (n % 4), up_bytes=20_000)) as proxy,
        Client(proxy.url) as client,
        client.topic("activity").writer(
            sizing=SMALL, in_flight=3, retry=Retry(deadline_s=None, first_s=0.001, longest_s=0.01)
        ) as writer,
    ):

        def add(start):
            for n in range(start, start + 700):
                writer.add("s", timestamp=n)

        threads = [threading.Thread(target=add, args=(start,)) for start in (0, 700, 1400)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        writer.flush()
        assert proxy.connections > 5
    assert sorted(stored(catalog)) == list(range(2100))


def test_a_full_queue_refuses_or_blocks(server, catalog):
    """A full queue refuses immediately or blocks until there is room, depending on `when_full`."""
    released = threading.Event()
    with (
        BreakingProxy(server.url, lambda n: Fate(up_bytes=1) if not released.is_set() else Fate()) as proxy,
        Client(proxy.url) as client,
    ):
        options = {"queue_bytes": 20_000, "retry": Retry(deadline_s=None, longest_s=0.02)}
        refusing = client.topic("activity").writer(when_full="refuse", **options)
        for n in range(60):
            refusing.add("s", timestamp=n)
        with pytest.raises(OverloadedError):
            refusing.add_table(pa.table({"space": ["s"] * 1000, "timestamp": range(1000)}))
        blocking = client.topic("activity").writer(**options)
        thread = threading.Thread(target=lambda: [blocking.add("b", timestamp=n) for n in range(500)])
        thread.start()
        thread.join(0.2)
        assert thread.is_alive()
        released.set()
        thread.join()
        blocking.close()
        refusing.close()
    assert len(stored(catalog)) == 60 + 500


def test_what_cannot_be_stored_comes_back(catalog, client):
    """Bad events are kept and raised by the next call; the others are stored, also those of the same batch."""
    writer = client.topic("activity").writer(linger_s=5)
    odd = object()
    for n in range(40):
        writer.add("s", timestamp=n, columns={"extra": odd if n == 17 else n})
    with pytest.raises(WriteFailedError, match="1 events") as caught:
        writer.close()
    assert caught.value.unsent[0].events == [{"space": "s", "timestamp": 17, "extra": odd}]
    assert stored(catalog) == [n for n in range(40) if n != 17]
    with pytest.raises(InvalidEventError):
        client.topic("activity").writer().add("s", timestamp="noon")
    writer = client.topic("absent").writer(linger_s=0)
    writer.add("s", timestamp=5)
    with pytest.raises(WriteFailedError, match="1 events were not delivered") as caught:
        writer.flush()
    assert caught.value.unsent[0].events == [{"space": "s", "timestamp": 5}]
    writer.close()


def test_an_error_that_nobody_thought_of(catalog, client):
    """An unforeseen error raises with its events instead of losing them; later events are stored."""
    writer = client.topic("activity").writer(linger_s=0)
    deep = functools.reduce(lambda inner, _: [inner], range(100), 1)  # nested deeper than Arrow can write
    writer.add("s", timestamp=1, columns={"extra": deep})
    with pytest.raises(WriteFailedError, match="recursion") as caught:
        writer.flush(60)
    assert caught.value.unsent[0].events == [{"space": "s", "timestamp": 1, "extra": deep}]
    assert caught.value.unsent[0].producer is not None
    writer.add("s", timestamp=2)
    writer.close(60)
    assert stored(catalog) == [2]


def test_a_large_batch_is_halved(catalog, client):
    """A batch larger than the server accepts is sent in parts; no event is lost."""
    sizing = Sizing(min_rows=1, max_rows=100, max_bytes=1 << 30)
    with client.topic("activity").writer(sizing=sizing, linger_s=5) as writer:
        writer.add_table(pa.table({"space": ["s"] * 8, "timestamp": range(8), "data": [bytes(3_000_000)] * 8}))
    assert stored(catalog) == list(range(8))


def test_closed_without_a_server():
    """`close` raises with the unsent events and the producer and sequence to append them under."""
    with Client("http://127.0.0.1:9") as client:
        writer = client.topic("activity").writer(sizing=SMALL)
        for n in range(25):
            writer.add("s", timestamp=n)
        with pytest.raises(UnavailableError, match="still wait"):
            writer.flush(0.05)
        with pytest.raises(WriteFailedError, match="25 events") as caught:
            writer.close(0.05)
    unsent = caught.value.unsent
    assert sorted(n for each in unsent for n in [row["timestamp"] for row in each.events]) == list(range(25))
    assert {each.producer is not None for each in unsent} == {True, False}


def test_the_end_of_the_program(server, catalog):
    """A writer that nobody closed sends its events at interpreter exit."""
    code = (
        "from aggregator.client import Client\n"
        f"writer = Client({server.url!r}).topic('activity').writer(linger_s=60)\n"
        "for n in range(9): writer.add('s', timestamp=n)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    assert stored(catalog) == list(range(9))
