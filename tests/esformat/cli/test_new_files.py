"""Verbs that rewrite files accept several: the results go to a directory, and one failure does not stop the others."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.fs
import pytest
from effort import share_of

import esformat
from esformat.io.location import name_below
from esformat.io.store import ArrowStore, StoredAt

T0 = 1_772_323_200_000_000


def write(path: Path, *spaces: str) -> bytes:
    path.parent.mkdir(parents=True, exist_ok=True)
    with esformat.create(path, indexes=["type"], overwrite=True) as writer:
        for number, space in enumerate(spaces):
            writer.add(space, b"{}", timestamp=T0 + number, indexes={"type": "page"})
    return path.read_bytes()


@pytest.fixture(params=["disk", "store"])
def root(request, tmp_path) -> str:
    """`year` with `0.esdb` of ada and bob, `deep/1.esdb` of ada, and `cut.esdb`, whose end is missing."""
    files = {
        "year/0.esdb": write(tmp_path / "year/0.esdb", "ada", "bob"),
        "year/deep/1.esdb": write(tmp_path / "year/deep/1.esdb", "ada"),
        "year/cut.esdb": write(tmp_path / "year/cut.esdb", "eve")[:-40],
    }
    (tmp_path / "year/cut.esdb").write_bytes(files["year/cut.esdb"])
    if request.param == "disk":
        return str(tmp_path)
    s3, bucket = request.getfixturevalue("s3"), request.getfixturevalue("bucket")
    for name, data in files.items():
        s3.client.put_object(Bucket=bucket, Key=f"deep/{name}", Body=data)
    return f"s3://{bucket}/deep"


WORK = {
    "reindex": ["--no-index"],
    "recompress": ["--codec", "lz4"],
    "erase": ["--space", "ada"],
    "convert": ["--format", "parquet"],
    "split": ["--space", "bob"],
}
MADE = {"convert": ("0.parquet", "deep/1.parquet"), "split": ("0-0001.esdb", "deep/1-0000.esdb")}


@pytest.mark.parametrize("verb", share_of(WORK, 3))
def test_each_goes_into_the_directory(esdb, root, verb):
    """Each file gets a result in the output directory, under the same relative path."""
    result = esdb(verb, f"{root}/year", f"{root}/out", *WORK[verb])
    assert result.status == 1
    assert result.err.count("\n") == 1
    assert "year/cut.esdb" in result.err
    assert result.lines[-1] == f"{root}/out: 2 of 3 files without a problem"
    for name in MADE.get(verb, ("0.esdb", "deep/1.esdb")):
        assert esdb("convert", f"{root}/out/{name}", "-", "--format", "arrow").status == 0
    assert esdb("scan", f"{root}/year/0.esdb", "--count").text == "2\n"


def test_repair_each(esdb, root):
    """`repair` writes undamaged files, too, so that the new directory can replace the old one."""
    result = esdb("repair", f"{root}/year", f"{root}/saved")
    assert "cut.esdb: at byte" in result.err
    assert (result.status, result.lines[-1]) == (0, f"{root}/saved: 3 of 3 files without a problem")
    assert esdb("scan", f"{root}/saved", "--count").text == "4\n"


def test_report_for_scripts(esdb, root):
    """The JSON report has an entry for each file, including those that failed."""
    result = esdb("reindex", f"{root}/year/*.esdb", f"{root}/year/deep/1.esdb", f"{root}/out", "--no-index", "--json")
    assert (result.status, result.err) == (1, "")
    facts = json.loads(result.text)
    assert [(Path(each["source"]).name, each["ok"]) for each in facts] == [
        ("0.esdb", True), ("cut.esdb", False), ("1.esdb", True),
    ]  # fmt: skip
    assert facts[0]["path"] == f"{root}/out/0.esdb"
    assert "cut.esdb" in facts[1]["error"]


def test_erasing_leaves_the_others_whole(esdb, tmp_path):
    """`erase` copies a file that has none of the spaces, so that the new directory has all remaining events."""
    write(tmp_path / "in/a.esdb", "ada", "bob")
    write(tmp_path / "in/b.esdb", "cid")
    result = esdb("erase", "in", "out", "--space", "ada")
    assert (result.status, result.err) == (0, "")
    assert "out/b.esdb: copied, it has none of the spaces" in result.lines
    assert (tmp_path / "out/b.esdb").read_bytes() == (tmp_path / "in/b.esdb").read_bytes()
    assert esdb("spaces", "out", "--format", "csv").lines[1:] == ['"bob",1', '"cid",1']
    again = esdb("erase", "in", "out", "--space", "ada")
    assert again.status == 1
    assert again.err.count("the file exists") == 2
    assert esdb("erase", "in", "out", "--space", "ada", "--force").status == 0
    absent = esdb("erase", "in", "new", "--space", "nobody")
    assert (absent.status, (tmp_path / "new").exists()) == (1, False)
    assert absent.err == "esdb: no file has any of the spaces\n"


def test_a_single_file_into_a_directory(esdb, tmp_path):
    """A single file written to a directory keeps its name, as with other commands."""
    write(tmp_path / "a.esdb", "ada")
    (tmp_path / "out").mkdir()
    assert esdb("recompress", "a.esdb", "out").lines[0].startswith("out/a.esdb: 1 event")
    assert esdb("convert", "a.esdb", "out", "--format", "jsonl").lines[0].startswith("out/a.jsonl: 1 event")
    assert "choose the format with --format" in esdb("convert", "a.esdb", "out").err


def test_refused_before_anything_is_made(esdb, tmp_path):
    """Equal result names, an output equal to or within an input, and a non-directory for several files are refused."""
    write(tmp_path / "one/a.esdb", "ada")
    write(tmp_path / "two/a.esdb", "bob")
    (tmp_path / "a.csv").write_text("space,timestamp\na,2024-03-01\n")
    before = sorted(tmp_path.rglob("*"))
    for arguments, words in (
        (("reindex", "one/a.esdb", "two/a.esdb", "out", "--no-index"), "would both become"),
        (("convert", "a.csv", "one/a.esdb", "out", "--format", "parquet"), "would both become"),
        (("reindex", "one/a.esdb", "two", "one", "--no-index", "--force"), "is an input"),
        (("reindex", "one/*.esdb", "two/../one", "--no-index", "--force"), "is an input"),
        (("split", "one/*.esdb", "one", "--size", "1MB", "--force"), "is an input"),
        (("reindex", "one", "one/new", "--no-index"), "one/new is inside one"),
        (("reindex", "one", "two", "new.esdb", "--no-index"), "several files need an output directory"),
        (("reindex", "one/*", "two/*", "a.csv", "--no-index"), "several files need an output directory"),
        (("recompress", "one", "-"), "several files need an output directory"),
    ):
        result = esdb(*arguments)
        assert (result.status, result.out) == (2, b"")
        assert words in result.err
    assert sorted(tmp_path.rglob("*")) == before


def test_diff_of_parts(esdb, tmp_path):
    """A directory or pattern is one side of `diff`: the parts of a segment equal the whole."""
    write(tmp_path / "a.esdb", "ada", "bob", "cid")
    assert esdb("split", "a.esdb", "parts", "--space", "bob", "--space", "cid").status == 0
    assert esdb("diff", "a.esdb", "parts").text == "3 events in both, 0 only in a.esdb, 0 only in parts\n"
    (tmp_path / "parts/a-0001.esdb").unlink()
    assert esdb("diff", "parts/*.esdb", "a.esdb").lines[0] == "bob: 0 only in parts/*.esdb, 1 only in a.esdb"
    assert esdb("diff", "a.esdb", "none/*.esdb").status == 2


@pytest.mark.parametrize("name", ["../../up.esdb", "deep/../../../up.esdb"])
def test_names_of_objects_that_climb(name):
    """A key that contains `..` does not lead out of the output directory."""
    store = ArrowStore(pyarrow.fs.LocalFileSystem())
    assert name_below(StoredAt(store, "bucket/in"), StoredAt(store, f"bucket/in/{name}")) == "up.esdb"
