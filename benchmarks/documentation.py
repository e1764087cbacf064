"""Rewrite the section about files in `docs/benchmarks.md` from the saved runs."""

from __future__ import annotations

import os
from pathlib import Path

from benchmarks import section
from benchmarks.plots import GROUPS
from benchmarks.report import Run, markdown


def rewrite(runs: list[tuple[Run, Path]]) -> None:
    """Write these runs, and the plots in their directories, to the section."""
    parts = [part for run, pictures in runs for part in (_pictures(pictures), markdown(run))]
    section.rewrite("benchmarks.run", parts)


def _pictures(directory: Path) -> str:
    found = ((title, directory / f"{group}.png") for group, title in GROUPS.items())
    return "\n\n".join(
        f"![{title}]({os.path.relpath(path, section.PAGE.parent)})" for title, path in found if path.exists()
    )
