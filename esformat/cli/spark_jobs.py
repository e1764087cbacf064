"""The common part of all `esdb spark` jobs: options, session, report and exit status."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import click

from esformat.cli.console import count, say, size, warn
from esformat.cli.job_display import displayed, quiet, tasks_of
from esformat.cli.output import json_option, say_json
from esformat.cli.params import Pair
from esformat.cli.program import one_line
from esformat.errors import UsageError

_SHOWN_FAILURES = 20
_QUIET = {"spark.ui.showConsoleProgress": "false", "spark.log.level": "ERROR"}


def job_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that all jobs share to a command."""
    for option in reversed((
        click.option("--master", metavar="URL", help="URL of the Spark master. Default: that of "
                                                     "spark-submit, else all processors of this machine."),
        click.option("--conf", type=Pair(), multiple=True, metavar="NAME=VALUE", help="A Spark setting. Repeatable."),
        json_option,
    )):  # fmt: skip
        command = option(command)
    return command


def spark_format(name: str | None) -> str | None:
    """The jobs' name of a format: JSON lines are "json" to Spark, and the source for Go ESDB files is "customerio"."""
    return {"jsonl": "json", "go-esdb": "customerio"}.get(name, name) if name is not None else None


def run_job(title: str, options: dict[str, Any], work: Callable[[Any, Any, Any], Any]) -> int:
    """Run a job in its own Spark session, print its report and return the exit status."""
    try:
        from esformat.spark import jobs, start_session
    except ModuleNotFoundError as error:
        if error.name != "pyspark":
            raise
        raise UsageError(str(error)) from None
    given = dict(options["conf"])
    with nullcontext() if "spark.log.level" in given else quiet():
        session = start_session("esdb spark", master=options["master"], conf={**_QUIET, **given})
    with displayed(title, tasks_of(session)) as show:
        summary = work(session, jobs, show)
    return _report(summary, as_json=options["as_json"])


def _report(summary: Any, *, as_json: bool) -> int:
    if as_json:
        names = ("job", "ok", "files", "made", "skipped", "events", "bytes", "seconds", "failed", "notes")
        facts = {name: getattr(summary, name) for name in names}
        say_json(facts)
        return 0 if summary.ok else 1
    for note in summary.notes:
        say(note)
    parts = [count(summary.files, "file")]
    parts += [f"{count(summary.made, 'file')} published"] if summary.job != "verify" else []
    parts += [f"{summary.skipped:,} skipped"] if summary.skipped else []
    say(
        f"{summary.job}: {', '.join(parts)}; {count(summary.events, 'event')}, {size(summary.bytes)}, "
        f"in {summary.seconds:.1f} s"
    )
    for path, reason in summary.failed[:_SHOWN_FAILURES]:
        warn(f"esdb: {path}: {one_line(RuntimeError(reason))}")
    if len(summary.failed) > _SHOWN_FAILURES:
        warn(f"esdb: and {len(summary.failed) - _SHOWN_FAILURES:,} failures more; --json lists all")
    return 0 if summary.ok else 1
