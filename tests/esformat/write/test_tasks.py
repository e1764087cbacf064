"""Tasks in threads: results in order, with a limited number in progress."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from esformat.write.tasks import InFlight


@pytest.mark.parametrize(("most_tasks", "most_bytes", "expected"), [(3, 1000, 3), (100, 25, 2), (100, 5, 1)])
def test_results_come_in_order_and_bounded(most_tasks, most_bytes, expected):
    """Tasks in progress are limited by number and bytes; a single one may exceed the bytes."""
    held, most, lock = 0, 0, threading.Lock()

    def work(number):
        nonlocal held, most
        with lock:
            held += 1
            most = max(most, held)
        time.sleep(0.001 * (number % 3))
        return number

    results = []
    with ThreadPoolExecutor(8) as pool:
        flight = InFlight(pool, most_tasks, most_bytes)
        for number in range(30):
            for done in flight.submit(partial(work, number), 10):
                results.append(done)
                held -= 1
        results += flight.drain()
    assert results == list(range(30))
    assert most == expected


def test_errors_come_out():
    """An error is raised in place of its result; cancelled tasks are not waited for."""

    def fail():
        raise ValueError("no")

    with ThreadPoolExecutor(1) as pool:
        flight = InFlight(pool, 2, 100)
        assert list(flight.submit(fail, 1)) == []
        with pytest.raises(ValueError, match="no"):
            list(flight.drain())
        list(flight.submit(fail, 1))
        flight.cancel()
        assert list(flight.drain()) == []
