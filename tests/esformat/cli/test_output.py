"""Outputs of every verb: `-` is standard output, links are followed, special files are left alone."""

from __future__ import annotations

import errno
import io
import os
import stat

import pyarrow as pa
import pytest

import esformat
from esformat.cli.output import opened_output

OUTPUTS = [
    ["scan", "activity.esdb", "--format", "csv", "-o", "{}", "--force"],
    ["write", "{}", "rows.csv", "--force"],
    ["convert", "activity.esdb", "{}", "--format", "parquet", "--force"],
    ["convert", "activity.esdb", "{}", "--format", "esdb", "--force"],
    ["merge", "{}", "activity.esdb", "--force"],
    ["reindex", "activity.esdb", "{}", "--no-index", "--force"],
    ["recompress", "activity.esdb", "{}", "--force"],
    ["repair", "activity.esdb", "{}", "--force"],
    ["erase", "activity.esdb", "{}", "--space", "other", "--force"],
]


@pytest.fixture
def rows(tmp_path):
    (tmp_path / "rows.csv").write_text("space,timestamp\na,2024-03-01\n")


@pytest.mark.parametrize("arguments", OUTPUTS, ids=lambda arguments: " ".join(arguments[:4]))
def test_a_pipe_is_not_replaced(esdb, activity, rows, tmp_path, arguments):
    """`--force` does not replace a pipe or device, which others use by name: as root, it could remove /dev/null."""
    os.mkfifo(tmp_path / "pipe")
    result = esdb(*(argument.format("pipe") for argument in arguments))
    assert result.status == 2
    assert "pipe: is a pipe, not a regular file" in result.err
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)
    assert not [path for path in tmp_path.iterdir() if path.name.endswith(".partial")]


@pytest.mark.parametrize("arguments", OUTPUTS, ids=lambda arguments: " ".join(arguments[:4]))
def test_links_are_followed(esdb, activity, rows, tmp_path, arguments):
    """A symbolic link stays; the file behind it is replaced."""
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "real").write_text("old")
    (tmp_path / "link").symlink_to("elsewhere/real")
    assert esdb(*(argument.format("link") for argument in arguments)).status == 0
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "elsewhere" / "real").read_bytes() != b"old"


@pytest.mark.parametrize("arguments", OUTPUTS[1:], ids=lambda arguments: " ".join(arguments[:4]))
def test_a_dash_is_standard_output(esdb, activity, rows, tmp_path, arguments):
    """`-` writes only the result to standard output, and creates no file of that name."""
    result = esdb(*(argument.format("-") for argument in arguments))
    assert result.status == 0, result.err
    assert not (tmp_path / "-").exists()
    assert "event" in result.err
    if "parquet" in arguments:
        assert pa.parquet.read_table(io.BytesIO(result.out)).num_rows == 29
        return
    (tmp_path / "made.esdb").write_bytes(result.out)
    with esformat.open(tmp_path / "made.esdb") as segment:
        assert segment.num_events == {"write": 1, "erase": 28}.get(arguments[0], 29)


def test_convert_streams_rows_to_standard_output(esdb, activity):
    """`convert` streams rows to standard output; its report goes to standard error."""
    result = esdb("convert", "activity.esdb", "-", "--format", "jsonl", "--allow-loss")
    assert len(result.rows) == 29
    assert result.err.startswith("<stdout>: 29 events in ")


def test_convert_reads_standard_input(esdb, activity, tmp_path):
    """Standard input is converted like a file."""
    written = esdb("convert", "activity.esdb", "-", "--format", "parquet").out
    assert esdb("convert", "-", "again.esdb", "--input-format", "parquet", stdin=written).status == 0
    refused = esdb("convert", "-", "-", "--input-format", "jsonl", "--format", "parquet", stdin=b"{}")
    assert refused.err.startswith("esdb: <stdin>: does not define its columns;")
    assert esdb("diff", "activity.esdb", "again.esdb").status == 0


def test_a_link_in_a_circle(esdb, activity, tmp_path):
    """An output that is a circular link is refused."""
    (tmp_path / "circle").symlink_to("circle")
    result = esdb("scan", "activity.esdb", "--format", "csv", "-o", "circle", "--force")
    assert (result.status, "circle: too many levels of symbolic links" in result.err) == (1, True)
    assert (tmp_path / "circle").is_symlink()


def test_bad_rows_need_a_file(esdb, rows):
    """Bad rows cannot go to standard output: they are rewritten when the types change."""
    result = esdb("write", "x.esdb", "rows.csv", "--on-error", "collect", "-")
    assert (result.status, "in a file, not on standard output" in result.err) == (2, True)


def test_full_disk_names_the_file(tmp_path):
    """A full disk is an error with the path of the file; nothing remains of it."""
    out = tmp_path / "x.jsonl"
    with pytest.raises(OSError, match="it was not created") as caught, opened_output(str(out), force=False):
        raise OSError(errno.ENOSPC, "No space left on device")
    assert caught.value.filename == str(out)
    assert list(tmp_path.iterdir()) == []
