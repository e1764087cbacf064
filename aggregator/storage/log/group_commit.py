"""`GroupCommit`: threads queue work; one does it for all that arrived meanwhile, then appoints the next leader."""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Condition, Lock
from typing import Any

from aggregator.errors import LogFailedError
from aggregator.storage.log.entry import DONE, TAKEN, WAITING, Entry
from aggregator.storage.log.frame import frame_bytes

GROUP_BYTES = 16 << 20
"""Limit for the data written and synced as one group: about 50 ms for a disk that writes 300 MB/s."""
MOST_GROUPS = 3
"""Groups that one thread writes before it hands over: waking the next leader costs more than writing another group."""
WOKEN = 4
"""Threads of a group woken immediately; each wakes another when it leaves. More would also wait for the GIL."""


class GroupCommit(ABC):
    """A queue of entries. The thread whose entry is first leads: it settles a group of entries, including its own,
    while the others wait. Entries that no thread waits for are led by a helper thread.

    An interrupt may arrive at any step in any thread: no thread waits forever, and a leader's unfinished work is
    completed.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._idle = Condition(self._lock)
        self._queue: deque[Entry] = deque()
        self._leader: Entry | None = None  # its thread writes, or was woken to write
        self._taken: list[Entry] = []  # the entries that the leader is processing
        self._closed = False
        self._failure: LogFailedError | None = None
        self._helper: ThreadPoolExecutor | None = None  # leads if the next entry has no thread
        self._helping = Lock()  # held while the helper is created

    @abstractmethod
    def _check(self) -> None:
        """Raises if no more entries are accepted. Called with the lock held."""

    @abstractmethod
    def _settle_group(self) -> None:
        """Take some entries, process them, and wake the threads of all that are settled, even after an interrupt.

        The interrupt is raised afterwards.
        """

    # ------------------------------------------------------------ waiting

    def _wait_for(self, entry: Entry) -> None:
        """Queue an entry and wait until it is settled. Raises the errors of `_check`, and interrupts."""
        try:
            self._enqueue(entry)
            while not self._go_on(entry):
                entry.turn.acquire()
        except BaseException:
            self._leave_for_good(entry)
            raise

    def submit(self, entries: Sequence[Entry]) -> None:
        """Queue entries that no thread waits for. When one is settled, its `settled` is called, by any thread and
        perhaps more than once. Raises the errors of `_check`, in which case nothing is called.
        """
        with self._helping:
            if self._helper is None:
                helper = ThreadPoolExecutor(1, thread_name_prefix="aggregator-log")
                helper.submit(int)  # start its thread now, or fail now
                self._helper = helper
        first = entries[0]
        try:
            self._enqueue(*entries)
        finally:  # after an interrupt, too: it may already be the leader that others wait for
            self._have_led(first)

    def _have_led(self, entry: Entry) -> None:
        """Make an entry without a thread lead, if it is its turn. Interrupts are raised afterwards."""
        interrupt: BaseException | None = None
        done = False
        while not done:
            try:
                if self._leader is entry:
                    self._wake(entry)
                done = True
            except (KeyboardInterrupt, SystemExit) as error:
                interrupt = error
        if interrupt is not None:
            raise interrupt

    def _go_on_alone(self, entry: Entry) -> None:
        """Process an entry that no thread waits for, in the helper thread."""
        try:
            is_settled = self._go_on(entry)
        except BaseException:  # noqa: BLE001  `check_stored` reports it to the caller
            self._leave_for_good(entry)
            is_settled = True
        if is_settled:
            self._wake(entry)

    def _enqueue(self, *entries: Entry) -> None:
        with self._lock:
            self._check()
            if self._leader is None:
                self._leader = entries[0]  # from here on nobody else leads, even after an interrupt
            self._queue.extend(entries)

    def _go_on(self, entry: Entry) -> bool:
        """Lead if it is the entry's turn. Returns whether the entry is settled; if not, another thread will wake it."""
        while entry.state != DONE or self._leader is entry:
            if self._leader is not entry:
                return False
            self._lead()
        if entry.following is not None:
            self._wake(entry.following)
        return True

    def _leave_for_good(self, entry: Entry) -> None:
        done = False
        while not done:
            with contextlib.suppress(BaseException):  # the first interrupt is raised
                done = self._leave(entry)

    def _leave(self, entry: Entry) -> bool:
        """After an interrupt: abandon this entry, but finish work that others wait for. If a leader is processing the
        entry, wait until its outcome is known. Returns whether nothing remains to be done.
        """
        if self._leader is entry:
            self._lead()
        with self._lock:
            if entry.state == WAITING and entry in self._queue:
                self._queue.remove(entry)
            if self._leader is not None:
                self._wake(self._leader)  # the interrupt may have come between appointing and waking it
        if entry.state == TAKEN and self._leader is not entry:
            entry.turn.acquire()
        if entry.following is not None:
            self._wake(entry.following)
        return entry.state != TAKEN and self._leader is not entry

    # ------------------------------------------------------------ leading

    def _lead(self) -> None:
        """Settle waiting entries, the leader's own first, and hand over. After an interrupt, call again to continue."""
        try:
            self._wake_settled()  # entries whose threads an interrupt kept from being woken
            for _ in range(MOST_GROUPS):
                self._settle_group()
                if self._failure is not None or not self._queue:
                    break
        finally:
            self._wake_settled()
            self._hand_over()

    def _take(self) -> None:
        """Take the entries to write together from the queue: about GROUP_BYTES, and no key twice."""
        keys: set[Any] = set()
        size = 0
        with self._lock:
            while self._queue:
                entry = self._queue[0]
                if entry.state == DONE:  # an interrupt came while it was taken
                    self._queue.popleft()
                    continue
                size += frame_bytes(entry.body_length)
                if (self._taken and size > GROUP_BYTES) or entry.key in keys:
                    break
                self._taken.append(entry)
                entry.state = TAKEN
                self._queue.popleft()
                if entry.key is not None:
                    keys.add(entry.key)

    def _wake_settled(self) -> None:
        """Mark the taken entries as done and wake their threads. Waking twice, after an interrupt, is harmless.

        The entry that a thread wakes next is known, and done, before its own entry is done, because its thread may then
        leave even without being woken.
        """
        others = [entry for entry in self._taken if entry is not self._leader]
        threads = [entry for entry in others if entry.settled is None]
        for place in range(len(threads) - 1, WOKEN - 1, -1):
            threads[place - WOKEN].following = threads[place]
        for entry in reversed(self._taken):
            entry.state = DONE
        for entry in threads[:WOKEN]:
            self._wake(entry)
        for entry in others:
            if entry.settled is not None:
                self._wake(entry)
        self._taken = []

    def _wake(self, entry: Entry) -> None:
        """Wake the thread of an entry, perhaps for a second time.

        If the entry has no thread, call `settled`, or let the helper thread lead.
        """
        if entry.settled is None:
            try:  # noqa: SIM105  called for each entry; a context manager takes four times as long
                entry.turn.release()
            except RuntimeError:
                pass
        elif entry.state == DONE and self._leader is not entry:
            entry.settled()
        else:
            assert self._helper is not None
            self._helper.submit(self._go_on_alone, entry)

    def _hand_over(self) -> None:
        """Make the next entry in the queue the leader; if the log has failed, wake all of them with the error."""
        with self._lock:
            while self._queue and (self._failure is not None or self._queue[0].state == DONE):
                entry = self._queue[0]
                if entry.state != DONE:  # otherwise it was settled when an interrupt came while it was taken
                    entry.error, entry.state = self._failure, DONE
                self._wake(entry)
                self._queue.popleft()
            if self._queue:
                self._leader = self._queue[0]
                self._wake(self._leader)
            else:
                self._leader = None
                self._idle.notify_all()

    def _finish(self) -> bool:
        """Stop accepting entries, and wait for the accepted ones. Returns False if already closed."""
        with self._lock:
            if self._closed:
                return False
            self._closed = True
            while self._leader is not None:
                self._idle.wait()
        if self._helper is not None:
            self._helper.shutdown()
        return True
