"""Run a multi-step change so that Ctrl-C cannot stop it halfway."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import TypeVar

T = TypeVar("T")


def uninterrupted(work: Callable[[], T]) -> T:
    """Run `work` to its end; return its result or raise its error.

    Python raises an interrupt, such as Ctrl-C, in the main thread. So in the main thread another thread does the work,
    and the interrupt is raised when the work is done.
    """
    if threading.current_thread() is not threading.main_thread():
        return work()
    done: Future[T] = Future()

    def run() -> None:
        if done.set_running_or_notify_cancel():
            try:
                done.set_result(work())
            except BaseException as error:  # noqa: BLE001  raised in the calling thread
                done.set_exception(error)

    try:
        try:
            threading.Thread(target=run, name="aggregator-uninterrupted").start()
        except RuntimeError:  # no thread available, or the program is ending
            done.cancel()
            return work()
        return done.result()
    except BaseException:
        if not done.cancel():
            wait([done])
        raise
