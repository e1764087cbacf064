"""Commands on a catalog to which another process, such as a server, writes; and on paths that are not catalogs."""

from __future__ import annotations

import pytest

import aggregator


@pytest.fixture
def written(tmp_path, quiet):
    """A catalog that is open for writing, with two segments; nothing is removed in the background."""
    with aggregator.open(tmp_path / "data") as catalog:
        topic = catalog.create_topic("t", retention={"segments": 5})
        for number in range(2):
            topic.append([{"space": "a", "timestamp": number}])
            catalog.seal()
        yield catalog


def test_verify(command, written, tmp_path):
    """`verify` reads every segment; a damaged one is reported and stays in place."""
    assert command("verify", "data").text == "data: ok, 2 events, 2 segments\n"
    segment = sorted((tmp_path / "data" / "segments").rglob("*.esdb"))[0]
    damaged = bytearray(segment.read_bytes())
    damaged[40] ^= 255
    segment.write_bytes(damaged)
    result = command("verify", "data")
    assert (result.status, "the segment is damaged (1 events, record indexes 0 to 0)" in result.err) == (1, True)
    segment.unlink()
    assert "the segment is missing" in command("verify", "data").err
    assert command("verify", "data", "--accept-losses").status == 1  # which only a writer may do
    assert not list((tmp_path / "data" / "quarantine").glob("*.esdb"))


def test_retain_dry_run(command, written):
    """`retain --dry-run` reports what the policies would remove, and removes nothing."""
    assert command("retain", "data", "--dry-run", "--json").json["removed"] == []
    written.topic("t").set_policy(retention={"age": "1s"})
    told = written.retain(dry_run=True)
    for arguments in (["data"], ["data", "t"]):
        found = command("retain", *arguments, "--dry-run", "--json").json
        assert [each["number"] for each in found["removed"]] == [each.number for each in told.removed]
        assert [each["reason"] for each in found["removed"]] == ["age", "age"]
    assert command("retain", "data").status == 1
    assert written.topic("t").scan().count() == 2


def test_erase_dry_run(command, written):
    """`erase --dry-run` only counts."""
    assert command("erase", "data", "t", "a", "--dry-run").text == "2 events would be erased\n"


@pytest.mark.parametrize(
    "statement",
    ["SELECT", "SELECT COUNT", "SHOW PARTITIONS", "SHOW PIPES", "EXPLAIN SELECT", 'TRUNCATE DRYRUN BEFORE "-1h"'],
)
def test_queries(command, written, statement):
    """Statements that change nothing work without write access."""
    written.write({"app": "web"}, [{"msg": "x"}])
    assert command("query", "data", statement).status == 0


@pytest.mark.parametrize(
    "verb", [["stats", "data"], ["scan", "data", "t"], ["query", "data", "SELECT"], ["verify", "data"]]
)
def test_without_a_manifest(command, tmp_path, verb):
    """Without a manifest, the error hints at how to recover the rest."""
    with aggregator.open(tmp_path / "data") as catalog:
        catalog.create_topic("t").append([{"space": "a", "timestamp": 1}])
        catalog.seal()
    for path in (tmp_path / "data").glob("manifest.sqlite*"):
        path.unlink()
    result = command(*verb)
    assert result.status == (1 if verb[0] == "verify" else 2)
    assert "run `aggregator rebuild-manifest` on the catalog" in result.err


NO_DIRECTORY = "a catalog can be written only in a directory of a local disk"
WRITING = [["init"], ["rebuild-manifest"]]


@pytest.mark.parametrize(
    ("verb", "address"),
    [(verb, address) for verb in WRITING for address in ("s3://bucket/catalog", "gs://bucket/catalog")]
    + [(verb, "ftp://host/catalog") for verb in [*WRITING, ["stats"], ["topics"], ["verify"]]],
)
def test_addresses_are_no_directories(command, tmp_path, verb, address):
    """Addresses create no folder of that name. Only reading verbs accept the address of a store."""
    result = command(*verb, address)
    assert (result.status, NO_DIRECTORY in result.err) == (2, True), result.err
    assert not (tmp_path / address.partition("/")[0]).exists()


def test_a_server_is_no_directory(command, tmp_path):
    """`init` and `open` refuse a server's address: a catalog is created on its own machine."""
    result = command("init", "http://127.0.0.1:1")
    assert (result.status, "works on a directory, not through a server" in result.err) == (2, True)
    with pytest.raises(aggregator.InvalidRequestError, match=NO_DIRECTORY):
        aggregator.open("http://127.0.0.1:1")
