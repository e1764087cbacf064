"""The plots of the report: one per group of works, with one panel per work."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.bars import SUBJECT
from benchmarks.report import Run, headline, number, unit

GROUPS = {"write": "Writing and size", "scan": "Reading in bulk", "point": "Questions about one space"}
LEAST_BARS = 3  # fewer make no comparison
LOG_SPAN = 12  # ratio of largest to smallest figure above which the scale is logarithmic
COLUMNS = 3
SUBJECT_COLOUR, PEER_COLOUR, INK, FAINT = "#d1495b", "#9fb3c8", "#22303c", "#8796a5"


def draw(run: Run, directory: Path) -> list[Path]:
    """Draw every group that has figures, and return the paths of the plots."""
    directory.mkdir(parents=True, exist_ok=True)
    drawn = []
    for group, title in GROUPS.items():
        works = {id_: work for id_, work in run["works"].items() if work["group"] == group and _measured(work)}
        if works:
            drawn.append(directory / f"{group}.png")
            _draw_group(f"{title}: {headline(run)}", works, drawn[-1])
    return drawn


def _measured(work: dict[str, Any]) -> dict[str, Any]:
    """The measured figures, empty if they are too few for a plot."""
    figures = {name: figure for name, figure in work["figures"].items() if "median" in figure}
    return figures if len(figures) >= LEAST_BARS else {}


def _draw_group(title: str, works: dict[str, Any], path: Path) -> None:
    columns = min(COLUMNS, len(works))
    lines = -(-len(works) // columns)
    with mpl.rc_context({"font.size": 9, "text.color": INK, "axes.labelcolor": INK, "ytick.color": INK}):
        picture = Figure(figsize=(4.6 * columns, 2.9 * lines + 0.5), layout="constrained", dpi=130)
        picture.suptitle(title, x=0.01, ha="left", fontsize=11)
        panels = list(picture.subplots(lines, columns, squeeze=False).flat)
        for panel, (id_, work) in zip(panels, works.items(), strict=False):
            _draw_panel(panel, id_, work)
        for panel in panels[len(works) :]:
            panel.set_axis_off()
        picture.savefig(path)


def _draw_panel(panel: Axes, id_: str, work: dict[str, Any]) -> None:
    """Draw bars, the best on top, with a thin line to p99 if there is one."""
    more = work["more_is_better"]
    figures = sorted(_measured(work).items(), key=lambda item: item[1]["median"], reverse=not more)
    medians = [figure["median"] for _, figure in figures]
    names = [name for name, _ in figures]
    colours = [SUBJECT_COLOUR if name == SUBJECT else PEER_COLOUR for name in names]
    panel.barh(names, medians, color=colours, height=0.72, zorder=2)
    tops = [figure.get("p99", median) for (_, figure), median in zip(figures, medians, strict=True)]
    panel.hlines(range(len(names)), medians, tops, color=FAINT, linewidth=1, zorder=1)
    if max(tops) / min(medians) > LOG_SPAN:
        panel.set_xscale("log")
        panel.set_xlim(min(medians) / 2.5, max(tops) * 6)
    else:
        panel.set_xlim(0, max(tops) * 1.22)
    for place, (median, top) in enumerate(zip(medians, tops, strict=True)):
        panel.annotate(number(median), (top, place), xytext=(4, 0), textcoords="offset points", va="center")
    for label in panel.get_yticklabels():
        label.set_fontweight("bold" if label.get_text() == SUBJECT else "normal")
    p99 = ", line to p99" if tops != medians else ""
    panel.set_title(f"{id_}: {work['title']}", loc="left", fontsize=9, fontweight="bold")
    panel.set_xlabel(f"{unit(work)} ({'more' if more else 'less'} is better{p99})", fontsize=8, color=FAINT)
    panel.tick_params(axis="x", colors=FAINT, labelsize=7, which="both")
    panel.tick_params(axis="y", length=0)
    for side in ("top", "right", "left"):
        panel.spines[side].set_visible(False)
    panel.spines["bottom"].set_color(FAINT)
