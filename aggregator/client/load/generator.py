"""`run`: requests in a closed loop (each connection sends the next after a response) or an open one (at a fixed rate).

In an open loop the time that a request waits for a free connection counts: otherwise a stalled server would be spared
the requests due meanwhile ("coordinated omission").
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence
from dataclasses import dataclass
from threading import Lock, Thread

from aggregator.client.load.figures import Figures, total
from aggregator.client.load.sending import Target
from aggregator.client.load.work import Request

_LATE_S = 0.01


@dataclass(frozen=True, slots=True)
class Load:
    """Parameters of a run.

    connections: concurrent ones. rate: requests per second over all of them; None: a closed loop. back_off: whether a
    closed loop pauses after a refusal, as clients do.
    """

    url: str
    seconds: float
    connections: int
    rate: float | None = None
    token: str | None = None
    back_off: bool = True
    warm_up_s: float = 0.0


def run(load: Load, requests: Sequence[Request]) -> dict[str, object]:
    """Send the requests repeatedly in turn, and return the result of `Figures.report`.

    Requests of the first `warm_up_s` seconds do not count. Raises InvalidRequestError for an invalid address.
    """
    targets = [Target(load.url, load.token) for _ in range(load.connections)]
    figures = [Figures() for _ in targets]
    begin = time.perf_counter()
    counted = begin + load.warm_up_s
    end = counted + load.seconds
    numbers = itertools.count()
    lock = Lock()

    def work(place: int) -> None:
        target, mine = targets[place], figures[place]
        while True:
            with lock:
                number = next(numbers)
            due = time.perf_counter() if load.rate is None else begin + number / load.rate
            if due >= end:
                return
            now = time.perf_counter()
            if due > now:
                time.sleep(due - now)
                now = time.perf_counter()
            request = requests[number % len(requests)]
            outcome = target.send(request)
            done = time.perf_counter()
            if due >= counted:
                mine.late += now - due > _LATE_S
                mine.add(
                    outcome.status, request.events, done - due, outcome.seconds, outcome.answer_bytes, outcome.error
                )
            if load.rate is None and load.back_off and outcome.status in (429, 503):
                time.sleep(0.02)

    threads = [Thread(target=work, args=(place,), name=f"load-{place}") for place in range(load.connections)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for target in targets:
        target.close()
    return total(figures).report(max(time.perf_counter() - counted, load.seconds))
