"""Appends from an event loop, without a waiting thread: batches of one turn of the loop go to the log together."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from threading import Lock
from weakref import WeakKeyDictionary

from aggregator.engine.ingest.append import Ingest, SmallBatch
from aggregator.model import Receipt


async def append_async(ingest: Ingest, append: Callable[[], Receipt], batch: SmallBatch | None) -> Receipt:
    """Store a small batch; if it is None, call `append` in a thread. Raises as `Ingest.append`."""
    if batch is None:
        return await asyncio.to_thread(append)
    loop = asyncio.get_running_loop()
    sent = _Sent(_queue_of(loop, ingest), ingest, batch, loop.create_future())
    sent.queue.add(sent)
    return await sent.future


class _LoopQueue:
    """Batches of one event loop on their way to the log of one catalog, and back. Has no reference to either."""

    def __init__(self) -> None:
        self._outgoing: list[_Sent] = []
        self._settled: deque[_Sent] = deque()
        self._settling = Lock()  # held while a batch is added to `_settled`

    def add(self, sent: _Sent) -> None:
        """Send a batch with the others of this turn of the loop."""
        if not self._outgoing:
            sent.loop.call_soon(self._send_all)
        self._outgoing.append(sent)

    def _send_all(self) -> None:
        outgoing, self._outgoing = self._outgoing, []
        try:
            outgoing[0].ingest.append_soon([sent.batch for sent in outgoing])
        except Exception as error:  # noqa: BLE001  raised to the awaiting callers
            for sent in outgoing:
                sent.fail(error)

    def settle(self, sent: _Sent) -> None:
        """Called when a batch is settled, from any thread, even from several. The first of many wakes the loop."""
        with self._settling:
            if sent.is_settled:
                return
            sent.is_settled = True
            self._settled.append(sent)
            is_first = len(self._settled) == 1
        if is_first:
            try:
                sent.loop.call_soon_threadsafe(self._resolve_all)
            except RuntimeError:  # the loop is closed: nobody awaits them
                self._resolve_all()

    def _resolve_all(self) -> None:
        while self._settled:
            self._settled.popleft().resolve()


class _Sent:
    """A batch, and the future for its receipt, which may be cancelled or belong to a closed loop."""

    __slots__ = ("batch", "future", "ingest", "is_settled", "loop", "queue")

    def __init__(self, queue: _LoopQueue, ingest: Ingest, batch: SmallBatch, future: asyncio.Future[Receipt]) -> None:
        self.queue, self.ingest, self.batch, self.future = queue, ingest, batch, future
        self.loop = future.get_loop()
        self.is_settled = False
        batch.settled = self

    def __call__(self) -> None:
        """Called by the log when the batch is settled."""
        self.queue.settle(self)

    def resolve(self) -> None:
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


_QUEUES: WeakKeyDictionary[asyncio.AbstractEventLoop, WeakKeyDictionary[Ingest, _LoopQueue]] = WeakKeyDictionary()
_QUEUES_LOCK = Lock()


def _queue_of(loop: asyncio.AbstractEventLoop, ingest: Ingest) -> _LoopQueue:
    with _QUEUES_LOCK:
        queues = _QUEUES.get(loop)
        if queues is None:
            queues = _QUEUES[loop] = WeakKeyDictionary()
        queue = queues.get(ingest)
        if queue is None:
            queue = queues[ingest] = _LoopQueue()
        return queue
