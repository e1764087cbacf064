"""Turns: of many threads that want something done, one does it for all who came meanwhile, and names the next."""

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
"""At most so much is written and synced at once: about 50 ms of a disk that writes 300 MB/s."""
MOST_GROUPS = 3
"""So many groups one thread writes before it lets the next lead: waking that costs more than writing another."""
WOKEN = 4
"""So many threads of a group are woken at once. Each wakes another when it leaves: where all come together, each waits
for the interpreter's lock as well.
"""


class Turns(ABC):
    """A queue of entries. The thread whose entry is first leads: it settles a group of them, its own among these, while
    the others wait. There is no thread of its own, but for entries that no thread waits for.

    An interrupt may come at any step of any of them: nobody waits for ever, and what a leader began is finished.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._idle = Condition(self._lock)
        self._queue: deque[Entry] = deque()
        self._leader: Entry | None = None  # whose thread writes, or has been woken to
        self._taken: list[Entry] = []  # what it is at
        self._closed = False
        self._failure: LogFailedError | None = None
        self._helper: ThreadPoolExecutor | None = None  # leads where the one whose turn it is has no thread
        self._helping = Lock()  # held while it is made

    @abstractmethod
    def _check(self) -> None:
        """Raise what keeps entries from being taken in. Called with the lock held."""

    @abstractmethod
    def _settle_group(self) -> None:
        """Take some entries, do what is to be done with them, and tell all whose fate that decides, also where an
        interrupt comes, which is raised.
        """

    # ------------------------------------------------------------ those who wait

    def _wait_for(self, entry: Entry) -> None:
        """Have an entry settled; it is when this returns. Raises what `_check` does, and interrupts."""
        try:
            self._enqueue(entry)
            while not self._go_on(entry):
                entry.turn.acquire()
        except BaseException:
            self._leave_for_good(entry)
            raise

    def submit(self, entries: Sequence[Entry]) -> None:
        """Have entries settled for which no thread waits. When one is, its `settled` is called, by any thread and
        perhaps more than once. Raises what `_check` does, and then nothing is called.
        """
        with self._helping:
            if self._helper is None:
                helper = ThreadPoolExecutor(1, thread_name_prefix="aggregator-log")
                helper.submit(int)  # its thread starts now, or never
                self._helper = helper
        first = entries[0]
        try:
            self._enqueue(*entries)
        finally:  # after an interrupt, too: it may have been named the leader, for whom others wait
            self._have_led(first)

    def _have_led(self, entry: Entry) -> None:
        """Have an entry without a thread lead, if it is its turn, whatever interrupts this; the interrupt is raised."""
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
        """Go on with an entry that no thread waits for, in the log's own thread."""
        try:
            is_settled = self._go_on(entry)
        except BaseException:  # noqa: BLE001  whoever waits is told by `check_stored`
            self._leave_for_good(entry)
            is_settled = True
        if is_settled:
            self._wake(entry)

    def _enqueue(self, *entries: Entry) -> None:
        with self._lock:
            self._check()
            if self._leader is None:
                self._leader = entries[0]  # from here on nobody else leads, wherever this is interrupted
            self._queue.extend(entries)

    def _go_on(self, entry: Entry) -> bool:
        """Lead where it is an entry's turn. Gives whether it is settled; where not, somebody wakes it."""
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
            with contextlib.suppress(BaseException):  # the interrupt that came first is raised
                done = self._leave(entry)

    def _leave(self, entry: Entry) -> bool:
        """After an interrupt: nobody will come for this entry any more. What others wait for is done all the same; a
        leader who is at it is waited for, so that it is known what became of it. Gives whether that is all.
        """
        if self._leader is entry:
            self._lead()
        with self._lock:
            if entry.state == WAITING and entry in self._queue:
                self._queue.remove(entry)
            if self._leader is not None:
                self._wake(self._leader)  # the interrupt may have come between naming it and waking it
        if entry.state == TAKEN and self._leader is not entry:
            entry.turn.acquire()
        if entry.following is not None:
            self._wake(entry.following)
        return entry.state != TAKEN and self._leader is not entry

    # ------------------------------------------------------------ the one who leads

    def _lead(self) -> None:
        """Write what waits, one's own entry first, and hand over. Called again after an interrupt, it goes on."""
        try:
            self._tell()  # whom an interrupt kept from being told
            for _ in range(MOST_GROUPS):
                self._settle_group()
                if self._failure is not None or not self._queue:
                    break
        finally:
            self._tell()
            self._hand_over()

    def _take(self) -> None:
        """Take the entries out of the queue that are written together: about GROUP_BYTES, and no key twice."""
        keys: set[Any] = set()
        size = 0
        with self._lock:
            while self._queue:
                entry = self._queue[0]
                if entry.state == DONE:  # an interrupt came when it was taken
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

    def _tell(self) -> None:
        """Let those go whose entries were taken. Who is told twice, after an interrupt, does not notice.

        Whom an entry wakes is known, and done, before it is done itself: its thread may leave then, woken or not.
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
        """Let the thread of an entry look what became of it; it may have been told before. Where it has none, `settled`
        is called, or the log's own thread leads.
        """
        if entry.settled is None:
            try:  # noqa: SIM105  for each entry; a context manager takes four times as long
                entry.turn.release()
            except RuntimeError:
                pass
        elif entry.state == DONE and self._leader is not entry:
            entry.settled()
        else:
            assert self._helper is not None
            self._helper.submit(self._go_on_alone, entry)

    def _hand_over(self) -> None:
        """Let the next in the queue lead; where the log has failed, tell all of them."""
        with self._lock:
            while self._queue and (self._failure is not None or self._queue[0].state == DONE):
                entry = self._queue[0]
                if entry.state != DONE:  # else it was told when an interrupt came while it was taken
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
        """Take nothing more in, and wait for what was; False where that was done before."""
        with self._lock:
            if self._closed:
                return False
            self._closed = True
            while self._leader is not None:
                self._idle.wait()
        if self._helper is not None:
            self._helper.shutdown()
        return True
