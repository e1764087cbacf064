"""How a command starts as a process of its own: where its extra is missing, how it is ended, its exit status."""

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
"""Interrupts that come within so long are one."""


def launch(program: str, package: str, *, late: Sequence[str] = ()) -> NoReturn:
    """Run `package`.run with the process's arguments and exit with its status; it needs the extra `cli`.

    late: modules of its own that are to be loaded with the first of their names, see `import_late`.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # in the background it is ignored, and stays so
        signal.signal(signal.SIGINT, Interrupts())
    import_late(late)
    # NumPy's library for matrices, which nothing here uses, else starts a thread that spins for 0.1 s.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    hide_pandas()  # which takes longer than the rest of a short command
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
    # A terminated command leaves as an interrupted one does: through the code that removes unfinished files.
    signal.signal(signal.SIGTERM, _leave)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a terminal that cannot show a character shows its number
            stream.reconfigure(errors="backslashreplace")
    status = run(sys.argv[1:])
    signal.signal(
        signal.SIGINT, signal.SIG_IGN
    )  # all is done: nothing may end the process otherwise than by its status
    sys.exit(status)


class Interrupts:
    """A handler of SIGINT: of several at once the first counts, as `timeout` passes on what the terminal sends to both.
    What it ended is tidied up undisturbed; a second later another one counts again.
    """

    def __init__(self) -> None:
        self._last = -math.inf

    def __call__(self, number: int, frame: FrameType | None) -> None:
        """Raise KeyboardInterrupt, unless that was done just now."""
        before, self._last = self._last, time.monotonic()
        if self._last - before > TOGETHER_S:
            raise KeyboardInterrupt


def hide_pandas() -> None:
    """Have this process do without pandas, installed or not: pyarrow imports it with the first array."""
    if not any(isinstance(finder, _NoPandas) for finder in sys.meta_path):
        sys.meta_path.insert(0, _NoPandas())


class _NoPandas:
    def find_spec(self, name: str, _path: object = None, _target: object = None) -> None:
        if name == "pandas":
            raise ModuleNotFoundError("pandas is not used here", name=name)


def _leave(number: int, frame: FrameType | None) -> NoReturn:
    sys.exit(128 + number)
