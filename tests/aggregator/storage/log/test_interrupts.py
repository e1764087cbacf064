"""Interrupts at any step of an append: waiting threads continue, and acknowledged batches are in the log once."""

from __future__ import annotations

import contextlib
import dis
import sys
import threading
import time
from itertools import product

import pytest
from log_bench import Bench, read_back

from aggregator.errors import LogFailedError
from aggregator.storage.log import entry as entry_module
from aggregator.storage.log import group_commit
from aggregator.storage.log import log as log_module

WAIT_S = 60
TRACED = {log_module.__file__, group_commit.__file__, entry_module.__file__}


LOOKS = {"RESUME", "CALL", "CALL_FUNCTION_EX", "CALL_KW", "JUMP_BACKWARD"}
"""Instructions after which Python checks for interrupts."""


class Interrupter:
    """Raise KeyboardInterrupt in a thread at the `at`-th place in the log's code where Python checks for signals."""

    def __init__(self, at):
        self._left = at
        self._before = {}  # the last instruction of each frame
        self.came = False

    def __enter__(self):
        sys.settrace(self._trace)

    def __exit__(self, *_):
        sys.settrace(None)

    def _trace(self, frame, event, _):
        if frame.f_code.co_filename not in TRACED:
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            before = self._before.get(frame)
            self._before[frame] = dis.opname[frame.f_code.co_code[frame.f_lasti]]
            self._left -= before in LOOKS
            if self._left <= 0:
                self.came = True
                raise KeyboardInterrupt  # which ends the tracing
        return self._trace


def until(holds):
    deadline = time.monotonic() + WAIT_S
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.0001)


def held(bench, payload, placing, go):
    """An entry whose leader signals when it places it, and waits there."""
    entry = bench.entry(0, payload)
    place = entry.place

    def placed():
        placing.set()
        assert go.wait(WAIT_S)
        return place()

    entry.place = placed
    return entry


def leading(bench, at, others, joins):
    """Interrupt an append at a step while others wait behind it, joined if `joins` is given. Returns each result, and
    whether the interrupt occurred.
    """
    found = {}
    interrupter = Interrupter(at)
    placing, go = threading.Event(), threading.Event()

    def append(name, entry):
        try:
            bench.log.append(entry)
            found[name] = None
        except (KeyboardInterrupt, LogFailedError) as error:
            found[name] = error

    def lead():
        entry = held(bench, b"leader", placing, go)
        with interrupter:
            append("leader", entry)

    threads = [threading.Thread(target=lead, daemon=True)]
    threads[0].start()
    until(lambda: placing.is_set() or "leader" in found)  # it may be interrupted earlier
    for number in range(others):
        entry = bench.entry(0 if joins else number, b"other %d" % number, joins=joins)
        threads.append(threading.Thread(target=append, args=(f"other {number}", entry), daemon=True))
        threads[-1].start()
    until(lambda: not placing.is_set() or len(bench.log._queue) == others or "leader" in found)
    go.set()
    for thread in threads:
        thread.join(WAIT_S)
        assert not thread.is_alive(), f"somebody waits for ever after an interrupt at step {at}"
    return found, interrupter.came


SITUATIONS = [*product(["fsync", "none"], [0, 2], [None]), *product(["fsync", "none"], [3], ["joins"])]


@pytest.mark.parametrize(("durability", "others", "joins"), SITUATIONS)
def test_interrupts_at_every_step(tmp_path, durability, others, joins):
    """With and without others waiting, exactly what was acknowledged is stored, and every append gets one result."""
    at, refused, came = 1, 0, True
    while came:
        bench = Bench(tmp_path / f"{at}", durability)
        bench.append(0, b"before")
        found, came = leading(bench, at, others, joins)
        stored = " ".join(payload.decode() for _, _, payload in bench.published)
        for name, error in found.items():
            if error is None:
                assert stored.count(name) == 1, (at, name)
            elif isinstance(error, LogFailedError):
                assert name not in stored, (at, name, error)
        refused += bench.log.failure is not None
        if bench.log.failure is None:
            bench.append(0, b"after")
        else:
            with pytest.raises(LogFailedError):
                bench.append(0, b"after")
        bench.log.close()
        result, batches = read_back(tmp_path / f"{at}")
        assert not result.damages
        assert not result.torn_bytes
        if bench.log.failure is None:
            assert batches == bench.published, at
        else:
            assert [batch for batch in batches if batch in bench.published] == bench.published, at
        at += 1
    assert at > 40
    assert refused < at / 4  # an interrupt while a batch is placed or published leaves its state unknown


@pytest.mark.parametrize("durability", ["fsync", "none"])
def test_interrupts_before_those_without_threads(tmp_path, durability):
    """If a leader is interrupted while entries without threads wait, each gets the right result."""
    at, came = 1, True
    while came:
        bench = Bench(tmp_path / f"{at}", durability)
        interrupter = Interrupter(at)
        placing, go = threading.Event(), threading.Event()
        told = [threading.Event() for _ in range(5)]

        def lead(bench=bench, interrupter=interrupter, placing=placing, go=go):
            entry = held(bench, b"leader", placing, go)
            with interrupter, contextlib.suppress(KeyboardInterrupt, LogFailedError):
                bench.log.append(entry)

        thread = threading.Thread(target=lead, daemon=True)
        thread.start()
        until(lambda thread=thread, placing=placing: placing.is_set() or not thread.is_alive())
        entries = [bench.entry(0, b"%d" % number, joins="yes" if number else None) for number in range(5)]
        for entry, event in zip(entries, told, strict=True):
            entry.settled = event.set
        with contextlib.suppress(LogFailedError):
            bench.log.submit(entries)
            go.set()
            assert all(event.wait(WAIT_S) for event in told), f"somebody is never told after an interrupt at step {at}"
        go.set()
        thread.join(WAIT_S)
        assert not thread.is_alive()
        stored = b"".join(payload for _, _, payload in bench.published)
        for number, (entry, event) in enumerate(zip(entries, told, strict=True)):
            if event.is_set():
                assert is_stored(bench.log, entry) == (b"%d" % number in stored)
        came = interrupter.came
        bench.log.close()
        at += 1
    assert at > 40


def test_interrupts_of_one_who_submits(tmp_path):
    """An interrupt while submitting entries leaves no leader that nobody wakes: the log continues."""
    at, came = 1, True
    while came:
        bench = Bench(tmp_path / f"{at}")
        interrupter, told = Interrupter(at), threading.Event()
        entry = bench.entry(0, b"submitted")
        entry.settled = told.set

        def submit(bench=bench, interrupter=interrupter, entry=entry):
            with interrupter, contextlib.suppress(KeyboardInterrupt):
                bench.log.submit([entry])

        thread = threading.Thread(target=submit, daemon=True)
        thread.start()
        thread.join(WAIT_S)
        assert not thread.is_alive()
        after = threading.Thread(target=bench.append, args=(0, b"after"), daemon=True)
        after.start()
        after.join(WAIT_S)
        assert not after.is_alive(), f"the log waits for nobody after an interrupt at step {at}"
        assert [payload for _, _, payload in bench.published][-1] == b"after"
        came = interrupter.came
        assert came or told.wait(WAIT_S)
        bench.log.close()
        at += 1
    assert at > 5


def is_stored(log, entry):
    try:
        log.check_stored(entry)
    except LogFailedError:
        return False
    return True


@pytest.mark.parametrize("durability", ["fsync", "none"])
def test_interrupts_of_one_who_wakes_another(tmp_path, durability):
    """With many waiting in one group, an interrupt in a thread that wakes others, at any step, delays none."""
    at, came, waiting = 1, True, 2 * group_commit.WOKEN + 1
    while came:
        bench = Bench(tmp_path / f"{at}", durability)
        placing, go = threading.Event(), threading.Event()
        found, interrupter = {}, Interrupter(at)

        def append(name, entry, bench=bench, found=found):
            try:
                bench.log.append(entry)
                found[name] = None
            except KeyboardInterrupt as error:
                found[name] = error

        def interrupted(bench=bench, append=append, interrupter=interrupter):
            entry = bench.entry(0, b"interrupted")
            with interrupter:
                append("interrupted", entry)

        first = held(bench, b"first", placing, go)
        threads = [threading.Thread(target=append, args=("first", first), daemon=True)]
        threads[0].start()
        until(placing.is_set)
        threads.append(threading.Thread(target=interrupted, daemon=True))
        threads[-1].start()
        until(lambda bench=bench, found=found: bench.log._queue or "interrupted" in found)
        for number in range(waiting):
            entry = bench.entry(number, b"%d" % number)
            threads.append(threading.Thread(target=append, args=(str(number), entry), daemon=True))
            threads[-1].start()
        until(lambda bench=bench: len(bench.log._queue) >= waiting)
        go.set()
        for thread in threads:
            thread.join(WAIT_S)
            assert not thread.is_alive(), f"somebody waits for ever after an interrupt at step {at}"
        came = interrupter.came
        stored = {payload.decode() for _, _, payload in bench.published}
        assert {"first", *map(str, range(waiting))} <= stored
        assert found.pop("interrupted") is not None or "interrupted" in stored
        assert set(found.values()) == {None}
        assert bench.log.failure is None
        bench.log.close()
        at += 1
    assert at > 5
