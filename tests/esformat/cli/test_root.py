"""How commands end: statuses, one-line errors, quiet exits, and only data on stdout."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest
from effort import share_of
from waiting import until

import esformat
from esformat.cli import main
from tests.esformat.cli.conftest import environment

COMMANDS = ["write", "info", "spaces", "scan", "verify"]


def test_version(esdb):
    """`--version` prints the version of the package."""
    assert esdb("--version").text == f"esdb {esformat.__version__}\n"


@pytest.mark.parametrize(
    ("line", "advice"),
    [
        ("scan x.esdb --space a --space b", "scan: --space was given twice; it takes one value"),
        ("scan x.esdb --format csv --format json", "--format was given twice"),
        ("scan x.esdb --wide --format csv", "give only one of --wide and --format"),
        ("scan x.esdb -o x.csv --output y.csv", "--output was given twice"),
        ("write k.esdb x.csv --columns a --columns b", "--columns was given twice; separate names with commas"),
        ("write k.esdb x.csv --on-error skip --on-error collect b.jsonl", "--on-error was given twice"),
        ("write k.esdb x.csv --type a=int64 --type a=string", "--type has two values for 'a'; give one"),
        ("spark verify lake --conf a=b --conf a=c", "--conf has two values for 'a'; give one"),
    ],
)
def test_a_repeated_option_is_refused(esdb, line, advice):
    """A second value for an option that takes one is refused: click would silently drop the first."""
    result = esdb(*line.split())
    assert (result.status, advice in result.err) == (2, True), result.err


def test_flags_may_be_repeated(esdb, tmp_path):
    """A repeated flag, or the same short form of a format, drops nothing."""
    assert "no such file" in esdb("scan", "x.esdb", "--count", "--count", "--wide", "--wide").err


def test_help_lists_the_commands(esdb):
    """The main help names every command and describes it in one line."""
    result = esdb("--help")
    assert result.status == 0
    for name in COMMANDS:
        assert any(line.split()[:1] == [name] and len(line.split()) > 3 for line in result.lines)


def test_help_cuts_no_line(esdb):
    """The main help shows each command's description in full."""
    assert not [line for line in esdb("--help").lines if line.endswith("...") and not line.startswith("Usage")]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion(esdb, shell):
    """`completion` prints a shell's script and refuses an unknown shell."""
    assert f"_ESDB_COMPLETE={shell}_complete" in esdb("completion", shell).text
    assert "'tcsh' is not one of 'bash', 'zsh', 'fish'" in esdb("completion", "tcsh").err


def test_progress_of_a_long_answer(esdb, activity, monkeypatch):
    """A terminal shows the number of rows written to a file."""
    seen = []

    @contextmanager
    def shown(title, *, things):
        yield lambda done, total: seen.append((title, done, total))

    monkeypatch.setattr("esformat.cli.question.progress", shown)
    assert esdb("scan", "activity.esdb", "--format", "csv", "-o", "x.csv").status == 0
    assert seen[-1] == ("writing", 29, 0)


@pytest.mark.parametrize("name", COMMANDS)
def test_help(esdb, name):
    """The help of each command ends in examples; `-h` prints it, too."""
    result = esdb(name, "--help")
    assert result.status == 0
    assert "Examples:" in result.text
    assert esdb(name, "-h") == result
    assert set(COMMANDS) <= set(main.commands)


def test_no_arguments(esdb):
    """Without arguments the command shows its help and returns status 2."""
    result = esdb()
    assert (result.status, result.out) == (2, b"")
    assert "Usage: esdb" in result.err


WRONG_USAGE = [
    (["nope"], "esdb: No such command 'nope' (see 'esdb --help')"),
    (["scan"], "esdb scan: Missing argument 'FILE...' (see 'esdb scan --help')"),
    (["scan", "--format"], "esdb scan: Option '--format' requires an argument (see 'esdb scan --help')"),
    (["scan", "activity.esdb", "--nope"], "esdb scan: No such option '--nope'"),
    (
        ["scan", "activity.esdb", "--limit", "-1"],
        "esdb scan: Invalid value for '--limit': '-1' is not a number of lines",
    ),
    (
        ["scan", "activity.esdb", "--start", "soon"],
        "invalid time 'soon': expected ISO 8601 with year, month and day, such as 2006-04-07T17:08, or a number",
    ),
    (
        ["scan", "activity.esdb", "--start", "2024"],
        "2024 may be a year, or a number of s since 1970: write it as 2024-01-01",
    ),
    (["scan", "activity.esdb", "--start", "2024-03-01T00:00:00.0000001"], "is finer than a microsecond"),
    (["scan", "activity.esdb", "--index", "type"], "'type' is not of the form NAME=VALUE"),
    (["scan", "activity.esdb", "--index", "nope=1"], "esdb: activity.esdb"),
    (["scan", "activity.esdb", "--index", "type=a", "--index", "type=b"], "--index gives two values for one index"),
    (["scan", "activity.esdb", "--columns", "nope"], "nope"),
    (["scan", "activity.esdb", "--space", "a", "--space-hex", "00"], "give only one of --space and --space-hex"),
    (["scan", "activity.esdb", "--space-hex", "0x"], "'0x' is not hexadecimal bytes, such as 00ff"),
    (
        ["scan", "activity.esdb", "--format", "xml"],
        "'xml' is not one of 'table', 'wide', 'vertical', 'jsonl', 'json', 'csv', 'arrow', 'parquet', 'esdb'",
    ),
    (["scan", "activity.esdb", "--format", "table", "-o", "x"], "--format table goes to standard output only"),
    (["spaces", "activity.esdb", "--prefix", "a", "--prefix-hex", "00"], "give only one of --prefix and --prefix-hex"),
    (["spaces", "activity.esdb", "--sort", "size"], "'size' is not one of 'key', 'count'"),
    (["info", "activity.esdb", "--format", "csv"], "No such option '--format'"),
    (["verify"], "Missing argument 'FILE...'"),
]


@pytest.mark.parametrize(("arguments", "message"), WRONG_USAGE, ids=range(len(WRONG_USAGE)))
def test_wrong_usage(esdb, activity, arguments, message):
    """Wrong usage is one line on stderr and status 2."""
    result = esdb(*arguments)
    assert (result.status, result.out) == (2, b"")
    assert message in result.err
    assert result.err.count("\n") == 1


@pytest.mark.parametrize("name", ["info", "spaces", "scan", "verify"])
@pytest.mark.parametrize(
    ("file", "message"),
    [
        ("nowhere.esdb", "esdb: nowhere.esdb: no such file or directory"),
        ("text.esdb", "text.esdb"),
    ],
)
def test_unreadable_files(esdb, tmp_path, name, file, message):
    """A file that is not a segment is one line on stderr that names it, and status 1."""
    (tmp_path / "text.esdb").write_text("this is no segment, whatever its name says\n" * 50)
    result = esdb(name, file)
    assert (result.status, result.out) == (1, b"")
    assert all(message in line for line in result.err.splitlines())
    assert result.err.count("\n") == (3 if (name, file) == ("verify", "text.esdb") else 1)  # a line for each problem
    assert "Traceback" not in result.err


@pytest.mark.parametrize("name", ["info", "spaces", "scan", "verify"])
def test_every_truncation(esdb, activity, tmp_path, name):
    """A file cut short at any byte is a clear error that names it, and status 1."""
    data = activity.read_bytes()
    cut = tmp_path / "cut.esdb"
    for length in range(0, len(data), 97):
        cut.write_bytes(data[:length])
        result = esdb(name, cut)
        assert (result.status, result.out) == (1, b"")
        assert "cut.esdb" in result.err
        assert "Traceback" not in result.err


@pytest.mark.parametrize("name", share_of(["info", "spaces", "scan"], 3))
def test_full_disk(activity, name):
    """A failed write to standard output is an error that names it."""
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "esformat", name, activity], env=environment(), stdout=full, stderr=subprocess.PIPE
        )
    assert done.returncode == 1
    assert done.stderr == b"esdb: standard output: no space left on device; the output written before remains\n"


@pytest.mark.parametrize(
    ("arguments", "status"),
    share_of([(["scan"], 2), (["spaces"], 2), (["info"], 0), (["scan", "--count"], 2), (["verify"], 0)], 5),
)
def test_closed_streams(activity, arguments, status):
    """Closed standard streams cause no traceback and do not change the status."""
    command = shlex.join([sys.executable, "-m", "esformat", *arguments, str(activity)])
    done = subprocess.run(["bash", "-c", f"{command} <&- >&-"], env=environment(), capture_output=True, check=False)
    assert (done.returncode, b"Traceback" in done.stderr) == (status, False)
    done = subprocess.run(["bash", "-c", f"{command} <&- >&- 2>&-"], env=environment(), check=False)
    assert done.returncode == status


LONG_OUTPUT = [["scan", "--format", format_] for format_ in ("jsonl", "csv", "arrow", "parquet", "table")]


@pytest.mark.parametrize("arguments", share_of([*LONG_OUTPUT, ["spaces"], ["info"], ["--help"]], 6))
def test_broken_pipe(activity, arguments):
    """A command whose reader closes the pipe ends quietly."""
    file = [] if arguments == ["--help"] else [str(activity)]
    process = subprocess.Popen(
        [sys.executable, "-m", "esformat", *arguments, *file],
        env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    process.stdout.close()
    assert (process.stderr.read(), process.wait(timeout=60)) == (b"", 0)
    process.stderr.close()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
@pytest.mark.usefixtures("hangups")
def test_termination_leaves_nothing(tmp_path, number):
    """A terminated command, or one whose terminal was closed, removes its unfinished output."""
    pipe = tmp_path / "pipe.csv"
    os.mkfifo(pipe)
    process = subprocess.Popen(
        [sys.executable, "-m", "esformat", "write", "out.esdb", pipe, "--space", "u", "--timestamp", "t"],
        cwd=tmp_path, env=environment(), stderr=subprocess.PIPE,
    )  # fmt: skip
    with pipe.open("wb") as writer:
        writer.write(b"u,t\n" + b"a,2006-04-07\n" * 1_000_000)
        writer.flush()
        until(lambda: list(tmp_path.glob(".out.esdb*")))
        assert list(tmp_path.glob(".out.esdb*"))
        process.send_signal(number)
        assert process.wait(timeout=60) == 128 + number
    assert process.stderr.read() == b""
    process.stderr.close()
    assert list(tmp_path.iterdir()) == [pipe]


def test_interrupt(tmp_path):
    """An interrupted command does the same, and says so."""
    process = subprocess.Popen(
        [sys.executable, "-m", "esformat", "write", "out.esdb", "-", "--input-format", "csv"],
        cwd=tmp_path, env=environment(), stdin=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    process.stdin.write(b"space,timestamp\n" + b"a,2006-04-07\n" * 1_000_000)
    process.stdin.flush()
    until(lambda: list(tmp_path.glob(".out.esdb*")))
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=60) == 130
    assert process.stderr.read() == b"esdb: interrupted\n"
    process.stdin.close()
    process.stderr.close()
    assert list(tmp_path.iterdir()) == []


def test_without_the_extra(tmp_path):
    """Without click or rich, the command says in one line how to install them."""
    for name in ("click", "rich"):
        (tmp_path / f"{name}.py").write_text(f"raise ModuleNotFoundError('no {name}', name={name!r})")
        blocked = {**environment(), "PYTHONPATH": f"{tmp_path}{os.pathsep}{environment()['PYTHONPATH']}"}
        done = subprocess.run(
            [sys.executable, "-m", "esformat", "--help"], env=blocked, capture_output=True, text=True, check=False
        )
        if name == "click":
            assert (done.returncode, done.stdout) == (2, "")
            assert done.stderr == 'esdb: the command line needs the package click: pip install "esformat[cli]"\n'
        (tmp_path / f"{name}.py").unlink()


@pytest.mark.parametrize("name", ["info", "scan", "spaces"])
def test_a_file_of_another_format(esdb, tmp_path, name):
    """For a CSV file the error suggests conversion to a segment, not a restore."""
    (tmp_path / "mine.csv").write_text("who,at\nada,2026-03-01\n" * 50)
    result = esdb(name, "mine.csv")
    assert (result.status, result.out) == (1, b"")
    assert "neither begins nor ends like an .esdb file" in result.err
    assert "create one from CSV" in result.err


@pytest.mark.parametrize("arguments", [
    ("merge", "{away}/x.esdb", "{file}"), ("scan", "{file}", "-o", "{away}/x.csv"),
    ("convert", "{file}", "{away}/x.parquet"), ("recompress", "{file}", "{away}/x.esdb"),
])  # fmt: skip
def test_a_directory_that_is_not_there(esdb, activity, tmp_path, arguments):
    """The error for a missing directory names the directory, not a temporary file in it."""
    away = tmp_path / "away"
    done = esdb(*(each.format(away=away, file=activity) for each in arguments))
    assert (done.status, done.err) == (1, f"esdb: {away}: no such directory\n")


def test_names_over_two_lines(esdb, activity):
    """A line break in a list of names is wrong usage; within quotes it belongs to a name."""
    done = esdb("scan", activity, "--columns", "space,e\nf")
    assert (done.status, "line break" in done.err) == (2, True)
    done = esdb("scan", activity, "--columns", '"e\nf"')
    assert (done.status, "no column 'e\\nf'; the columns are space" in done.err) == (2, True)


def test_standard_input_that_tells_no_format(esdb, activity, tmp_path):
    """A segment on standard input is recognised; other formats on standard input must be named."""
    assert esdb("convert", "-", tmp_path / "a.parquet", stdin=activity.read_bytes()).status == 0
    done = esdb("convert", "-", tmp_path / "b.esdb", stdin=b'{"space": "a", "timestamp": 1}\n')
    assert (done.status, "cannot tell the format of standard input" in done.err) == (2, True)
