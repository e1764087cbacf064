"""Every verb that takes files takes several files, directories, patterns and object store locations."""

from __future__ import annotations

import gzip
import json
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet
import pytest
from effort import long, share_of

import esformat

T0 = 1_772_323_200_000_000
ROLES = ("--space", "who", "--timestamp", "at")


@dataclass(frozen=True)
class Place:
    """A directory on disk or a prefix of a bucket."""

    root: str
    put: object

    def __truediv__(self, name: str) -> str:
        return f"{self.root}/{name}"


@pytest.fixture(params=[pytest.param("disk", marks=long), "store"])
def place(request, tmp_path) -> Place:
    """An empty location for files; the command runs in `tmp_path`."""
    if request.param == "disk":
        root = tmp_path / "there"

        def put(name: str, data: bytes) -> None:
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_bytes(data)

        root.mkdir()
        return Place(str(root), put)
    s3, bucket = request.getfixturevalue("s3"), request.getfixturevalue("bucket")
    return Place(
        f"s3://{bucket}/deep",
        lambda name, data: s3.client.put_object(Bucket=bucket, Key=f"deep/{name}", Body=data),
    )


@pytest.fixture
def parts(place, tmp_path) -> Place:
    """Two segments, `ada` in both and `bob` in one, beside a file that is not a segment."""
    for number, spaces in enumerate((["ada", "bob"], ["ada"])):
        path = tmp_path / "made.esdb"
        with esformat.create(path, indexes=["type"], overwrite=True) as writer:
            for space in spaces:
                writer.add(space, b"{}", timestamp=T0 + number, indexes={"type": "page" if number else "buy"})
        place.put(f"year/{number}.esdb", path.read_bytes())
    place.put("year/README.txt", b"not a segment")
    return place


def named(parts: Place, how: str) -> list[str]:
    return {
        "files": [parts / "year/0.esdb", parts / "year/1.esdb"],
        "directory": [parts / "year"],
        "pattern": [parts / "year/*.esdb"],
        "each once": [parts / "year/", parts / "year/0.esdb"],
    }[how]


@pytest.mark.parametrize("how", share_of(["files", "directory", "pattern", "each once"], 4))
def test_reading_verbs(esdb, parts, how):
    """Every verb that reads takes several files and reads them as one."""
    files = named(parts, how)
    assert esdb("scan", *files, "--count").text == "3\n"
    rows = esdb("scan", *files, "--format", "jsonl", "--space", "ada").rows
    assert [row["type"] for row in rows] == ["buy", "page"]  # oldest first, over all files
    assert esdb("scan", *files, "--index", "type=buy", "--where", "space = ada", "--count").text == "1\n"
    assert esdb("spaces", *files, "--format", "csv").lines[1:] == ['"ada",2', '"bob",1']
    assert esdb("spaces", *files, "--groupings", "--format", "csv").lines[1:] == ['"ada","",2', '"bob","",1']
    assert esdb("values", *files, "type", "--format", "csv").lines[1:] == ['"buy",2', '"page",1']
    verified = esdb("verify", *files)
    assert verified.status == 0
    assert [": ok, " in line for line in verified.lines] == [True, True]
    facts = json.loads(esdb("info", *files, "--json").text)
    assert [each["events"] for each in facts] == [2, 1]
    table = esdb("info", *files)
    assert table.status == 0
    assert "2 files" in table.text
    merged = esdb("merge", "merged.esdb", *files)
    assert merged.lines[0] == "merged.esdb: 3 events of 2 spaces"


def test_what_is_not_there(esdb, parts):
    """A pattern or directory without a segment is refused by name, before any other work."""
    for verb in ("scan", "spaces", "info", "verify"):
        result = esdb(verb, parts / "none/*.esdb")
        assert (result.status, result.out) == (2, b"")
        assert "none/*.esdb: no .esdb file" in result.err
        result = esdb(verb, "-")
        assert (result.status, result.out) == (2, b"")
        assert "a .esdb file cannot be read from standard input" in result.err
        assert "save it to a file first" in result.err


def test_answers_go_to_places(esdb, parts, place):
    """Every output file may be written to any location that inputs are read from."""
    for name in ("a.jsonl", "a.csv", "a.parquet", "a.arrow", "a.json", "a.esdb"):
        assert esdb("scan", parts / "year", "-o", place / name).status == 0
    assert esdb("scan", place / "a.esdb", "--count").text == "3\n"
    assert esdb("spaces", parts / "year", "-o", place / "spaces.csv").status == 0
    assert esdb("values", parts / "year", "type", "-o", place / "values.csv").status == 0
    assert esdb("merge", place / "merged.esdb", parts / "year").status == 0
    assert esdb("diff", place / "merged.esdb", place / "a.esdb").status == 0
    assert esdb("reindex", place / "a.esdb", place / "plain.esdb", "--no-index").status == 0
    assert esdb("recompress", place / "a.esdb", place / "fast.esdb", "--codec", "lz4").status == 0
    assert esdb("erase", place / "a.esdb", place / "less.esdb", "--space", "ada").status == 0
    assert esdb("repair", place / "a.esdb", place / "saved.esdb").status == 0
    assert esdb("split", place / "a.esdb", place / "split", "--space", "bob").status == 0
    assert esdb("scan", place / "split", "--count").text == "3\n"


def foreign(name: str, who: str, tmp_path: Path) -> bytes:
    """One event, in the format of the file name."""
    table = pa.table({"who": [who], "at": pa.array([T0], pa.timestamp("us", "UTC")), "type": ["page"]})
    path = tmp_path / "foreign"
    if name.endswith(".parquet"):
        pyarrow.parquet.write_table(table, path)
    elif name.endswith(".arrow"):
        pyarrow.feather.write_feather(table, path)
    elif name.endswith((".csv", ".csv.gz", ".log")):
        pyarrow.csv.write_csv(table, path)
    else:
        path.write_text(json.dumps({"who": who, "at": T0, "type": "page"}) + "\n")
    data = path.read_bytes()
    return gzip.compress(data) if name.endswith(".gz") else data


FOREIGN = ["a.csv", "b.jsonl", "c.parquet", "d.arrow", "e.csv.gz", "deep/f.ndjson"]


@pytest.fixture
def inputs(place, tmp_path) -> Place:
    """One event in each format, all in one directory."""
    for name in FOREIGN:
        place.put(f"in/{name}", foreign(name, name, tmp_path))
    place.put("in/_SUCCESS", b"")
    place.put("in/notes.txt", b"not an input")
    return place


def test_inputs_of_write(esdb, inputs):
    """A directory stands for its files with known formats, a pattern for its matches; each file is read once."""
    written = esdb("write", inputs / "out.esdb", inputs / "in", *ROLES, "--force")
    assert (written.status, written.err.split(":")[0]) == (0, "skipped notes.txt")
    found = [row["space"] for row in esdb("scan", inputs / "out.esdb", "--format", "jsonl").rows]
    assert found == sorted(Path(name).name if "/" not in name else name for name in FOREIGN)
    assert esdb("write", "two.esdb", inputs / "in/*.csv*", inputs / "in/a.csv", *ROLES).status == 0
    assert esdb("scan", "two.esdb", "--count").text == "2\n"


def test_a_format_for_all(esdb, inputs, tmp_path):
    """With `--input-format` a directory stands for all its files."""
    inputs.put("logs/one.log", foreign("a.csv", "ada", tmp_path))
    inputs.put("logs/two.log", foreign("a.csv", "bob", tmp_path))
    refused = esdb("write", "out.esdb", inputs / "logs/", *ROLES)
    assert refused.status == 2
    assert "logs/: no file that can be read as events" in refused.err
    assert esdb("write", "out.esdb", inputs / "logs", *ROLES, "--input-format", "csv").status == 0
    assert esdb("scan", "out.esdb", "--count").text == "2\n"


@pytest.mark.parametrize("name", share_of(FOREIGN, 4))
def test_inputs_of_convert(esdb, inputs, name):
    """`convert` reads a file of any format from any location."""
    converted = esdb("convert", inputs / f"in/{name}", inputs / "made.esdb", *ROLES)
    assert (converted.status, converted.err) == (0, "")
    assert esdb("convert", inputs / "made.esdb", inputs / "made.parquet").status == 0
    assert esdb("convert", inputs / "made.parquet", inputs / "again.esdb").status == 0
    assert esdb("diff", inputs / "made.esdb", inputs / "again.esdb").status == 0


def test_an_input_that_is_not_there(esdb, place):
    """A missing input is one line that names it."""
    result = esdb("write", "out.esdb", place / "none.csv", *ROLES)
    assert (result.status, "none.csv" in result.err) == (1, True)
    assert result.err.count("\n") == 1


def test_skipped_files_are_named(esdb, tmp_path):
    """Files of a directory whose names tell no format are named on stderr; hidden files and markers are not."""
    folder = tmp_path / "in"
    folder.mkdir()
    for name in ("a.csv", "b.txt", "c.txt", ".hidden", "_SUCCESS"):
        (folder / name).write_text("space,timestamp\nada,2026-01-01\n")
    made = esdb("write", "out.esdb", folder)
    assert (made.status, made.err.split(":")[0]) == (0, "skipped b.txt, c.txt")
    assert esdb("convert", folder, "out", "--format", "parquet").err.startswith("skipped b.txt, c.txt: ")
    everything = esdb("write", "all.esdb", folder, "--input-format", "csv")
    assert (everything.status, everything.err) == (0, "")


def test_skipped_segments_are_named(esdb, activity, tmp_path):
    """Segments of a directory are no inputs of `write`, which says so and what to do, also if nothing else is there."""
    folder = tmp_path / "in"
    folder.mkdir()
    (tmp_path / "activity.esdb").rename(folder / "activity.esdb")
    told = "skipped activity.esdb: a segment is not an input; take its events out with `esdb scan"
    refused = esdb("write", "out.esdb", folder)
    assert (refused.status, refused.err.startswith(told)) == (2, True)
    assert "no file that can be read as events" in refused.err
    (folder / "a.csv").write_text("space,timestamp\nada,2026-01-01\n")
    made = esdb("write", "out.esdb", folder)
    assert (made.status, made.err.startswith(told)) == (0, True)
