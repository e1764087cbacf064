"""The picture at the end of the demo: histories on a time line, bytes per event, and the time of a point read."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from matplotlib.figure import Figure as Canvas
from matplotlib.layout_engine import ConstrainedLayoutEngine

from examples.demo.contest import ESDB, Figure, format_ratio
from examples.demo.time_line import OTHER, TimeLine

INK, FAINT, PEER, OURS = "#22313f", "#8a97a3", "#c3ccd4", "#e4572e"
VALUE_COLOURS = ("#2e86ab", "#e4572e", "#58a55c", "#f2b134", "#7d5ba6", "#8a97a3")
STYLE: dict[Any, Any] = {
    "font.size": 10,
    "font.family": "sans-serif",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": FAINT,
    "axes.titlesize": 12,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.titlepad": 10,
    "text.color": INK,
    "axes.labelcolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "xtick.labelsize": 9,
    "ytick.labelsize": 9,
    # Show user text unchanged: a dollar sign in a key does not start a formula.
    "text.parse_math": False,
}
INCHES = (13.0, 8.0)
DOTS_PER_INCH = 140
LABEL_LETTERS = 34


def draw(
    path: Path, heading: str, story: str, time_line: TimeLine, bytes_per_event: Mapping[str, float], point_read: Figure
) -> None:
    """Draw the picture into a PNG file."""
    with mpl.rc_context(STYLE), warnings.catch_warnings():
        warnings.filterwarnings(
            "ignore", message="Glyph .* missing"
        )  # keys may be in any script; a missing glyph is drawn as a box
        layout = ConstrainedLayoutEngine(w_pad=0.18, h_pad=0.16, hspace=0.06, wspace=0.04)
        canvas = Canvas(figsize=INCHES, layout=layout, facecolor="white")
        canvas.suptitle(heading, fontsize=15, fontweight="bold", x=0.012, ha="left")
        grid = canvas.add_gridspec(2, 2, height_ratios=(1.15, 1))
        _draw_time_line(canvas.add_subplot(grid[0, :]), story, time_line)
        _draw_bars(canvas.add_subplot(grid[1, 0]), "Bytes per event (esdb: with its indexes)", bytes_per_event)
        title_of_reads = f"{point_read.work}, {point_read.unit} (log scale)"
        _draw_log_dots(canvas.add_subplot(grid[1, 1]), title_of_reads, point_read.by_contestant)
        canvas.savefig(path, dpi=DOTS_PER_INCH)


def _draw_time_line(axes: Axes, title: str, line: TimeLine) -> None:
    axes.set_title(title)
    moments = line.timestamps_us.astype("datetime64[us]")
    spread = np.random.default_rng(0).uniform(-0.26, 0.26, len(moments))  # keeps a burst visible as many dots
    for row in range(len(line.spaces)):
        axes.axhline(row, color=PEER, linewidth=0.8, zorder=0)
    for code, value in enumerate(line.values):
        chosen = line.value_codes == code
        colour = VALUE_COLOURS[min(code, len(VALUE_COLOURS) - 1)]
        axes.scatter(
            moments[chosen], line.rows[chosen] + spread[chosen],
            s=24, color=colour, alpha=0.6, linewidths=0, zorder=1 if value == OTHER else 2 + code,  # rare values on top
            label=f" {value}",  # the space, because labels that begin with _ are left out
        )  # fmt: skip
    axes.set_yticks(range(len(line.spaces)), [_shorten(space) for space in line.spaces])
    axes.set_ylim(len(line.spaces) - 0.45, -0.55)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    locator = AutoDateLocator()
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(ConciseDateFormatter(locator))
    if any(line.values):
        axes.legend(
            loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=len(line.values), frameon=False, fontsize=9,
            handletextpad=0.1, columnspacing=1.2,
        )  # fmt: skip


def _draw_bars(axes: Axes, title: str, values: Mapping[str, float]) -> None:
    axes.set_title(title)
    names = _smallest_first(axes, values)
    axes.barh(range(len(names)), [values[name] for name in names], color=_colours(names), height=0.62)
    axes.set_xlim(0, max(values.values()) * 1.2)
    _label(axes, names, values, "{:,.1f}", at_x=8)
    axes.spines["bottom"].set_visible(False)
    axes.tick_params(axis="x", length=0, labelbottom=False)


def _draw_log_dots(axes: Axes, title: str, values: Mapping[str, float]) -> None:
    """Draw dots instead of bars, because on a logarithmic axis the length of a bar means nothing."""
    axes.set_title(title)
    names = _smallest_first(axes, values)
    numbers = [values[name] for name in names]
    axes.set_xscale("log")
    axes.set_xlim(10 ** np.floor(np.log10(min(numbers))), max(numbers) * 6)
    axes.hlines(range(len(names)), axes.get_xlim()[0], numbers, color=PEER, linewidth=1.2, zorder=1)
    axes.scatter(numbers, range(len(names)), s=190, color=_colours(names), zorder=2)
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.grid(axis="x", color=PEER, linewidth=0.5, alpha=0.6)
    axes.set_axisbelow(True)
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.tick_params(axis="x", which="minor", length=0)
    _label(axes, names, values, "{:,.0f}", at_x=14)


def _smallest_first(axes: Axes, values: Mapping[str, float]) -> list[str]:
    """Put the names on the y axis, the smallest value at the top."""
    names = sorted(values, key=lambda name: values[name])
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    for label in axes.get_yticklabels():
        label.set_fontweight("bold" if label.get_text() == ESDB else "normal")
    return names


def _colours(names: Sequence[str]) -> list[str]:
    return [OURS if name == ESDB else PEER for name in names]


def _label(axes: Axes, names: Sequence[str], values: Mapping[str, float], form: str, *, at_x: int) -> None:
    for row, name in enumerate(names):
        ratio = "" if name == ESDB else f"   ({format_ratio(values[name] / values[ESDB])})"
        axes.annotate(
            form.format(values[name]) + ratio, (values[name], row), xytext=(at_x, 0), textcoords="offset points",
            va="center", fontweight="bold" if name == ESDB else "normal",
        )  # fmt: skip


def _shorten(text: str) -> str:
    return text if len(text) <= LABEL_LETTERS else "…" + text[1 - LABEL_LETTERS :]
