"""Numbers, sizes and times in words; progress bars appear only on terminals."""

from __future__ import annotations

import os
import pty
import subprocess
import sys

import pytest
from effort import long

from esformat.cli.console import count, length, moment, progress, size
from tests.esformat.cli.conftest import environment


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (0, "0 bytes"),
        (1, "1 byte"),
        (999, "999 bytes"),
        (1000, "1.0 kB"),
        (999_949, "999.9 kB"),
        (999_950, "1.0 MB"),
        (3_173_556, "3.2 MB"),
        (5_967_221_000, "6.0 GB"),
        (10**12, "1.0 TB"),
        (10**17, "100000.0 TB"),
    ],
)
def test_size(number, words):
    """Sizes have the unit that makes them short."""
    assert size(number) == words


@pytest.mark.parametrize(
    ("micros", "words"),
    [
        (86_400_000_000, "1 day"), (31_536_000_000_000, "365 days"), (129_600_000_000, "36 hours"),
        (3_600_000_000, "1 hour"), (60_000_000, "1 minute"), (90_000_000, "90 seconds"), (1_500_000, "1.5 seconds"),
    ],
)  # fmt: skip
def test_length(micros, words):
    """A length is a whole number of the largest unit that allows one: an hour is not 0.0416667 days."""
    assert length(micros) == words


def test_count():
    """Counts use the singular for one."""
    assert [count(number, "event") for number in (0, 1, 12345)] == ["0 events", "1 event", "12,345 events"]


@pytest.mark.parametrize(
    ("micros", "words"),
    [
        (None, "-"),
        (0, "1970-01-01T00:00:00Z"),
        (-1, "1969-12-31T23:59:59.999999Z"),
        (1_144_429_680_500_000, "2006-04-07T17:08:00.500000Z"),
        (2**62, f"{2**62} µs"),
    ],
)
def test_moment(micros, words):
    """Times are ISO 8601; a time outside the calendar is shown as a number."""
    assert moment(micros) == words


def test_no_progress_in_a_pipe():
    """A pipe gets no progress bar."""
    with progress("reading") as show:
        assert show is None


def on_terminal(command, cwd, *, status: int = 0, **options) -> tuple[bytes, bytes]:
    """Run a command with stderr and, by default, stdout on a terminal; return what each showed. It must exit with
    `status`.
    """
    master, terminal = pty.openpty()
    options = {"stdout": terminal, "env": {**environment(), "TERM": "xterm", "COLUMNS": "100"}, **options}
    process = subprocess.Popen(
        [sys.executable, "-m", "esformat", *map(str, command)], cwd=cwd, stderr=terminal, **options
    )
    os.close(terminal)
    shown = b""
    while True:
        try:
            shown += os.read(master, 65536)
        except OSError:  # the other side is closed
            break
    out = process.stdout.read() if process.stdout else b""
    assert process.wait(timeout=60) == status
    if process.stdout:
        process.stdout.close()
    os.close(master)
    return out, shown


def test_progress_on_a_terminal(tmp_path):
    """A progress bar goes only to the terminal; piped output stays clean."""
    (tmp_path / "in.csv").write_text("space,timestamp\na,2006-04-07\n")
    out, shown = on_terminal(["write", "out.esdb", "in.csv"], tmp_path, stdout=subprocess.PIPE)
    assert out.startswith(b"out.esdb: 1 event of 1 space")
    assert b"\x1b" not in out
    assert b"reading" in shown
    assert b"\x1b[" in shown


@long
def test_table_on_a_terminal(activity, tmp_path):
    """A terminal gets a table by default, cut to its width; a pipe gets JSON lines."""
    _, shown = on_terminal(["scan", activity, "--space", "customer-1"], tmp_path)
    assert b"timestamp" in shown
    assert b'{"space"' not in shown
    out, _ = on_terminal(["scan", activity, "--space", "customer-1"], tmp_path, stdout=subprocess.PIPE)
    assert out.startswith(b'{"space":"customer-1"')


def test_no_bytes_on_a_terminal(activity, tmp_path):
    """A binary format is refused on a terminal; no byte of it is written."""
    _, shown = on_terminal(["scan", activity, "--format", "parquet"], tmp_path, status=2)
    assert shown.startswith(b"esdb scan: --format parquet cannot be written to a terminal: ")
    assert b"PAR1" not in shown
