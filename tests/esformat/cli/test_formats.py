"""Every verb that writes rows has the same formats: by file name, by option, and whole segments."""

from __future__ import annotations

import json

import pyarrow.parquet
import pytest

import esformat


def test_json_is_one_array(esdb, activity):
    """`json` is one array of the objects that `jsonl` prints one per line; without rows it is empty."""
    rows = esdb("scan", "activity.esdb", "--format", "jsonl").rows
    assert json.loads(esdb("scan", "activity.esdb", "--format", "json").text) == rows
    assert json.loads(esdb("scan", "activity.esdb", "--limit", "0", "--format", "json").text) == []
    assert len(json.loads(esdb("spaces", "activity.esdb", "--format", "json").text)) == 4


def test_the_name_tells_the_format(esdb, activity, tmp_path):
    """The file name selects the format, as for `convert` and `export`: `-o x.parquet` writes Parquet."""
    assert esdb("scan", "activity.esdb", "-o", "a.parquet").status == 0
    assert pyarrow.parquet.read_table(tmp_path / "a.parquet").num_rows == 29
    assert esdb("spaces", "activity.esdb", "-o", "a.csv").status == 0
    assert (tmp_path / "a.csv").read_text().startswith('"space","events"')
    assert esdb("scan", "activity.esdb", "-o", "a.txt").status == 0
    assert len((tmp_path / "a.txt").read_text().splitlines()) == 29
    assert esdb("scan", "activity.esdb", "-o", "lines").status == 0
    assert (tmp_path / "lines").read_bytes() == (tmp_path / "a.txt").read_bytes()


@pytest.mark.parametrize("name", ["a.xlsx", "a.tsv"])
def test_a_name_that_tells_no_format(esdb, activity, tmp_path, name):
    """A name without a known format is refused before anything is read, unless `--format` is given."""
    for verb in (["scan", "activity.esdb"], ["spaces", "activity.esdb"], ["sql", "FROM 'activity.esdb'"]):
        refused = esdb(*verb, "-o", name)
        assert (refused.status, (tmp_path / name).exists()) == (2, False)
        assert f"cannot tell a format from the name '{name}': give --format jsonl|json|csv|" in refused.err
    assert esdb("scan", "activity.esdb", "-o", name, "--format", "csv").status == 0


def test_a_json_file_contains_an_array(esdb, activity, tmp_path):
    """A name that ends in .json means an array, like --format json, also for counts and statements."""
    for verb in (["scan", "activity.esdb"], ["spaces", "activity.esdb"], ["sql", "FROM 'activity.esdb'"]):
        assert esdb(*verb, "-o", "a.json", "--force").status == 0
        assert json.loads((tmp_path / "a.json").read_text()) == esdb(*verb, "--format", "jsonl").rows


def test_no_conversion_to_json_lines_by_the_name_of_an_array(esdb, activity, tmp_path):
    """`convert`, whose files can be read back, refuses a name that ends in .json; --format writes what it says."""
    refused = esdb("convert", "activity.esdb", "a.json")
    assert (refused.status, (tmp_path / "a.json").exists()) == (2, False)
    assert "a.json: a name that ends in .json means a JSON array, which is not read back; name it .jsonl" in refused.err
    assert esdb("convert", "activity.esdb", "a.json", "--format", "jsonl").status == 0
    assert esdb("convert", "a.json", "again.esdb", "--schema", "activity.esdb").status == 0
    assert (tmp_path / "again.esdb").read_bytes() == (tmp_path / "activity.esdb").read_bytes()


def test_no_output_is_compressed(esdb, activity, tmp_path):
    """A name such as x.csv.gz is refused, with or without a format: what is written would not be compressed."""
    for verb in (
        ["scan", "activity.esdb", "-o"],
        ["scan", "activity.esdb", "--format", "csv", "-o"],
        ["convert", "activity.esdb"],
        ["convert", "activity.esdb", "--format", "csv"],
    ):
        refused = esdb(*verb, "a.csv.gz")
        assert (refused.status, (tmp_path / "a.csv.gz").exists()) == (2, False)
        assert "output is not compressed; choose a name without .gz" in refused.err


def test_scan_writes_a_segment(esdb, activity, tmp_path):
    """`scan` writes its events as a segment with the indexes and the kind of keys of the source."""
    assert esdb("scan", "activity.esdb", "--index", "type=purchase", "--reverse", "-o", "bought.esdb").status == 0
    with esformat.open(tmp_path / "bought.esdb") as segment:
        assert segment.num_events == 7
        assert set(segment.indexes) == {"type", "country"}
    assert esdb("scan", "activity.esdb", "--format", "esdb", "-o", "same").status == 0
    assert esdb("diff", "activity.esdb", "same").status == 0
    assert esdb("scan", "activity.esdb", "--columns", "space,timestamp,type", "-o", "few.esdb").status == 0
    with esformat.open(tmp_path / "few.esdb") as segment:
        assert (segment.num_events, segment.indexes) == (29, ("type",))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["scan", "activity.esdb", "--columns", "type", "-o", "a.esdb"], "events need space and timestamp"),
        (["scan", "activity.esdb", "--columns", ""], "expected at least one name; --count prints the number of events"),
        (["spaces", "activity.esdb", "-o", "a.esdb"], "cannot write counts to an event file"),
        (["convert", "activity.esdb", "a.csv", "--to", "csv"], "No such option"),
    ],
)
def test_refusals(esdb, activity, tmp_path, arguments, message):
    """A refused request prints one line and writes no file."""
    result = esdb(*arguments)
    assert (result.status, message in result.err) == (2, True), result.err
    assert not list(tmp_path.glob("a.*"))
