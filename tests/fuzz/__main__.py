"""Run one target with atheris, coverage-guided: `python -m tests.fuzz TARGET [--inputs N] [--seconds S]`."""

from __future__ import annotations

import argparse
import gc
import hashlib
import importlib
import pkgutil
import sys
from pathlib import Path

import atheris

import tests.fuzz

CORPUS = Path("fuzz-output")
HANG_SECONDS = 5
MEMORY_MIB = 1024  # Arrow, NumPy and coverage's own tables included


def targets() -> list[str]:
    """Names of the modules of this package that are targets."""
    return [name for _, name, _ in pkgutil.iter_modules(tests.fuzz.__path__) if not name.startswith(("_", "test_"))]


def main() -> None:
    """Parse the arguments, write the seeds, hand over to libFuzzer."""
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
    gc.freeze()  # what lives until the end need not be looked through again and again
    atheris.Setup([sys.argv[0], *flags, str(corpus)], target.one_input)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
