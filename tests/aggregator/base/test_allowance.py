"""Allowances: a query stops when its time or memory is used up or when it is cancelled, whatever it is doing."""

from __future__ import annotations

import pickle
import random
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pytest
from effort import share_of
from waiting import PATIENCE_S

import aggregator
from aggregator import Allowance, QueryCancelledError, QueryLimitError
from aggregator.base import allowance as allowance_module
from aggregator.lql import Regex
from aggregator.lql.run import adaptive_slices as slices_module
from aggregator.lql.run.adaptive_slices import AdaptiveSlices

SLOW = "a.{380}b"  # 15 µs per byte


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A catalog with a stream of slow records, both sealed and unsealed; each text is also a tag value."""
    path = tmp_path_factory.mktemp("allowance") / "data"
    letters = random.Random(1)
    with aggregator.open(path) as catalog:
        texts = ["".join(letters.choices("ax", k=1000)) for _ in range(1200)]
        records = [{"ts": ts, "msg": text} for ts, text in enumerate(texts)]
        catalog.write({"app": "web"}, records[:1000])
        catalog.seal()
        catalog.write({"app": "web"}, records[1000:])
        for text in texts[:200]:
            catalog.write({"slow": text}, [{"ts": 1, "msg": "x"}], "others")
    return path


@pytest.fixture
def catalog(data):
    with aggregator.open(data) as opened:
        yield opened


QUERIES: dict[str, Callable[[aggregator.Catalog], object]] = {
    "count": lambda catalog: catalog.query(f"SELECT COUNT WHERE msg MATCHES '{SLOW}'"),
    "batches": lambda catalog: list(catalog.query(f"SELECT WHERE msg MATCHES '{SLOW}'").batches()),
    "one stream": lambda catalog: catalog.query(f"SELECT FROM app=web WHERE msg MATCHES '{SLOW}' LIMIT 5").count(),
    "newest first": lambda catalog: list(catalog.query(f"SELECT WHERE msg MATCHES '{SLOW}' ORDER BY ts DESC")),
    "tags": lambda catalog: catalog.streams(f"slow MATCHES '{SLOW}'"),
    "partitions": lambda catalog: catalog.query(f"SHOW PARTITIONS slow MATCHES '{SLOW}'"),
    "events": lambda catalog: list(catalog.query(f"SELECT FROM slow MATCHES '{SLOW}'")),
}


@pytest.mark.parametrize("name", share_of(QUERIES, 2))
def test_time(catalog, name):
    """A query that exceeds its time ends soon after, also if threads work for it."""
    began = time.process_time()
    with Allowance(time_s=0.1), pytest.raises(QueryLimitError, match=r"more than 0\.1 seconds"):
        QUERIES[name](catalog)
    assert time.process_time() - began < 2  # 3 of the 18 s it would take


@pytest.mark.parametrize("name", share_of(QUERIES, 2))
def test_cancelled(catalog, name):
    """A query ends when another thread cancels it."""
    allowance = Allowance()
    timer = threading.Timer(0.1, allowance.cancel)
    timer.start()
    began = time.process_time()
    with allowance, pytest.raises(QueryCancelledError):
        QUERIES[name](catalog)
    assert time.process_time() - began < 2  # 3 of the 18 s it would take
    timer.join()


def test_cancelled_before(catalog):
    """A query cancelled before it began reads nothing, even if nothing is slow."""
    allowance = Allowance()
    allowance.cancel("enough")
    with allowance, pytest.raises(QueryCancelledError, match="enough"):
        catalog.query("SELECT COUNT")
    for reads in (catalog.topic("logs").scan(), catalog.topic("logs").read("0")):
        with allowance, pytest.raises(QueryCancelledError):
            reads.to_table()


HUNGRY = [
    "SELECT COUNT GROUP BY msg",  # groups
    "SELECT WHERE msg PREFIX a",  # sorted rows of a segment
    "SELECT",
]


@pytest.mark.parametrize("statement", HUNGRY)
def test_memory(catalog, statement):
    """A query that sorts or groups beyond its memory is ended; with enough memory it releases all of it."""
    with Allowance(memory_bytes=100_000), pytest.raises(QueryLimitError, match="100,000 bytes"):
        list(getattr(catalog.query(statement), "batches", list)())
    with Allowance(memory_bytes=100 << 20) as allowance:
        for _ in range(3):
            list(getattr(catalog.query(statement), "batches", lambda: ())())
        assert allowance._held_bytes == 0


def test_others_look_up_streams_meanwhile(catalog):
    """A slow expression over tags blocks neither stream lookups nor new streams."""
    allowance = Allowance()
    began = threading.Event()

    def slow():
        began.set()
        with allowance, pytest.raises(QueryCancelledError):
            catalog.streams(f"slow MATCHES '{SLOW}'")

    catalog.streams()
    thread = threading.Thread(target=slow)
    thread.start()
    began.wait(120)
    for number in range(3):
        catalog.write({"app": "new"}, [{"ts": 1, "msg": str(number)}])
        assert catalog.streams("app = new") == [{"app": "new"}]
    assert thread.is_alive()
    allowance.cancel()
    thread.join(PATIENCE_S)
    assert not thread.is_alive()


def test_closing_does_not_wait_for_a_slow_pipe(data):
    """A pipe with a slow condition stops when the catalog closes and continues when it is reopened."""
    with aggregator.open(data) as catalog:
        catalog.query(f"CREATE PIPE p WHERE msg MATCHES '{SLOW}' BACKFILL")
        time.sleep(0.2)  # the pipe is in its first batch or about to begin it
        began = time.process_time()
    assert time.process_time() - began < 3  # of the 18 s it would take
    with aggregator.open(data) as catalog:
        assert catalog.query("DESCRIBE PIPE p")["state"].to_pylist()[0] in ("behind", "waiting")
        catalog.query("DELETE PIPE p")


def test_pauses(monkeypatch):
    """A paused query waits at its next check; the wait costs none of its time. Stopped, it raises its error."""
    now, asked = [0.0], threading.Event()

    def clock():
        asked.set()
        return now[0]

    def resume():
        assert asked.wait(PATIENCE_S)
        now[0] += 0.7
        allowance.resume()

    monkeypatch.setattr(allowance_module, "time", SimpleNamespace(monotonic=clock))
    allowance = Allowance(time_s=0.5)
    with allowance:
        asked.clear()
        allowance.pause()
        threading.Thread(target=resume).start()
        allowance.check()
        allowance.pause()
        threading.Timer(0.05, allowance.stop, [QueryCancelledError("over")]).start()
        with pytest.raises(QueryCancelledError, match="over"):
            allowance.check()
        allowance.stop(QueryCancelledError("later"))  # the first error counts
        with pytest.raises(QueryCancelledError, match="over"):
            allowance.check()


def test_nested():
    """The innermost allowance applies; when it ends, the outer one applies again."""
    outer, inner = Allowance(), Allowance()
    inner.cancel()
    with outer:
        with inner, pytest.raises(QueryCancelledError):
            aggregator.base.allowance.check()
        assert aggregator.base.allowance.current() is outer
    assert aggregator.base.allowance.current() is None


def test_errors_survive():
    """Errors keep their details when pickled."""
    for error in (QueryLimitError("too much", hint="ask for less"), QueryCancelledError("over")):
        again = pickle.loads(pickle.dumps(error))
        assert (type(again), str(again), again.hint) == (type(error), str(error), error.hint)


def test_slices(monkeypatch):
    """All rows come out once and in order. Slices grow while they are processed quickly and shrink if they are slow."""
    now = [0.0]
    monkeypatch.setattr(slices_module, "time", SimpleNamespace(perf_counter=lambda: now[0]))
    slices = AdaptiveSlices()
    batch = pa.record_batch({"msg": ["x" * 100] * 20_000, "n": range(20_000)})
    sizes = []
    seen = []
    for part in slices.parts(batch):
        sizes.append(len(part))
        seen += part["n"].to_pylist()
    assert seen == list(range(20_000))
    assert sizes[0] < 200
    assert sizes[3] > 4 * sizes[0]
    slow = slices.parts(batch)
    next(slow)
    now[0] += 0.1
    assert len(next(slow)) < sizes[-2] / 5
    assert [len(part) for part in AdaptiveSlices().parts(batch.slice(0, 0))] == [0]


def test_a_text_that_is_too_long():
    """A single text cannot be sliced: a large pattern refuses a long text, a small pattern accepts it."""
    text = pa.array(["a" * (1 << 20)])
    with pytest.raises(QueryLimitError, match="1,048,576 bytes is too long"):
        Regex(SLOW).matches(text)
    assert Regex("ab|a$").matches(text).to_pylist() == [True]
    assert Regex(SLOW).matches(pa.array(["ab"] * (1 << 19))).true_count == 0
