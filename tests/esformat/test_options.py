"""Options of `esdb` and `aggregator`: a name has the same meaning in every verb."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

import click
import pytest

from aggregator.cli import main as aggregator
from esformat.cli import main as esdb

ROLES = {"COLUMN", "KEY"}  # a column of input files; a key of events
TWO_MEANINGS = {
    "--space": ROLES,
    "--grouping": ROLES,
    "--follow": {"URL", "flag"},  # another server; new events
    "--index": {"COLUMN", "NAME=VALUE"},  # an index to create; a value of one to find
    "--on-error": {"stop|skip|collect FILE", "stop|skip"},  # Spark tasks collect nothing
    "--time": {"NAME", "TIME"},  # the key of lines with the time; a time to split at
}
NO_REPORT = {"completion", "serve", "shell", "tail", "view"}  # they have no result, or are one


def commands(group: click.Group, path: str) -> Iterator[tuple[str, click.Command]]:
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from commands(command, f"{path} {name}")
        else:
            yield f"{path} {name}", command


VERBS = {**dict(commands(esdb, "esdb")), **dict(commands(aggregator, "aggregator"))}


def options(command: click.Command) -> Iterator[tuple[str, click.Option]]:
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            yield from ((name, parameter) for name in parameter.opts if name.startswith("--"))


def test_a_name_has_one_meaning():
    """A name has the same placeholder and type in every verb, except for the listed names."""
    kinds: dict[str, set[str]] = defaultdict(set)
    for command in VERBS.values():
        for name, option in options(command):
            chosen = "choice" if isinstance(option.type, click.Choice) else None
            kinds[name].add("flag" if option.is_flag else option.metavar or chosen or option.type.name)
    several = {name: found for name, found in kinds.items() if len(found) > 1}
    assert several == TWO_MEANINGS


@pytest.mark.parametrize("old", ["--from", "--report", "--none", "--files", "--zone"])
def test_old_names_are_gone(old):
    """Old names have no aliases."""
    assert not [verb for verb, command in VERBS.items() if old in dict(options(command))]


def test_formats_have_one_set_of_names():
    """A format has the same name in every verb, for reading and writing."""
    known = {
        "table", "wide", "vertical", "template", "csv", "tsv", "jsonl", "json", "parquet", "arrow", "orc", "esdb",
        "go-esdb", "go-stream",
    }  # fmt: skip
    for verb, command in VERBS.items():
        for name, option in options(command):
            if name in ("--format", "--input-format"):
                assert isinstance(option.type, click.Choice), verb
                assert set(option.type.choices) <= known, verb
                assert name == "--format" or "json" not in option.type.choices, verb


def test_every_report_is_there_for_scripts():
    """Every verb with a report has `--json`, or `--format` for rows."""
    silent = {verb.split()[-1] for verb, each in VERBS.items() if not {"--json", "--format"} & set(dict(options(each)))}
    assert silent <= NO_REPORT
