"""The works that rewrite files: merging and erasing, compared with copying the same bytes."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

from benchmarks.measure import Figure, WrongAnswerError, excused, measure_bulk
from benchmarks.session import Session
from esformat.tools import erase, merge, split

SUBJECT = "esformat"
PARTS = 4


def erase_space(session: Session) -> dict[str, Figure]:
    """Erase one space from the built file, including the checks of the report."""
    able, figures = session.willing("erase", (SUBJECT,))
    for name, contender in able.items():
        figures[name] = figure = Figure()
        with excused(figure):
            built = _file(session.built(contender))
            (space,) = session.dataset.uniform(0, 1).counted
            out = session.scratch / "rewriting" / "without.esdb"

            def run(built: Path = built, space: str = space, out: Path = out) -> None:
                if not erase(built, out, [space]).ok:
                    raise WrongAnswerError(space)

            _measure(session, figure, run, built, out)
    return figures


def merge_parts(session: Session) -> dict[str, Figure]:
    """Merge parts of the built file, which follow each other in key order, into one file."""
    able, figures = session.willing("merge", (SUBJECT,))
    for name, contender in able.items():
        figures[name] = figure = Figure()
        with excused(figure):
            built = _file(session.built(contender))
            folder = session.scratch / "rewriting"
            out = folder / "merged.esdb"
            folder.mkdir(parents=True, exist_ok=True)
            parts = split(built, folder, size_bytes=built.stat().st_size // PARTS + 1, overwrite=True)
            _measure(session, figure, partial(merge, parts, out), built, out)
            for part in parts:
                part.unlink()
    return figures


def _file(target: Path) -> Path:
    """The only file of a built segment."""
    return target if target.is_file() else next(target.glob("*.esdb"))


def _measure(session: Session, figure: Figure, run: Callable[[], object], built: Path, out: Path) -> None:
    out.parent.mkdir(parents=True, exist_ok=True)

    def prepare(_: str) -> None:
        out.unlink(missing_ok=True)
        os.sync()

    def copy() -> None:
        shutil.copyfile(built, out)
        descriptor = os.open(out, os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)

    tasks = {"run": run, "copy": copy}
    measured = measure_bulk(tasks, lambda *_: None, session.repeats, prepare)
    out.unlink(missing_ok=True)
    for found in measured.values():
        if found.missing:
            raise WrongAnswerError(found.missing)
    figure.samples = [seconds * 1000 for seconds in measured["run"].samples]
    copied = sorted(measured["copy"].samples)[len(measured["copy"].samples) // 2] * 1000
    figure.detail = {"copying the file and fsync, ms": round(copied, 1)}
