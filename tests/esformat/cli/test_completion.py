"""Tab completion: the answers of the commands to shells, and completion in real shells."""

from __future__ import annotations

import os
import pty
import re
import select
import shutil
import signal
import stat
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click
import pytest
from click.shell_completion import CompletionItem
from effort import long
from waiting import PATIENCE_S, until

import aggregator.cli
import esformat.cli
from tests.esformat.cli.conftest import environment

FILES = ("FILE", "DIR", "INPUT", "PATH", "GLOB", "FROM", "CATALOG", "OUT", "DIRECTORY")
SHELLS = {"bash": [".bashrc", "-i"], "zsh": [".zshrc", "-i"], "fish": [".config/fish/config.fish", "-i"]}


def commands(group: click.Group) -> Iterator[tuple[str, click.Command]]:
    """All verbs, including those of nested groups."""
    for name in group.list_commands(click.Context(group)):
        command = group.get_command(click.Context(group), name)
        assert command is not None
        yield f"{group.name} {name}", command
        if isinstance(command, click.Group):
            yield from commands(command)


@pytest.mark.parametrize("main", [esformat.cli.main, aggregator.cli.main], ids=["esdb", "aggregator"])
def test_every_file_is_completed(main):
    """A parameter that takes a file or a directory asks the shell for file names."""
    lacking = []
    for name, command in commands(main):
        for parameter in command.params:
            shown = parameter.make_metavar(click.Context(command)).strip("[].").upper()
            if not shown.replace("|", " ").replace("...", " ").split()[0].startswith(FILES):
                continue
            items = parameter.type.shell_complete(click.Context(command), parameter, "x")
            if not [item for item in items if item.type in ("file", "dir")]:
                lacking.append(f"{name}: {shown}")
    assert not lacking


@pytest.mark.parametrize("main", [esformat.cli.main, aggregator.cli.main], ids=["esdb", "aggregator"])
def test_no_group_cuts_the_lines_of_its_verbs(main):
    """The help of every group shows the descriptions of its verbs in full."""
    for name, command in [(main.name, main), *commands(main)]:
        if isinstance(command, click.Group):
            shown = command.get_help(click.Context(command, info_name=name)).splitlines()
            assert not [line for line in shown if line.endswith("...") and not line.startswith("Usage")]


def test_what_to_do_with_bad_rows_is_completed():
    """`--on-error` completes to those of its three words that begin as typed."""
    write = esformat.cli.main.get_command(click.Context(esformat.cli.main), "write")
    (option,) = [parameter for parameter in write.params if "--on-error" in parameter.opts]
    for typed, words in {"": ["stop", "skip", "collect"], "s": ["stop", "skip"], "c": ["collect"], "x": []}.items():
        items: list[CompletionItem] = option.type.shell_complete(click.Context(write), option, typed)
        assert [item.value for item in items] == words


@contextmanager
def terminal(home: Path, command: list[str]) -> Iterator[tuple[int, list[str]]]:
    """A shell in a terminal: where to write keys, and its output so far, which `until` extends."""
    pid, keys = pty.fork()
    if not pid:
        os.chdir(home)
        others = {"HOME": str(home), "TERM": "xterm", "PATH": f"{home / 'bin'}:{os.environ['PATH']}", "COLUMNS": "90"}
        others |= {"XDG_CONFIG_HOME": str(home / ".config"), "XDG_DATA_HOME": str(home / ".local")}
        os.execvpe(command[0], command, environment() | others)
    termios.tcsetwinsize(keys, (24, 90))
    try:
        yield keys, [""]
    finally:
        os.kill(pid, signal.SIGKILL)
        os.close(keys)
        os.waitpid(pid, 0)


def shows(keys: int, shown: list[str], text: str) -> bool:
    """Whether the terminal has shown a text so far."""
    while select.select([keys], [], [], 0)[0]:
        shown[0] += os.read(keys, 1 << 16).decode(errors="replace")
    return text in re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown[0])  # colours and cursor positions


def completes(keys: int, shown: list[str], typed: str, completed: str) -> None:
    """Type until the terminal shows the completed text: keys that arrive before the prompt may be lost."""
    again = time.monotonic()

    def now_and_then() -> bool:
        nonlocal again
        if time.monotonic() >= again:
            os.write(keys, f"\x15{typed}\t".encode())
            again += PATIENCE_S / 20
        return shows(keys, shown, completed)

    until(now_and_then)


@pytest.mark.parametrize("shell", ["bash", pytest.param("zsh", marks=long), pytest.param("fish", marks=long)])
@pytest.mark.parametrize("module", ["esformat", pytest.param("aggregator", marks=long)])
def test_completion_in_a_real_shell(tmp_path, shell, module):
    """The documented line, alone in a shell's configuration, completes verbs, options, values and files."""
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    program = {"esformat": "esdb", "aggregator": "aggregator"}[module]
    script = tmp_path / "bin" / program
    script.parent.mkdir()
    script.write_text(f'#!/bin/sh\nexec {sys.executable} -m {module} "$@"\n')
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    configuration, *options = SHELLS[shell]
    (tmp_path / configuration).parent.mkdir(parents=True, exist_ok=True)
    documented = subprocess.run([script, "completion", shell], env=environment(), check=True, capture_output=True)
    (tmp_path / configuration).write_bytes(documented.stdout)
    (tmp_path / "clicks-of-may.csv").write_text("a\n")
    files = "write out.esdb" if program == "esdb" else "import data t"
    asked = {
        "verif": "verify",
        "scan x --format arr": "arrow",
        f"{files} clicks-": "clicks-of-may.csv",
    }
    with terminal(tmp_path, [shell, *options]) as (keys, shown):
        for typed, completed in asked.items():
            completes(keys, shown, f"{program} {typed}", completed)
