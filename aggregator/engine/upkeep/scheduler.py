"""The background work of a catalog: sealing, syncing, chores. Uses one thread and two small pools."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from threading import Condition, Thread

from aggregator.engine.seal.choice import choose_to_seal, next_due_us
from aggregator.engine.seal.sealer import Sealer
from aggregator.engine.upkeep.rewrite import Stopped
from aggregator.policy import Limits
from aggregator.storage.parts import Storage
from esformat import EsdbError

logger = logging.getLogger("aggregator")

NICE = 5
"""Niceness of background threads, which yield to those that append and read: near full load, reads of the newest events
wait half as long. But a thread that the system suspends while it holds the GIL holds up all others."""


@dataclass(slots=True, eq=False)
class _Chore:
    """Work that is repeated if it was requested again while it was running."""

    work: Callable[[], None]
    due: bool = False
    running: bool = False


def _stand_back() -> None:
    """Lower the priority of the calling thread and of threads that it will start."""
    if sys.platform == "linux":  # elsewhere this would affect the whole process
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICE)


class Scheduler:
    """Runs the background work of a writer. `wake` it when something may be due."""

    def __init__(
        self,
        storage: Storage,
        sealer: Sealer,
        *,
        limits: Limits,
        chores: Sequence[Callable[[], None]] = (),
    ) -> None:
        """limits: decide when to seal. chores: retention, compaction …: each is called after a seal, and about once a
        tick, by one thread at a time.
        """
        self._state, self._sealer, self._log, self._budget = storage.state, sealer, storage.log, storage.budget
        self._limits, self._durability, self._clock = limits, storage.durability, storage.clock
        self._tick_s, self._back_off_s = storage.tuning.tick_s, storage.tuning.seal_back_off_s
        self._condition = Condition()
        self._woken = False
        self._stopping = False
        self._workers = max(1, min(os.cpu_count() or 1, 4))
        self._pool = ThreadPoolExecutor(self._workers, "aggregator-seal", _stand_back)
        self._running: dict[int, Future[None]] = {}
        self._chores = [_Chore(chore) for chore in (self._cut_log, *chores)]
        self._chore_pool = ThreadPoolExecutor(len(self._chores), "aggregator-chore", _stand_back)
        self._called = False
        self._back_off: dict[int, tuple[float, float]] = {}  # partition -> not before, and the next pause
        self._failing: dict[object, str] = {}  # what failed when it last ran, with its message
        self._thread = Thread(target=self._run, name="aggregator-maintenance", daemon=True)
        self._thread.start()

    @property
    def problem(self) -> str | None:
        """The latest known failure that still persists; None if there is none."""
        return next(reversed(list(self._failing.values())), None)

    def sealing_problem(self) -> str | None:
        """Why partitions cannot be sealed now; None if they can."""
        return next((why for what, why in list(self._failing.items()) if isinstance(what, int)), None)

    def wake(self) -> None:
        """Check now whether anything is due."""
        with self._condition:
            self._woken = True
            self._condition.notify()

    def run_chores(self) -> None:
        """Run the chores now, or again once they are done, because something was sealed or a limit was passed."""
        self._called = True
        self.wake()

    def stop(self) -> None:
        """Finish running work and start no more."""
        with self._condition:
            self._stopping = True
            self._condition.notify()
        self._thread.join()
        self._pool.shutdown(wait=True)
        self._chore_pool.shutdown(wait=True)

    def _run(self) -> None:
        synced = chored = time.monotonic()
        pause = 0.0
        while True:
            with self._condition:
                if not self._woken and not self._stopping:
                    self._condition.wait(pause)
                if self._stopping:
                    return
                self._woken = False
            now = time.monotonic()
            pause = self._tick_s
            try:
                self._start_seals()
                if self._durability.mode == "interval" and now - synced >= self._durability.interval_us / 1e6:
                    synced = now
                    self._log.sync()
                if now - chored >= self._tick_s or self._called:
                    chored, self._called = now, False
                    self._start_chores()
                pause = self._pause()
                self._failing.pop(self, None)
            except Exception as error:  # noqa: BLE001  reported; the thread must go on
                self._report(self, "background work", error)

    def _pause(self) -> float:
        pause = self._tick_s
        if self._durability.mode == "interval":
            pause = min(pause, self._durability.interval_us / 1e6)
        due = next_due_us(self._sealer.loads())
        if due is not None:
            pause = min(pause, max(0.01, (due - self._clock()) / 1e6))
        return pause

    def _start_seals(self) -> None:
        now = time.monotonic()
        loads = self._sealer.loads()
        chosen = choose_to_seal(loads, self._limits, self._log.size_bytes, self._clock(), self._budget.wanted_bytes)
        begun = [number for number, (_, p) in list(self._state.partitions.items()) if p.sealing is not None]
        for number in self._back_off.keys() - {*begun, *(load.partition for load in loads)}:
            self._sealed(number)  # by another thread
        for number in dict.fromkeys([*begun, *chosen]):
            running = self._running.get(number)
            if running is not None and not running.done():
                continue
            if now >= self._back_off.get(number, (0.0, 0.0))[0]:
                # perhaps no seal has failed and another thread is sealing: then nothing is due once that has finished
                sealing = self._running[number] = self._pool.submit(self._seal, number, number not in chosen)
                sealing.add_done_callback(lambda _: self.wake())  # more may be due by then, without another wake

    def _seal(self, number: int, begun_only: bool) -> None:
        topic, partition = self._state.partitions[number]
        busy = sum(not future.done() for future in list(self._running.values()))
        try:
            threads = max(1, self._workers // max(1, busy))
            self._sealer.seal(topic, partition, threads=threads, sealed=self.run_chores, begun_only=begun_only)
        except Exception as error:  # noqa: BLE001  reported as trouble, and retried
            least, most = self._back_off_s
            pause = min(most, 2 * self._back_off.get(number, (0.0, least / 2))[1])
            self._back_off[number] = (time.monotonic() + pause, pause)
            self._report(number, f"sealing partition {partition.name!r} of topic {topic.info.name!r}", error)
        else:
            self._sealed(number)
        self.run_chores()

    def _cut_log(self) -> None:
        """Delete log files that seals could not delete. If the log is half full and everything in it is sealed, also
        delete the newest file: sealed events must not take the room of new ones.
        """
        if self._log.size_bytes > self._limits.log_bytes // 2 and self._log.is_sealed(self._state.sealed()):
            self._log.roll()
        self._sealer.release_log()

    def _sealed(self, number: int) -> None:
        self._back_off.pop(number, None)
        self._failing.pop(number, None)

    def _start_chores(self) -> None:
        for chore in self._chores:
            chore.due = True
            if not chore.running:
                chore.running = True
                try:
                    self._chore_pool.submit(self._do, chore)
                except RuntimeError:  # no thread is available
                    chore.running = False
                    raise

    def _do(self, chore: _Chore) -> None:
        try:
            while chore.due and not self._stopping:
                chore.due = False
                chore.work()
                self._failing.pop(chore, None)
        except Stopped:
            pass
        except Exception as error:  # noqa: BLE001  as above
            self._report(chore, "upkeep", error)
        finally:
            chore.running = False
            if chore.due and not self._stopping:  # requested after the last check
                self.run_chores()

    def _report(self, who: object, what: str, error: Exception) -> None:
        expected = isinstance(error, EsdbError | OSError)
        message = f"{what} failed and will be retried: {error if expected else repr(error)}"
        if message != self._failing.get(who):
            logger.warning("%s", message, exc_info=None if expected else error)
        self._failing[who] = message
