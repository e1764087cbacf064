"""Run one target with atheris, coverage-guided: `python -m tests.fuzz TARGET [--inputs N] [--seconds S]`."""

from __future__ import annotations

import argparse
import gc
import hashlib
import importlib
import operator
import pkgutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import atheris
import numpy as np

import tests.fuzz

CORPUS = Path("fuzz-output")
HANG_SECONDS = 5
MEMORY_MIB = 1024  # including Arrow, NumPy and the tables of coverage

_COMPARISONS = (operator.lt, operator.le, operator.eq, operator.ne, operator.gt, operator.ge)  # in Python's numbering


def _letting_go(one_input: Callable[[bytes], None]) -> Callable[[bytes], None]:
    """Exclude comparisons of arrays from tracing.

    Atheris 3.0 keeps a reference to the result of each comparison that it traces. For True and False that costs
    nothing, but for arrays, from which it learns nothing either, a million inputs leave gigabytes.
    """
    array = np.ndarray
    traced: Callable[..., Any] | None = None

    def compare(left: Any, right: Any, operation: int, counter: int, is_constant: bool) -> Any:
        if left.__class__ is array or right.__class__ is array:
            return _COMPARISONS[operation](left, right)
        return traced(left, right, operation, counter, is_constant)  # type: ignore[misc] - called often, never None

    def one(data: bytes) -> None:
        nonlocal traced
        if traced is None:  # only now, because Fuzz sets its own function there
            traced, atheris._trace_cmp = atheris._trace_cmp, compare
        one_input(data)

    return one


def targets() -> list[str]:
    """The names of the modules of this package that are targets."""
    return [name for _, name, _ in pkgutil.iter_modules(tests.fuzz.__path__) if not name.startswith(("_", "test_"))]


def main() -> None:
    """Parse the arguments, write the seeds, and start libFuzzer."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("target", choices=targets())
    parser.add_argument("--inputs", type=int, default=1_000_000, help="how many (default: %(default)s)")
    parser.add_argument("--seconds", type=int, default=0, help="stop after so long (default: no limit)")
    parser.add_argument("--hang", type=int, default=HANG_SECONDS, help="seconds for one input (default: %(default)s)")
    options = parser.parse_args()
    with atheris.instrument_imports(include=["esformat", "aggregator"]):
        target = importlib.import_module(f"tests.fuzz.{options.target}")
    corpus = CORPUS / options.target
    corpus.mkdir(parents=True, exist_ok=True)
    for seed in target.seeds():
        (corpus / hashlib.sha256(seed).hexdigest()[:16]).write_bytes(seed)
    flags = [
        f"-runs={options.inputs}",
        f"-max_total_time={options.seconds}",
        f"-timeout={options.hang}",
        f"-rss_limit_mb={MEMORY_MIB}",
        f"-artifact_prefix={corpus}/finding-",
        "-max_len=16384",
        "-print_final_stats=1",
    ]
    gc.freeze()  # objects that live until the end need not be scanned repeatedly
    atheris.Setup([sys.argv[0], *flags, str(corpus)], _letting_go(target.one_input))
    atheris.Fuzz()


if __name__ == "__main__":
    main()
