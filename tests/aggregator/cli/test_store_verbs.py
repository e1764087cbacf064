"""`aggregator store` shows where segments are, moves them, and exits with the right status."""

from __future__ import annotations

from pathlib import Path

import pytest

import aggregator
from tests.aggregator.cli.test_aggregator_examples import examples, parts

pytestmark = pytest.mark.usefixtures("unshipped")


@pytest.fixture
def stored(clicks, tmp_path):
    """A catalog with two segments and a directory as its store."""
    with aggregator.open(clicks, store=(tmp_path / "bucket").as_uri()) as catalog:
        catalog.seal()
    return clicks


def objects(tmp_path: Path) -> list[Path]:
    return sorted((tmp_path / "bucket").rglob("*.esdb"))


@pytest.mark.usefixtures("clicks")
def test_examples(command, s3):
    """Each line of the help runs, in order, and prints something."""
    s3.client.create_bucket(Bucket="bucket")
    lines = examples("store")
    assert len(lines) == 8
    for line in lines:
        arguments, stdin = parts(line)
        done = command(*arguments, stdin=stdin)
        assert (done.status, done.err) == (0, ""), line
        assert done.text


@pytest.mark.usefixtures("quiet")
def test_there_and_back(command, stored, tmp_path):
    status = command("store", "status", "data", "--json").json
    assert (status["waiting"]["segments"], status["evicted"]["segments"]) == (2, 0)
    assert "not there yet" in command("store", "status", "data").text
    assert command("store", "push", "data").text.startswith("2 segments uploaded, ")
    assert command("store", "push", "data", "--json").json == {"segments": 0, "bytes": 0}
    assert len(objects(tmp_path)) == 2
    assert command("store", "evict", "data").text == "0 segments evicted\n"
    assert command("store", "evict", "data", "none", "--keep-local", "bytes=0").status == 2
    gone = command("store", "evict", "data", "--keep-local", "bytes=0", "--json").json
    assert sorted(gone) == [path.as_uri() for path in objects(tmp_path)]
    assert not list(stored.rglob("segments/*/*.esdb"))
    assert command("scan", "data", "clicks", "--count").text == "3\n"
    assert "2 segments" in command("stats", "data").text
    assert command("stats", "data", "--json").json["store"]["evicted"]["segments"] == 2
    assert command("store", "verify", "data", "--read").text.startswith("data: ok, 2 segments in the store, ")
    assert command("store", "fetch", "data").text == "2 segments fetched\n"
    assert len(list(stored.rglob("segments/*/*.esdb"))) == 2


@pytest.mark.usefixtures("quiet", "stored")
def test_settings(command):
    shown = command("store", "set", "data", "--keep-local", "bytes=5GiB", "--keep-local", "age=7d", "--cache", "10MB")
    assert "7 days" in shown.text
    own = ("--keep-local", "debug:bytes=0", "--keep-local", "a:b:age=1d")
    shown = command("store", "set", "data", "--keep-local", "bytes=5GiB", *own)
    assert [line.split() for line in shown.text.splitlines() if "of debug, bytes" in line] == [
        ["stays", "on", "the", "disk", "of", "debug,", "bytes", "0", "bytes"]
    ]
    kept = command("store", "status", "data", "--json").json["keep_local"]
    assert kept["topics"] == {
        "debug": {"bytes": 0, "age_us": None, "topics": {}},
        "a:b": {"bytes": None, "age_us": 86_400_000_000, "topics": {}},
    }
    kept = command("store", "set", "data", "--keep-local", "bytes=none", "--json").json
    assert kept["keep_local"] == {"bytes": None, "age_us": None, "topics": {}}
    assert kept["cache"]["limit"] == 10_000_000


@pytest.mark.usefixtures("quiet", "stored")
def test_what_is_wrong(command, tmp_path):
    """Missing objects are reported with status 1; those whose file is on disk are uploaded again."""
    command("store", "push", "data")
    objects(tmp_path)[0].unlink()
    failed = command("store", "verify", "data")
    assert (failed.status, failed.err.count("uploaded again")) == (1, 1)
    assert command("store", "push", "data").text.startswith("1 segment uploaded")
    assert command("store", "verify", "data", "--json").json["problems"] == []
    command("store", "evict", "data", "--keep-local", "bytes=0")
    objects(tmp_path)[0].unlink()
    assert command("store", "verify", "data", "--json").status == 1
    assert command("scan", "data", "clicks").status == 1
    assert command("verify", "data", "--accept-losses").status == 1
    assert command("scan", "data", "clicks", "--count").text == "1\n"


@pytest.mark.usefixtures("quiet", "stored")
def test_strays(command, tmp_path):
    command("store", "push", "data")
    stray = objects(tmp_path)[0].with_name(f"{99:012d}-{7:016x}.esdb")
    stray.write_bytes(b"left over")
    assert command("store", "gc", "data").text == "0 objects deleted, 0 bytes\n"
    assert "1 object would be deleted" in command("store", "gc", "data", "--grace", "0s", "--dry-run").text
    assert len(command("store", "gc", "data", "--grace", "0s", "--json").json["names"]) == 1
    assert not stray.exists()


@pytest.mark.usefixtures("clicks")
def test_without_a_store(command):
    for verb in ("status", "push", "evict", "fetch", "verify", "gc"):
        failed = command("store", verb, "data")
        assert (failed.status, "has no store" in failed.err) == (2, True)
    assert command("store", "set", "data", "--keep-local", "bytes=0").status == 2
    assert command("store", "set", "data", "--store", "ftp://a/b").status == 2
