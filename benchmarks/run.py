"""The comparison benchmark: `python -m benchmarks.run`.

Without options it runs everything at 1 M events; `--only R2 --contenders esformat,sqlite` repeats one row and builds
only the files for that row. It prints tables, and writes JSON and, for a full run, plots.
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks import documentation, plots, report, section
from benchmarks.contenders.protocol import Contender
from benchmarks.contenders.registry import NAMES, installed
from benchmarks.environment import describe
from benchmarks.measure import Figure
from benchmarks.session import Session
from benchmarks.works import WORKS

HERE = Path(__file__).parent
RESULTS = HERE / "results"
STANDARD_EVENTS = 1_000_000
KEPT_EVENTS = (STANDARD_EVENTS, 5_000_000)  # sizes of the runs that the documentation shows
WIDTH_UNSEEN = 200  # if the output is not a terminal


def _choice(text: str, known: Sequence[str]) -> list[str]:
    """Parse a comma-separated list of names, in the known order; the part before a hyphen selects all: R1 is R1-…"""
    asked = {part.strip().lower() for part in text.split(",")}
    chosen = [name for name in known if {name.lower(), name.partition("-")[0].lower()} & asked]
    found = {form for name in chosen for form in (name.lower(), name.partition("-")[0].lower())}
    if unknown := asked - found:
        raise argparse.ArgumentTypeError(f"unknown: {', '.join(sorted(unknown))}; known: {', '.join(known)}")
    return chosen


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.run", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--events", type=int, default=STANDARD_EVENTS)
    parser.add_argument(
        "--only",
        type=lambda text: _choice(text, list(WORKS)),
        default=list(WORKS),
        help=f"works, of {', '.join(WORKS)}",
    )
    parser.add_argument(
        "--contenders", type=lambda text: _choice(text, NAMES), default=list(NAMES), help=f"of {', '.join(NAMES)}"
    )
    parser.add_argument("--repeats", type=int, default=5, help="number of repeats of each bulk work")
    parser.add_argument("--questions", type=int, default=500, help="number of questions of each point work")
    parser.add_argument("--output", type=Path, help="folder for JSON and plots")
    parser.add_argument("--scratch", type=Path, default=RESULTS / "scratch", help="folder for built files")
    parser.add_argument("--write-docs", action="store_true", help="then rewrite docs/benchmarks.md from saved JSON")
    parser.add_argument("--no-measure", action="store_true", help="do not measure, only --write-docs")
    args = parser.parse_args(arguments)
    args.full = args.only == list(WORKS) and args.contenders == list(NAMES)
    if args.write_docs and not args.no_measure and (args.output or not args.full):
        parser.error("--write-docs needs a full run in its usual place, or --no-measure")
    return args


def measure(args: argparse.Namespace, console: Console) -> dict[str, Any]:
    """Run the chosen works with those of the chosen contenders that are installed."""
    contenders: dict[str, Contender] = {}
    skipped: dict[str, str] = {}
    for name, found in installed(args.contenders):
        if isinstance(found, ImportError):
            skipped[name] = str(found)
            console.print(f"SKIPPED {name}: not installed ({found})", style="bold yellow")
        else:
            contenders[name] = found
    session = Session(
        contenders, args.events, args.repeats, args.questions, scratch=args.scratch.absolute(), console=console
    )
    environment = describe(contenders.values())
    gc.freeze()  # so that no collection scans the objects that exist now
    works = {}
    for id_ in args.only:
        work = WORKS[id_]
        start = time.perf_counter()
        console.print(f"{id_}: {work.title}", highlight=False)
        figures = work.run(session)
        session.note_layouts(id_, figures)
        works[id_] = {
            "title": work.title,
            "unit": work.unit,
            "more_is_better": work.more_is_better,
            "group": work.group,
            "figures": _as_json(figures, contenders),
        }
        console.print(f"  {time.perf_counter() - start:.1f} s", style="dim")
    session.close_readers()
    gc.unfreeze()
    run = {
        "environment": environment,
        "options": {
            "events": args.events,
            "repeats": args.repeats,
            "questions": args.questions,
            "skipped": skipped,
        },
        "works": works,
    }
    return run | {"bars": report.verdicts(run)}


def _as_json(figures: dict[str, Figure], order: dict[str, Contender]) -> dict[str, Any]:
    return {name: figures[name].to_json() for name in order}


def kept(events: int) -> tuple[Path, Path]:
    """The JSON file of the last full run of this size, and the directory of its plots."""
    stem = "latest" if events == STANDARD_EVENTS else f"latest-{events}"
    return RESULTS / f"{stem}.json", RESULTS / stem


def keep(run: dict[str, Any], args: argparse.Namespace, console: Console) -> None:
    """Write JSON and plots: a full run where the documentation finds it, a partial run to the scratch directory."""
    file, pictures = kept(args.events)
    if args.output:
        file, pictures = args.output / file.name, args.output / pictures.name
    elif not args.full:
        file = args.scratch / "partial.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(run, indent=1, ensure_ascii=False) + "\n")
    written = [file]
    if args.full or args.output:
        written += plots.draw(run, pictures)
    for path in written:
        console.print(f"wrote {path}", style="dim")


def write_docs(console: Console) -> bool:
    """Rewrite the page from the saved runs; return False if there are none."""
    runs = [(json.loads(file.read_text()), pictures) for file, pictures in map(kept, KEPT_EVENTS) if file.exists()]
    if not runs:
        console.print(f"no full run is kept in {RESULTS}: run the benchmark first", style="bold red")
        return False
    documentation.rewrite(runs)
    console.print(f"rewrote {section.PAGE}")
    return True


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return 0, or 1 if a contender failed or answered wrongly."""
    args = parse(arguments)
    console = Console(width=None if sys.stdout.isatty() else WIDTH_UNSEEN)
    failed = False
    if not args.no_measure:
        run = measure(args, console)
        report.show(run, console)
        keep(run, args, console)
        failed = bool(report.failures(run))
    if args.write_docs:
        failed |= not write_docs(console)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
