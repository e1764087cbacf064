"""Run a command as a process: report a missing extra, handle interrupts and termination, exit with its status."""

from __future__ import annotations

import io
import math
import os
import signal
import sys
import time
from collections.abc import Sequence
from importlib import import_module
from types import FrameType
from typing import NoReturn

from esformat.base.extras import advice
from esformat.base.late import import_late

TOGETHER_S = 1.0
"""Interrupts at most this many seconds apart count as one."""


def launch(program: str, package: str, *, late: Sequence[str] = ()) -> NoReturn:
    """Call `package.run` with the process's arguments and exit with the status it returns. Needs the extra `cli`.

    late: further modules to load on first use, see `import_late`.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # a background job ignores SIGINT: keep that
        signal.signal(signal.SIGINT, Interrupts())
    import_late(late)
    # Otherwise NumPy's matrix library, which is not used here, starts a thread that spins for 0.1 s.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    hide_pandas()  # its import takes longer than the rest of a short command
    try:
        run = import_module(package).run  # here, since click and rich may be missing
    except ModuleNotFoundError as error:
        missing = advice(error, "the command line")
        if missing is None:
            raise
        sys.stderr.write(f"{program}: {missing}\n")
        sys.exit(2)
    except KeyboardInterrupt:
        sys.stderr.write(f"{program}: interrupted\n")
        sys.exit(128 + signal.SIGINT)
    # A terminated command exits like an interrupted one: through the code that removes unfinished files.
    signal.signal(signal.SIGTERM, _leave)
    if signal.getsignal(signal.SIGHUP) is signal.SIG_DFL:  # `nohup` ignores it: keep that
        signal.signal(signal.SIGHUP, _leave)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a terminal that cannot show a character shows its code
            stream.reconfigure(errors="backslashreplace")
    status = run(sys.argv[1:])
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the work is done: nothing but its status may end the process now
    sys.exit(status)


class Interrupts:
    """A SIGINT handler that ignores repeats: `timeout` forwards the SIGINT that the terminal sends to both processes.
    The first one takes effect, and cleanup runs undisturbed; a second later, SIGINT takes effect again.
    """

    def __init__(self) -> None:
        self._last = -math.inf

    def __call__(self, number: int, frame: FrameType | None) -> None:
        """Raise KeyboardInterrupt, unless the last SIGINT was at most `TOGETHER_S` ago."""
        before, self._last = self._last, time.monotonic()
        if self._last - before > TOGETHER_S:
            raise KeyboardInterrupt


def hide_pandas() -> None:
    """Make pandas unimportable in this process: pyarrow would import it with the first array, which is slow."""
    if not any(isinstance(finder, _NoPandas) for finder in sys.meta_path):
        sys.meta_path.insert(0, _NoPandas())


class _NoPandas:
    def find_spec(self, name: str, _path: object = None, _target: object = None) -> None:
        if name == "pandas":
            raise ModuleNotFoundError("pandas is not used here", name=name)


def _leave(number: int, frame: FrameType | None) -> NoReturn:
    sys.exit(128 + number)
