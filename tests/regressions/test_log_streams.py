"""Known mistakes of other stores of log streams, as a user would notice them."""

from __future__ import annotations

import datetime as dt
import threading
import time

import pytest

import aggregator


@pytest.fixture
def catalog(tmp_path):
    with aggregator.open(tmp_path / "c") as opened:
        yield opened


def _messages(catalog, text="SELECT"):
    return [event.data.decode() for event in catalog.query(text)]


def test_a_pipe_copies_what_its_condition_rules_out(catalog):
    """A pipe's WHERE applies to new records and to those that it backfills."""
    catalog.write({"app": "web"}, [{"ts": 1, "msg": "ERROR"}, {"ts": 2, "msg": "fine"}])
    catalog.query("CREATE PIPE errors WHERE msg = ERROR BACKFILL")
    catalog.write({"app": "web"}, [{"ts": 3, "msg": "ERROR"}, {"ts": 4, "msg": "fine"}])
    while catalog.query("DESCRIBE PIPE errors")["lag"].to_pylist() != [0]:
        time.sleep(0.01)
    assert _messages(catalog, "SELECT FROM logrange.pipe = errors") == ["ERROR", "ERROR"]


def test_a_tail_of_nothing_spins(catalog):
    """Following streams that do not exist yet costs nothing, and returns their records when they arrive."""
    tail = catalog.tail("SELECT FROM app = later LIMIT 1")
    found = []
    thread = threading.Thread(target=lambda: found.extend(tail))
    thread.start()
    spent = []
    while len(spent) < 20 and min(spent, default=1) >= 0.1:  # other threads may still be busy with earlier work
        start = time.process_time()
        time.sleep(0.5)
        spent.append(time.process_time() - start)
    assert spent[-1] < 0.1
    catalog.write({"app": "later"}, [{"msg": "here"}])
    thread.join(120)
    assert [event.data for event in found] == [b"here"]


@pytest.mark.parametrize("pattern", ["[", "[z-a]", "\\", "*" * 2000])
def test_a_bad_pattern_ends_the_server(catalog, pattern):
    """An invalid pattern is refused, and the catalog stays usable."""
    catalog.write({"app": "web"}, [{"msg": "x"}])
    for place in ("FROM app", "WHERE msg"):
        with pytest.raises(aggregator.InvalidRequestError):
            catalog.query(f"SELECT {place} LIKE '{pattern}'").count()
    assert _messages(catalog) == ["x"]


def test_iso_times_become_midnight(catalog):
    """A time of day in ISO 8601 is read with its zone; text that is not a time is refused."""
    times = [dt.datetime(2026, 3, 1, hour, tzinfo=dt.UTC) for hour in (6, 9)]
    catalog.write({"app": "web"}, [{"ts": time, "msg": str(time.hour)} for time in times])
    assert _messages(catalog, 'SELECT RANGE "2026-03-01T08:30:00+01:00"') == ["9"]
    with pytest.raises(aggregator.InvalidRequestError):
        catalog.query('SELECT RANGE "2026-03-01T08:30:00+25:00"')


def test_the_limit_of_all_removes_the_newest(catalog):
    """A limit over all streams removes the oldest records, whichever stream was written last."""
    catalog.write({"app": "new"}, [{"ts": 100 + i, "msg": f"new {i}"} for i in range(10)])
    catalog.write({"app": "old"}, [{"ts": i, "msg": f"old {i}"} for i in range(10)])
    size = sum(catalog.query("SHOW PARTITIONS")["bytes"].to_pylist())
    catalog.query(f"TRUNCATE MAXDBSIZE {size * 6 // 10}")
    left = _messages(catalog)
    assert len(left) == 12
    assert left[-10:] == [f"new {i}" for i in range(10)]


def test_a_quote_in_a_tag_prevents_the_next_start(tmp_path):
    """Tags with quotes are preserved when the catalog is reopened."""
    for _ in range(2):
        with aggregator.open(tmp_path / "c") as catalog:
            catalog.write({"name": 'say "hi"'}, [{"msg": "x"}])
    with aggregator.open(tmp_path / "c") as catalog:
        assert catalog.streams() == [{"name": 'say "hi"'}]
        assert len(_messages(catalog)) == 2


def test_a_range_misses_late_records(catalog):
    """Late records, sealed or not, are found by their time, and more than 49 streams are read together."""
    for stream in range(60):
        catalog.write({"n": str(stream)}, [{"ts": 1000 + stream, "msg": "in time"}])
    catalog.seal()
    catalog.write({"n": "7"}, [{"ts": 5, "msg": "late"}])
    catalog.seal()
    catalog.write({"n": "8"}, [{"ts": 6, "msg": "later"}])
    assert _messages(catalog, "SELECT RANGE [:999999ns]") == ["late", "later"]
    assert catalog.query("SELECT").count() == 62


def test_a_tail_never_sees_new_streams(catalog):
    """A tail includes streams that are created while it runs."""
    tail = iter(catalog.tail("SELECT FROM app = web", timeout_s=120))
    catalog.write({"app": "web", "zone": "eu"}, [{"msg": "1"}])
    assert next(tail).data == b"1"
    catalog.write({"app": "web", "zone": "us"}, [{"msg": "2"}])
    assert next(tail).data == b"2"
