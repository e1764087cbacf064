"""Appends from an event loop, without a waiting thread: batches of one turn of the loop go to the log together."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from threading import Lock
from weakref import WeakKeyDictionary

from aggregator.engine.ingest.append import Ingest, SmallBatch
from aggregator.model import Receipt


async def appended(ingest: Ingest, append: Callable[[], Receipt], batch: SmallBatch | None) -> Receipt:
    """Store a small batch; if it is None, call `append` in a thread. Raises as `Ingest.append`."""
    if batch is None:
        return await asyncio.to_thread(append)
    loop = asyncio.get_running_loop()
    sent = _Sent(_lane_of(loop, ingest), ingest, batch, loop.create_future())
    sent.lane.add(sent)
    return await sent.future


class _Lane:
    """Batches of one event loop on their way to the log of one catalog, and back. Has no reference to either."""

    def __init__(self) -> None:
        self._going: list[_Sent] = []
        self._back: deque[_Sent] = deque()
        self._coming = Lock()  # held while a batch is added to `_back`

    def add(self, sent: _Sent) -> None:
        """Send a batch with the others of this turn of the loop."""
        if not self._going:
            sent.loop.call_soon(self._go)
        self._going.append(sent)

    def _go(self) -> None:
        going, self._going = self._going, []
        try:
            going[0].ingest.append_soon([sent.batch for sent in going])
        except Exception as error:  # noqa: BLE001  raised to the awaiting callers
            for sent in going:
                sent.fail(error)

    def take_back(self, sent: _Sent) -> None:
        """Called when a batch is settled, from any thread, even from several. The first of many wakes the loop."""
        with self._coming:
            if sent.is_back:
                return
            sent.is_back = True
            self._back.append(sent)
            is_first = len(self._back) == 1
        if is_first:
            try:
                sent.loop.call_soon_threadsafe(self._tell)
            except RuntimeError:  # the loop is closed: nobody awaits them
                self._tell()

    def _tell(self) -> None:
        while self._back:
            self._back.popleft().tell()


class _Sent:
    """A batch, and the future for its receipt, which may be cancelled or belong to a closed loop."""

    __slots__ = ("batch", "future", "ingest", "is_back", "lane", "loop")

    def __init__(self, lane: _Lane, ingest: Ingest, batch: SmallBatch, future: asyncio.Future[Receipt]) -> None:
        self.lane, self.ingest, self.batch, self.future = lane, ingest, batch, future
        self.loop = future.get_loop()
        self.is_back = False
        batch.settled = self

    def __call__(self) -> None:
        """Called by the log when the batch is settled."""
        self.lane.take_back(self)

    def tell(self) -> None:
        """Set the future to the receipt or the error."""
        try:
            receipt = self.ingest.outcome(self.batch)
        except Exception as error:  # noqa: BLE001  raised to the awaiting caller
            self.fail(error)
        else:
            if self._is_awaited:
                self.future.set_result(receipt)

    def fail(self, error: Exception) -> None:
        """Set the future to an error: the batch is not stored."""
        if self._is_awaited:
            self.future.set_exception(error)

    @property
    def _is_awaited(self) -> bool:
        return not self.future.done() and not self.loop.is_closed()


_LANES: WeakKeyDictionary[asyncio.AbstractEventLoop, WeakKeyDictionary[Ingest, _Lane]] = WeakKeyDictionary()
_FINDING = Lock()


def _lane_of(loop: asyncio.AbstractEventLoop, ingest: Ingest) -> _Lane:
    with _FINDING:
        lanes = _LANES.get(loop)
        if lanes is None:
            lanes = _LANES[loop] = WeakKeyDictionary()
        lane = lanes.get(ingest)
        if lane is None:
            lane = lanes[ingest] = _Lane()
        return lane
