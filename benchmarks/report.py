"""The report: tables of a run, on the terminal and in Markdown."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.bars import BARS, SUBJECT
from benchmarks.section import machine, table

Run = Mapping[str, Any]
"""A run as JSON: the result of `run.measure`."""


def number(value: float) -> str:
    """Format a number with about three significant digits, without an exponent."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def advantage(work: Mapping[str, Any], name: str) -> float | None:
    """How many times better the subject's figure is than this contender's; None if either is missing."""
    figures = work["figures"]
    try:
        ratio = figures[name]["median"] / figures[SUBJECT]["median"]
    except KeyError:
        return None
    return 1 / ratio if work["more_is_better"] else ratio


def cell(work: Mapping[str, Any], name: str) -> tuple[str, str]:
    """A contender's figure in a work, and the ratio to show below it."""
    figure = work["figures"].get(name)
    if figure is None:
        return "", ""
    if "missing" in figure:
        return ("FAILED" if figure["failed"] else "–"), ""
    value = number(figure["median"])
    if "p99" in figure:
        value += f" / {number(figure['p99'])}"
    times = advantage(work, name) if name != SUBJECT else None
    return value, f"{number(times)} ×" if times is not None else ""


def contenders_of(run: Run) -> list[str]:
    """The names of all contenders, each of which has a column."""
    return list(run["environment"]["contenders"])


def verdicts(run: Run) -> list[dict[str, Any]]:
    """Each bar with its value and whether it is met, without bars whose figures were not measured."""
    figures = {id_: work["figures"] for id_, work in run["works"].items()}
    judged = ((bar, bar.judge(figures)) for bar in BARS)
    return [
        {"work": bar.work, "demand": bar.demand, "aim": bar.aim, "value": found[0], "met": found[1]}
        for bar, found in judged
        if found is not None
    ]


def verdict(found: Mapping[str, Any]) -> str:
    """The verdict as a word, which differs between bars and aims."""
    if found["aim"]:
        return "reached" if found["met"] else "not reached"
    return "met" if found["met"] else "MISSED"


def failures(run: Run) -> list[str]:
    """A line for each failure."""
    return [
        f"{id_} {name}: {figure['missing']}"
        for id_, work in run["works"].items()
        for name, figure in work["figures"].items()
        if figure.get("failed")
    ]


def notes(run: Run) -> list[str]:
    """A line for each figure that has details."""
    lines = []
    for id_, work in run["works"].items():
        for name, figure in work["figures"].items():
            if details := figure["detail"]:
                lines.append(f"{id_} {name}: " + ", ".join(f"{key}: {value}" for key, value in details.items()))
    return lines


def show(run: Run, console: Console) -> None:
    """Print the run's tables."""
    names = contenders_of(run)
    figures = Table(title=headline(run), caption=LEGEND, title_justify="left", caption_justify="left")
    figures.add_column("work")
    for name in names:
        figures.add_column(name, justify="right", style="bold" if name == SUBJECT else "")
    for id_, work in run["works"].items():
        cells = ("{}\n[dim]{}[/dim]".format(*cell(work, name)) for name in names)
        figures.add_row(f"[bold]{id_}[/bold] {unit(work)}\n[dim]{work['title']}[/dim]", *cells)
    console.print(figures)
    bars = Table(title="Bars and aims (set for 1 M events)", title_justify="left")
    for heading in ("work", "demand", "measured", "verdict"):
        bars.add_column(heading, justify="right" if heading == "measured" else "left")
    for found in run["bars"]:
        style = "green" if found["met"] else "yellow" if found["aim"] else "bold red"
        kind = "aim: " if found["aim"] else ""
        bars.add_row(
            found["work"], kind + found["demand"], number(found["value"]), f"[{style}]{verdict(found)}[/{style}]"
        )
    if run["bars"]:
        console.print(bars)
    for line in notes(run):
        console.print(line, style="dim", highlight=False)
    for line in failures(run):
        console.print(line, style="bold red", highlight=False)


LEGEND = (
    "Medians, for questions about one space also p99. Beneath: how many times better esformat is (below 1: worse)."
    " –: not a work of this contender."
)


def unit(work: Mapping[str, Any]) -> str:
    """The unit, and an arrow in the direction that is better."""
    return f"{work['unit']} {'↑' if work['more_is_better'] else '↓'}"


def headline(run: Run) -> str:
    """One line about the size of the run."""
    options = run["options"]
    return (
        f"{options['events']:,} events, {options['repeats']} repeats of bulk works,"
        f" {options['questions']} questions of point works"
    )


def markdown(run: Run) -> str:
    """The run's tables, notes, machine and versions, for the documentation."""
    names = contenders_of(run)
    rows = (
        (f"**{id_}** {work['title']}, {unit(work)}", *(" · ".join(filter(None, cell(work, name))) for name in names))
        for id_, work in run["works"].items()
    )
    bars = (
        (found["work"], ("aim: " if found["aim"] else "") + found["demand"], number(found["value"]), verdict(found))
        for found in run["bars"]
    )
    environment = run["environment"]
    versions = {**environment["libraries"], **environment["contenders"]}
    parts = [
        f"### {headline(run)}",
        LEGEND,
        table(("work", *names), rows),
        table(("work", "demand (at 1 M events)", "measured", "verdict"), bars),
        "\n".join(f"- {line}" for line in (*notes(run), *failures(run))),
        machine(environment),
        "Versions: " + ", ".join(f"{name}: {version}" for name, version in versions.items()) + ".",
        *(f"Not installed: {name}." for name in run["options"]["skipped"]),
    ]
    return "\n\n".join(filter(None, parts))
