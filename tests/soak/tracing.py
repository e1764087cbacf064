"""A forked process that is watched at each system call that changes files: killed there, or given a disk error.

Needs Linux on x86-64 and nothing but Python: a seccomp filter stops the process before such a call, and ptrace lets its
parent decide. Calls on files below one directory are counted, for all threads and callers: Python, SQLite and Arrow
alike.
"""

from __future__ import annotations

import ctypes
import os
import platform
import signal
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

POSSIBLE = sys.platform == "linux" and platform.machine() == "x86_64"

WRITES = {1: "write", 18: "pwrite", 20: "writev", 296: "pwritev"}
SYNCS = {74: "fsync", 75: "fdatasync"}
_BY_DESCRIPTOR = WRITES | SYNCS | {77: "ftruncate", 285: "fallocate"}
_BY_PATH = {
    2: ("open", 0), 257: ("open", 1), 76: ("truncate", 0), 82: ("rename", 0), 264: ("rename", 1), 316: ("rename", 1),
    86: ("link", 0), 265: ("link", 1), 87: ("unlink", 0), 263: ("unlink", 1), 83: ("mkdir", 0), 258: ("mkdir", 1),
}  # fmt: skip
"""Number -> name, and which argument is the path. Of opens, only those that may create a file."""
_OPENS = {2: 1, 257: 2}  # number -> which argument contains the flags

_TRACEME, _CONT, _GETREGS, _SETREGS, _SYSCALL, _SETOPTIONS = 0, 7, 12, 13, 24, 0x4200
_OPTIONS = 0x1 | 0x2 | 0x4 | 0x8 | 0x80 | 0x100000  # mark syscall stops; follow children, threads, seccomp; die with us
_SECCOMP_STOP = signal.SIGTRAP | 7 << 8
_AFTER_CALL = signal.SIGTRAP | 0x80
_WALL = 0x40000000
_REGISTERS = (
    "r15", "r14", "r13", "r12", "rbp", "rbx", "r11", "r10", "r9", "r8", "rax", "rcx", "rdx", "rsi", "rdi", "orig_rax",
    "rip", "cs", "eflags", "rsp", "ss", "fs_base", "gs_base", "ds", "es", "fs", "gs",
)  # fmt: skip
_NOTHING = (1 << 64) - 1

_libc = ctypes.CDLL(None, use_errno=True)
_libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
_libc.ptrace.restype = ctypes.c_long


class _Registers(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in _REGISTERS]


class _Rule(ctypes.Structure):
    _fields_ = [("code", ctypes.c_uint16), ("jt", ctypes.c_uint8), ("jf", ctypes.c_uint8), ("k", ctypes.c_uint32)]


class _Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_uint16), ("rules", ctypes.POINTER(_Rule))]


@dataclass(frozen=True, slots=True)
class Fault:
    """The fault at calls `first` to `first + count - 1`, from 1, of those named `calls` (None: of all).

    error: the errno that they return without being executed; None kills the process instead.
    torn: first write half of what a write was to write, where the kernel could do so.
    kill_after: kill the process this many calls after the first fault.
    maker: if a child of the watched process makes the call, kill the child instead.
    """

    first: int
    count: int = 1
    calls: frozenset[str] | None = None
    error: int | None = None
    torn: bool = False
    kill_after: int | None = None
    maker: bool = False


@dataclass(slots=True)
class Run:
    """What a process did. `calls`: each counted call and the file's path below the directory; `hit`: indexes of faulty
    calls.

    helper_killed: the fault killed a child of the process, and not the process.
    """

    status: int = 0
    helper_killed: bool = False
    calls: list[tuple[str, str]] = field(default_factory=list)
    hit: list[int] = field(default_factory=list)

    @property
    def killed(self) -> bool:
        """Whether the fault killed it."""
        return os.WIFSIGNALED(self.status) and os.WTERMSIG(self.status) == signal.SIGKILL

    @property
    def ended_well(self) -> bool:
        """Whether it exited successfully."""
        return os.WIFEXITED(self.status) and os.WEXITSTATUS(self.status) == 0


def run(work: Callable[[], None], directory: Path, fault: Fault | None) -> Run:
    """Run `work` in a watched, forked process. Nothing else may wait for children of this process meanwhile."""
    child = fork(work, prepare=_be_watched)
    os.waitpid(child, _WALL)  # it has stopped itself
    _ptrace(_SETOPTIONS, child, _OPTIONS)
    _ptrace(_CONT, child, 0)
    return _Watch(child, directory, fault).until_it_ends()


def fork(work: Callable[[], None], prepare: Callable[[], None] = lambda: None) -> int:
    """Run `work` in a forked process, which exits with 0, or with 3 and a traceback."""
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        status = 3
        try:
            prepare()
            work()
            status = 0
        except BaseException:  # noqa: BLE001  nothing handles it above
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(status)
    return child


def _ptrace(request: int, thread: int, data: int) -> None:
    """Make a ptrace request; a thread that has ended meanwhile does not matter."""
    _libc.ptrace(request, thread, None, data)


def _be_watched() -> None:
    """Request a tracer, wait for it, and stop before each call from now on."""
    if _libc.ptrace(_TRACEME, 0, None, None) or _libc.prctl(38, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "this machine does not let processes be traced")
    os.kill(os.getpid(), signal.SIGSTOP)
    rules = (_Rule * len(_filter()))(*_filter())
    if _libc.prctl(22, 2, ctypes.byref(_Program(len(rules), rules)), 0, 0):
        raise OSError(ctypes.get_errno(), "this machine does not take a seccomp filter")


def _filter() -> list[_Rule]:
    load, equal, any_bit, give = 0x20, 0x15, 0x45, 0x06
    trace, allow = 0x7FF00000, 0x7FFF0000
    rules = [_Rule(load, 0, 0, 4), _Rule(equal, 1, 0, 0xC000003E), _Rule(give, 0, 0, allow), _Rule(load, 0, 0, 0)]
    for number in sorted(set(_BY_DESCRIPTOR) | set(_BY_PATH) - set(_OPENS)):
        rules += [_Rule(equal, 0, 1, number), _Rule(give, 0, 0, trace)]
    for number, argument in _OPENS.items():
        flags = _Rule(load, 0, 0, 16 + 8 * argument)
        rules += [_Rule(equal, 0, 4, number), flags, _Rule(any_bit, 0, 1, os.O_CREAT), _Rule(give, 0, 0, trace)]
        rules += [_Rule(give, 0, 0, allow)]
    return [*rules, _Rule(give, 0, 0, allow)]


class _Watch:
    """The watching of one process."""

    def __init__(self, child: int, directory: Path, fault: Fault | None) -> None:
        self._child, self._fault = child, fault
        self._directory = str(directory) + "/"
        self._counted = 0
        self._run = Run()

    def until_it_ends(self) -> Run:
        """Wait until the process and all its children have ended."""
        ended = False
        while True:
            try:
                thread, status = os.waitpid(-1, _WALL)
            except ChildProcessError:
                return self._run
            if not os.WIFSTOPPED(status):
                if thread == self._child:
                    self._run.status, ended = status, True
            elif status >> 8 == _SECCOMP_STOP and not ended:
                self._before_call(thread)
            elif os.WSTOPSIG(status) == _AFTER_CALL and not ended:
                self._kill(thread)
            else:
                stop = os.WSTOPSIG(status)
                _ptrace(_CONT, thread, 0 if stop in (signal.SIGTRAP, signal.SIGSTOP, _AFTER_CALL) else stop)

    def _kill(self, thread: int) -> None:
        """Kill the watched process at a call of a thread."""
        victim = self._child
        if self._fault is not None and self._fault.maker and not self._run.helper_killed:
            status = Path(f"/proc/{thread}/status").read_text()
            victim = int(status.partition("\nTgid:")[2].split()[0])
            self._run.helper_killed = victim != self._child
        os.kill(victim, signal.SIGKILL)

    def _before_call(self, thread: int) -> None:
        registers = _Registers()
        _libc.ptrace(_GETREGS, thread, None, ctypes.byref(registers))
        try:
            path = self._path(thread, registers)
        except OSError:  # it has just been killed
            path = None
        hit = path is not None and self._count(registers, path)
        if self._is_over():
            self._kill(thread)
            return
        if not hit:
            _ptrace(_CONT, thread, 0)
            return
        assert self._fault is not None
        fault = self._fault
        half = registers.rdx // 2 if fault.torn and registers.orig_rax in WRITES and len(self._run.hit) == 1 else 0
        if half:
            registers.rdx = half
        elif fault.error is None:
            self._kill(thread)
            return
        else:
            registers.orig_rax, registers.rax = _NOTHING, (1 << 64) - fault.error
        _libc.ptrace(_SETREGS, thread, None, ctypes.byref(registers))
        _ptrace(_SYSCALL if half and fault.error is None else _CONT, thread, 0)

    def _is_over(self) -> bool:
        """Whether the fault was long enough ago."""
        if self._fault is None or self._fault.kill_after is None or not self._run.hit:
            return False
        return len(self._run.calls) > self._run.hit[0] + self._fault.kill_after

    def _path(self, thread: int, registers: _Registers) -> str | None:
        """The file of a call, as a path below the directory; None for others."""
        number = registers.orig_rax
        if number in _BY_DESCRIPTOR:
            path = str(Path(f"/proc/{thread}/fd/{registers.rdi}").readlink())
        else:
            _, argument = _BY_PATH[number]
            with open(f"/proc/{thread}/mem", "rb", buffering=0) as memory:  # noqa: PTH123
                memory.seek((registers.rdi, registers.rsi)[argument])
                path = os.fsdecode(memory.read(4096).partition(b"\0")[0])
        path = path.removesuffix(" (deleted)")
        if path + "/" == self._directory:
            return "."
        return path[len(self._directory) :] if path.startswith(self._directory) else None

    def _count(self, registers: _Registers, path: str) -> bool:
        """Count a call. Returns whether the fault applies to it."""
        number = registers.orig_rax
        name = _BY_DESCRIPTOR.get(number) or _BY_PATH[number][0]
        self._run.calls.append((name, path))
        fault = self._fault
        if fault is None or (fault.calls is not None and name not in fault.calls):
            return False
        self._counted += 1
        hit = fault.first <= self._counted < fault.first + fault.count
        if hit:
            self._run.hit.append(len(self._run.calls) - 1)
        return hit
