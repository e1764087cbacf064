"""Rows for a loop over events: their payloads are decompressed while the loop works on earlier ones."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import chain, islice

from esformat.read.blocks.plan import Portion
from esformat.read.decode.block_group import Later, at_once
from esformat.read.decode.event_rows import EventRows


def with_payloads_ahead(
    groups: Iterator[list[Portion]], read: Callable[[list[Portion], Later], EventRows]
) -> Iterator[EventRows]:
    """Decoded rows in order. One other thread decompresses the payloads of the next groups, which takes no Python; a
    thread that did more would wait for the interpreter's lock, which the loop over the events holds.
    """
    yield from (read(group, at_once) for group in islice(groups, 1))  # tells how large the next may be
    few = list(islice(groups, 2))
    if len(few) < 2:
        yield from (read(group, at_once) for group in few)
        return
    pool = ThreadPoolExecutor(1, thread_name_prefix="esformat-scan")
    try:
        pending: deque[EventRows] = deque()
        for group in chain(few, groups):
            pending.append(read(group, lambda work: pool.submit(work).result))
            if len(pending) > 2:
                yield pending.popleft()
        yield from pending
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
