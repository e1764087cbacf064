"""Each verb of `aggregator` does what it says, prints output that scripts can read, and exits with the right status."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path
from unittest import mock

import pyarrow as pa
import pyarrow.parquet
import pytest
from clicks import click_table
from crash_image import crash_image

import aggregator
import esformat
from aggregator.cli import main
from aggregator.engine.upkeep.erasure import Erasures
from tests.aggregator.cli.conftest import CLICKS, HOW


def test_init_and_topics(command):
    """`init` and `topics` create, alter, rename and delete; `init` in an existing catalog changes nothing."""
    assert command("init", "data").text == "data: 0 topics\n"
    made = command(
        "topics", "data", "--create", "t", "--index", "type", "--keys", "binary", "--retention", "bytes=1GiB",
        "--retention", "segments=7", "--roll", "rows=10", "--roll", "age=60s",
    )  # fmt: skip
    assert (made.status, made.text) == (0, "t: created\n")
    (facts,) = command("topics", "data", "--json").json
    assert (facts["topic"], facts["indexes"], facts["keys"], facts["rows"]) == ("t", ["type"], "binary", 0)
    assert {name: limit for name, limit in facts["retention"].items() if limit is not None} == {
        "bytes": 1 << 30, "segments": 7,
    }  # fmt: skip
    assert facts["roll"] == {"rows": 10, "bytes": 64 << 20, "age_us": 60_000_000, "frame_bytes": None}
    altered = command("topics", "data", "--alter", "t", "--retention", "age=1d")
    kept = "1.1 GB, 1 day, 7 segments"
    assert altered.text == f"t: altered; keeps {kept}; seals segments after 10 events, 67.1 MB or 1 minute\n"
    assert command("topics", "data", "--json").json[0]["retention"]["age_us"] == 86_400_000_000
    assert command("topics", "data").text.splitlines()[-1].endswith(kept)
    for limit in ("bytes=none", "segments=none"):
        altered = command("topics", "data", "--alter", "t", "--retention", limit)
    assert altered.text.startswith("t: altered; keeps 1 day; ")
    assert command("topics", "data", "--alter", "t", "--roll", "rows=7", "--json").json["roll"]["rows"] == 7
    assert command("topics", "data", "--create", "u", "--json").json["topic"] == "u"
    assert command("init", "data").text == "data: 2 topics\n"
    assert command("topics", "data", "--rename", "u", "v").text == "v: renamed\n"
    taken = command("topics", "data", "--rename", "t", "v")
    assert taken.status == 2
    assert "the topic 'v' exists; choose another name, or rename that one" in taken.err
    assert command("topics", "data", "--delete", "t", "--alter", "v", "--roll", "rows=7").status == 2
    assert command("topics", "data", "--delete", "t").text == "t: deleted\n"
    assert command("topics", "data", "--delete", "v", "--json").json == {"deleted": "v"}
    assert command("topics", "data", "--json").json == []


def test_names_that_may_surprise(command, tmp_path):
    """`init` in a directory with other files, and a topic that hides the SQL table `streams`, get a warning."""
    assert command("init", ".").err == ". has other files: a catalog should have a directory of its own\n"
    (tmp_path / "volume" / "lost+found").mkdir(parents=True)
    assert [command("init", name).err for name in (".", "new", "volume")] == [""] * 3
    hides = "in SQL, streams is now this topic, and no longer the table of the streams' records\n"
    assert command("topics", "new", "--create", "streams").err == hides
    assert command("topics", "new", "--create", "other").err == ""
    (tmp_path / "in.csv").write_text("space,timestamp\na,2026-01-01\n")
    for catalog, file in (("imported", "in.csv"), ("again", "out.esdb")):
        command("init", catalog)
        assert command("import", catalog, "streams", file).err == hides
        assert command("import", catalog, "streams", file).err == ""
        command("export", catalog, "streams", "out.esdb")


def test_scan_an_index_that_changed_type(command):
    """`--index` finds the events that show the value, whatever types the column had; whole numbers of two types too."""
    command("init", "data")
    with aggregator.open("data") as catalog:
        mixed, numbers = (catalog.create_topic(name, indexes=["code"]) for name in ("mixed", "numbers"))
        for codes in (pa.array([5, 7]), pa.array(["x5", "5"])):
            mixed.append(pa.table({"space": ["a", "b"], "timestamp": [1, 2], "code": codes}))
        for kind in (pa.int64(), pa.uint64()):
            numbers.append(pa.table({"space": ["a"], "timestamp": [1], "code": pa.array([5], kind)}))
    for code, spaces in (("7", ["b"]), ("5", ["a", "b"]), ("x5", ["a"]), ("05", [])):
        found = command("scan", "data", "mixed", "--index", f"code={code}").rows
        assert [(row["space"], row["code"]) for row in found] == [(space, code) for space in spaces]
    assert command("scan", "data", "numbers", "--index", "code=5", "--count").text == "2\n"


def test_append(command, clicks):
    """`append` reads files of several formats with the topic's types; a known batch is not stored again."""
    first = command("append", "data", "clicks", "clicks.jsonl", *HOW, "--producer", "p", "--json").json
    assert (first["events"], first["first"], first["last"], first["duplicates"]) == (3, 2, 4, 0)
    again = command("append", "data", "clicks", "clicks.jsonl", *HOW, "--producer", "p", "--json").json
    assert (again["first"], again["last"], again["duplicates"]) == (2, 4, 1)
    with open("more.csv", "w") as file:  # noqa: PTH123
        file.write("who,at,zip,type,n\ncarl,2026-03-02,010,007,4\n")
    assert command("append", "data", "clicks", "more.csv", *HOW).status == 0
    with aggregator.open(clicks, read_only=True) as catalog:
        scan = catalog.topic("clicks").scan(space="carl", columns=["zip", "type", "n"])
        assert scan.to_table().to_pylist() == [{"zip": "010", "type": "007", "n": 4.0}]
        assert catalog.topic("clicks").scan().count() == 7


def numbered(name, count, first=0):
    """Write a file of JSON lines with this many events."""
    lines = [json.dumps({"who": "ada", "at": 1_700_000_000 + first + number, "n": number}) for number in range(count)]
    Path(name).write_text("\n".join(lines) + "\n", "utf-8")


@pytest.mark.parametrize("verb", ["append", "import"])
def test_again_with_more_batches_than_are_remembered(command, clicks, verb):
    """Batches too old to be recognised are skipped if a later one is. Nothing of another file is taken as stored."""
    how = ("data", "clicks", "many.jsonl", "--space", "who", "--timestamp", "at", "--batch-rows", "1", "--json")
    numbered("many.jsonl", 70)
    assert command(verb, *how, "--producer", "p").json["duplicates"] == 0
    numbered("many.jsonl", 75)
    again = command(verb, *how, "--producer", "p").json
    assert (again["batches"], again["events"], again["duplicates"], again["last"]) == (75, 75, 70, 2 + 74)
    for count, words in [(3, "older than the 64 that are remembered"), (75, "with other events")]:
        numbered("many.jsonl", count, first=500)
        refused = command(verb, *how, "--producer", "p")
        assert refused.status == 1
        assert words in refused.err
        assert "choose another --producer for another file" in refused.err
        assert "sequence for each new batch" not in refused.err
    assert command("scan", "data", "clicks", "--count").text == "78\n"


def test_segments_again_with_more_batches_than_are_remembered(command, clicks):
    """Batch numbers continue across segments, also if every batch of the first is too old to be recognised."""
    for name, first in [("one", 0), ("two", 1000)]:
        with esformat.create(f"{name}.esdb") as writer:
            for number in range(80):
                writer.add("ada", b"x", timestamp=first + number)
    how = ("data", "segments", "one.esdb", "two.esdb", "--batch-rows", "1", "--producer", "p", "--json")
    assert command("import", *how).json["duplicates"] == 0
    again = command("import", *how).json
    assert (again["events"], again["duplicates"], again["first"], again["last"]) == (160, 160, 96, 159)
    assert command("scan", "data", "segments", "--count").text == "160\n"


def test_append_a_pipe(command, clicks):
    """`append -` reads standard input and prints receipts as batches are stored."""
    how = (*HOW, "--input-format", "jsonl", "--receipts", "--batch-rows", "2", "--partition", "pipe")
    rows = command("append", "data", "clicks", "-", *how, stdin=CLICKS.encode()).rows
    assert [(row["partition"], row["first"], row["last"]) for row in rows] == [("pipe", 0, 1), ("pipe", 2, 2)]
    assert command("scan", "data", "clicks", "--partition", "pipe", "--count").text == "3\n"


def test_append_stops_at_a_bad_row(command, clicks):
    """A row that is not an event is reported with its line; with --on-error skip the others are stored."""
    with open("dirty.jsonl", "w") as file:  # noqa: PTH123
        file.write(CLICKS + '{"who": "eve", "at": "never"}\n')
    stopped = command("append", "data", "clicks", "dirty.jsonl", *HOW)
    assert (stopped.status, stopped.text) == (1, "")
    assert "line 4" in stopped.err
    assert stopped.err.count("\n") == 1
    skipped = command("append", "data", "clicks", "dirty.jsonl", *HOW, "--on-error", "skip", "--json").json
    assert (skipped["events"], skipped["bad_rows"]) == (3, 1)


def test_bad_rows_never_replace_an_input(command, clicks, tmp_path):
    """Bad rows go to a separate file, never over an input, whatever name the input has."""
    dirty = tmp_path / "dirty.jsonl"
    dirty.write_text(CLICKS + '{"who": "eve", "at": "never"}\n')
    (tmp_path / "link.jsonl").symlink_to(dirty)
    for name in ("dirty.jsonl", "link.jsonl", str(dirty)):
        refused = command("append", "data", "clicks", "dirty.jsonl", *HOW, "--on-error", "collect", name)
        assert (refused.status, "is an input, too" in refused.err) == (2, True)
    assert dirty.read_text().startswith(CLICKS)
    assert command("append", "data", "clicks", "dirty.jsonl", *HOW, "--on-error", "collect", "bad.jsonl").status == 0
    assert '"line": 4' in (tmp_path / "bad.jsonl").read_text()


QUESTIONS = [
    ([], [0, 1, 2]),
    (["--reverse"], [2, 1, 0]),
    (["--space", "ada"], [0, 2]),
    (["--space-hex", "626f62"], [1]),
    (["--index", "type=page", "--limit", "1"], [0]),
    (["--start", "1us", "--end", "2us"], [1]),
    (["--partition", "web"], [2]),
    (["--space", "nobody"], []),
]


@pytest.mark.parametrize(("question", "expected"), QUESTIONS, ids=[" ".join(question) for question, _ in QUESTIONS])
def test_scan(command, clicks, question, expected):
    """Each query returns sealed and unsealed events, and their count."""
    rows = command("scan", "data", "clicks", *question, "--columns", "timestamp,record_index,partition").rows
    assert [int(row["timestamp"][-2]) for row in rows] == expected
    assert command("scan", "data", "clicks", *question, "--count").text == f"{len(expected)}\n"


def test_scan_formats(command, clicks):
    """`scan` prints the formats of `esdb scan`."""
    assert command("scan", "data", "clicks", "--format", "csv").text.splitlines()[0].count(",") == 3
    assert "purchase" in command("scan", "data", "clicks", "--format", "table").text
    assert command("scan", "data", "clicks", "--format", "parquet", "-o", "c.parquet").status == 0
    assert pyarrow.parquet.read_table("c.parquet").num_rows == 3


def test_tail(command, clicks):
    """`tail` prints the newest events of all partitions by time."""
    rows = command("tail", "data", "clicks", "-n", "2").rows
    assert [(row["space"], row["partition"], row["record_index"]) for row in rows] == [
        ("bob", "0", 1),
        ("ada", "web", 0),
    ]
    assert len(command("tail", "data", "clicks", "--partition", "0").rows) == 2
    assert command("tail", "data", "clicks", "-n", "0").text == ""


def test_stats(command, clicks):
    """`stats` reports a catalog and a topic, as text and as JSON."""
    facts = command("stats", "data", "--json").json
    assert (facts["rows"], facts["segments"], facts["problems"]) == (3, 1, 0)
    assert command("stats", "data", "clicks", "--json").json["partitions"]["web"]["unsealed_rows"] == 1
    assert "0 to 1" in command("stats", "data").text
    with aggregator.open("data") as catalog:
        catalog.query("CREATE PIPE mirror FROM a = 1")
    assert "mirror" in command("stats", "data").text


def test_notes_of_import(command, tmp_path):
    """The notes of `import` are those of `esdb write`, each marked as a note."""
    (tmp_path / "in.csv").write_text("space,at\na,1700000000.0000000001\nb,1700000000.123456789\n")
    command("init", "data")
    done = command("import", "data", "t", "in.csv", "--timestamp", "at")
    assert done.status == 0, done.err
    notes = [line for line in done.text.splitlines() if "at_ns" in line or "read as s" in line]
    assert len(notes) == 2
    assert all(note.startswith("note: ") for note in notes)


def test_export_to_json(command, clicks, tmp_path):
    """A .json file contains an array, as with --format json."""
    assert command("export", "data", "clicks", "all.json").status == 0
    assert len(json.loads((tmp_path / "all.json").read_text())) == 3


@pytest.mark.parametrize("name", ["all.esdb", "all.parquet", "all.jsonl", "all.csv", "all.arrow"])
def test_export_and_import(command, clicks, name):
    """A topic exported to a file of any format and imported again has the same events."""
    assert command("export", "data", "clicks", name).text.startswith(f"{name}: 3 events")
    assert command("export", "data", "clicks", name).status != 0  # the file exists
    index = [] if name == "all.esdb" else ["--index", "type"]
    assert command("import", "data", "again", name, *index, "--json").json["events"] == 3
    with aggregator.open(clicks, read_only=True) as catalog:
        first, again = (catalog.topic(each) for each in ("clicks", "again"))
        assert again.indexes == ("type",)
        names = ["space", "timestamp", "grouping", "type"]
        assert again.scan(columns=names).to_table() == first.scan(columns=names).to_table()


@pytest.mark.parametrize("ending", ["esdb", "parquet", "arrow"])
@pytest.mark.parametrize("keys", ["text", "binary"])
def test_export_and_import_exactly(command, tmp_path, ending, keys):
    """Formats with types bring back all types, nulls distinct from empty values, and binary keys."""
    spaces = ["a", "", "b"] if keys == "text" else [b"\xff", b"", b"b"]
    given = pa.table(
        {
            "space": spaces, "timestamp": [1, 2, 3], "data": [None, b"", b"\x00"],
            "n": pa.array([1, None, 3], pa.int16()),
            "clock": pa.array([None, 1, 86_399_999_999_999], pa.time64("ns")), "list": [[1], None, []],
        }
    )  # fmt: skip
    with aggregator.open(tmp_path / "data") as catalog:
        topic = catalog.create_topic("t", keys=keys)
        topic.append(given)
        stored = topic.scan().to_table()
    assert command("export", "data", "t", f"t.{ending}").status == 0
    chosen = [] if ending == "esdb" else ["--keys", keys]
    assert command("import", "data", "again", f"t.{ending}", *chosen).status == 0
    with aggregator.open(tmp_path / "data", read_only=True) as catalog:
        again = catalog.topic("again").scan().to_table()
    assert again.schema == stored.schema
    assert again.to_pylist() == stored.to_pylist()


def test_import_that_fails_makes_no_topic(command, clicks, tmp_path):
    """A failed import of rows that are not events creates no topic: a retry may create it with other settings."""
    pyarrow.parquet.write_table(pa.table({"space": [b"\xff"], "timestamp": [1]}), tmp_path / "bytes.parquet")
    failed = command("import", "data", "new", "bytes.parquet", "--timestamp-format", "us")
    assert (failed.status, "--keys binary" in failed.err) == (1, True)
    assert command("import", "data", "new", "clicks.jsonl", "all.esdb").status == 2
    (tmp_path / "kafka.csv").write_text("space,timestamp,partition\na,1,7\n")
    failed = command("import", "data", "new", "kafka.csv", "--timestamp-format", "us")
    assert (failed.status, "a column cannot be named 'partition'" in failed.err) == (1, True)
    assert [facts["topic"] for facts in command("topics", "data", "--json").json] == ["clicks"]
    again = command("import", "data", "new", "bytes.parquet", "--timestamp-format", "us", "--keys", "binary")
    assert again.status == 0
    with aggregator.open(clicks, read_only=True) as catalog:
        assert [event.space for event in catalog.topic("new").scan()] == [b"\xff"]


@pytest.mark.parametrize("ending", ["jsonl", "csv"])
def test_export_and_import_as_text(command, tmp_path, ending):
    """Text formats bring back all values if the new topic has the same types."""
    given = pa.table(
        {
            "space": ["a", "b"], "timestamp": [1, 2], "data": [b"\xff", b""], "n": pa.array([1, None], pa.uint64()),
            "clock": pa.array([86_399_999_999_999, None], pa.time64("ns")), "wake": pa.array([5, None], pa.time32("s")),
            "day": pa.array([-1, None], pa.date32()), "at": pa.array([-1, None], pa.timestamp("ns")),
        }
    )  # fmt: skip
    with aggregator.open(tmp_path / "data") as catalog:
        topic = catalog.create_topic("t")
        topic.append(given)
        stored = topic.scan().to_table()
        catalog.create_topic("again", stored.schema)
    assert command("export", "data", "t", f"t.{ending}").status == 0
    assert command("import", "data", "again", f"t.{ending}").status == 0
    with aggregator.open(tmp_path / "data", read_only=True) as catalog:
        assert catalog.topic("again").scan().to_table().to_pylist() == stored.to_pylist()


def test_export_numbers_of_two_types(command, tmp_path):
    """Signed and unsigned numbers are exported as decimals, without their index, because decimals cannot be indexed."""
    with aggregator.open(tmp_path / "data") as catalog:
        topic = catalog.create_topic("t", indexes=["n", "kind"])
        for kind, value in ((pa.uint64(), 2**64 - 1), (pa.int64(), -1)):
            topic.append(pa.table({"space": ["a"], "timestamp": [1], "n": pa.array([value], kind), "kind": ["x"]}))
    assert command("export", "data", "t", "t.esdb").status == 0
    with esformat.open(tmp_path / "t.esdb") as segment:
        assert segment.scan().to_table()["n"].to_pylist() == [2**64 - 1, -1]
        assert segment.indexes == ("kind",)


def test_export_a_part(command, clicks):
    """A space or a time range can be exported."""
    assert command("export", "data", "clicks", "ada.esdb", "--space", "ada", "--start", "1us").status == 0
    with esformat.open("ada.esdb") as segment:
        assert [(event.space, event.timestamp) for event in segment.scan()] == [("ada", 2)]
        assert list(segment.indexes) == ["type"]


def test_import_a_large_segment(command, clicks, tmp_path):
    """Batches are cut to the requested size, and all events arrive."""
    with esformat.create("large.esdb", indexes=["type"]) as writer:
        writer.add_table(click_table(30_000))
    done = command("import", "data", "large", "large.esdb", "--batch-rows", "7000", "--json").json
    assert (done["events"], done["last"]) == (30_000, 29_999)
    assert done["batches"] >= 5


def test_import_that_fails_tells_what_stays(command, clicks):
    """A failed import reports the events it keeps from the files before the damaged one: how many, and where."""
    table = pa.table({"space": ["a"] * 500, "timestamp": range(500), "data": [b"%d" % n for n in range(500)]})
    for name in ("good.esdb", "bad.esdb"):
        with esformat.create(name) as writer:
            writer.add_table(table)
    stored = bytearray(Path("bad.esdb").read_bytes())
    stored[200:800] = bytes(600)
    Path("bad.esdb").write_bytes(stored)
    done = command("import", "data", "large", "good.esdb", "bad.esdb", "--batch-rows", "100")
    assert done.status == 1
    told = "large keeps 500 events appended before the error: record indexes 0 to 499 of partition 0\n"
    assert told in done.err
    assert "bad.esdb" in done.err


def test_retain_and_compact(command, clicks):
    """A dry run of `retain` is marked as one; `retain` and `compact` then reduce the segments."""
    for _ in range(3):
        with aggregator.open(clicks) as catalog:
            catalog.topic("clicks").append([{"space": "x", "timestamp": 9}])
            catalog.seal()
            catalog.topic("clicks").set_policy(retention={"segments": 5})
    command("topics", "data", "--alter", "clicks", "--retention", "segments=4")
    dry = command("retain", "data", "--dry-run", "--json").json
    assert dry["dry_run"]
    assert command("retain", "data", "clicks").status == 0
    facts = command("stats", "data", "clicks", "--json").json
    assert facts["segments"] <= 4
    assert command("compact", "data", "--json").json["made"] >= 1
    assert command("stats", "data", "clicks", "--json").json["segments"] < facts["segments"]


def test_erase(command, clicks):
    """`erase --dry-run` reports the number of events; `erase` removes these and nothing else."""
    assert command("erase", "data", "clicks", "ada", "--dry-run").text == "2 events would be erased\n"
    assert command("scan", "data", "clicks", "--count").text == "3\n"
    done = command("erase", "data", "clicks", "ada", "--now", "--json").json
    assert (done["events"], done["traces"]["gone"]) == (2, True)
    assert [row["space"] for row in command("scan", "data", "clicks").rows] == ["bob"]
    done = command("erase", "data", "clicks", "bob", "--now")
    assert (done.status, done.text, done.err) == (0, "1 event erased\n", "")


def test_erase_now_with_a_store(command, clicks, tmp_path):
    """The store keeps erased events for its history: `erase --now` says so in a sentence, and what to do."""
    aggregator.open(clicks, store=(tmp_path / "bucket").as_uri()).close()
    done = command("erase", "data", "clicks", "ada", "--now")
    assert (done.status, done.text) == (1, "2 events erased\n")
    told = done.err.splitlines()[-1]
    assert told.startswith("the events are hidden, but not yet removed")
    assert told.endswith(
        "The store keeps them for its history, an hour by default. To remove them, run `aggregator compact` later, or "
        "leave the catalog open"
    )


def test_erase_now_while_events_arrive(command, clicks, monkeypatch):
    """Events that are appended meanwhile are neither erased nor hidden: `erase --now` says only to erase again."""
    later = [{"space": "ada", "timestamp": 1, "type": "page"}]
    monkeypatch.setattr(aggregator.Topic, "compact", lambda topic: topic.append(later))
    done = command("erase", "data", "clicks", "ada", "--now")
    assert (done.status, done.text) == (1, "2 events erased\n")
    assert done.err.splitlines()[-1] == "the space has 1 event appended meanwhile: erase it again"
    assert "hidden" not in done.err


@pytest.mark.parametrize("options", [["--dry-run"], [], ["--now"], ["--json"]])
def test_erase_tells_that_no_event_was_there(command, clicks, options):
    """`erase` says if the space had no event, so that a misspelled space is not taken for erased."""
    done = command("erase", "data", "clicks", "Ada", *options)
    told = "clicks has no events of 'Ada': they were already erased, or the events spell the space differently\n"
    assert (done.status, done.err) == (1, told)


def test_verify_finds_damage(command, clicks):
    """An intact catalog is reported as ok; a damaged segment is a problem and sets the exit status."""
    assert command("verify", "data").text == "data: ok, 3 events, 1 segment\n"
    (segment,) = (clicks / "segments").rglob("*.esdb")
    data = bytearray(segment.read_bytes())
    data[len(data) // 2] ^= 1
    segment.write_bytes(data)
    found = command("verify", "data")
    assert found.status == 1
    assert "quarantine" in found.err
    assert "damaged" in command("verify", "data", "--json").json["problems"][0]["message"]
    assert len(command("verify", "data", "--accept-losses", "--json").json["lost"]) == 1
    assert command("scan", "data", "clicks", "--count").text == "1\n"
    assert command("verify", "data", "--forget").status == 1
    assert command("verify", "data").text == "data: ok, 1 event, 0 segments\n"


def test_rebuild_manifest(command, clicks):
    """A catalog without its manifest is refused; after `rebuild` everything is back, from segments and log."""
    for path in clicks.glob("manifest.sqlite*"):
        path.unlink()
    refused = command("append", "data", "clicks", "clicks.jsonl", *HOW)
    assert refused.status == 1
    assert "rebuild-manifest" in refused.err
    assert command("rebuild-manifest", "data").text == "data: 1 topic, 1 segment, 2 events, 1 more in the log\n"
    assert command("verify", "data").text == "data: ok, 3 events, 1 segment\n"


@pytest.mark.usefixtures("quiet")
def test_rebuild_manifest_with_and_without_facts(command, clicks):
    """The report counts pipes and pending erasures; if the manifest backup is lost too, it says what is missing."""
    with aggregator.open(clicks) as catalog:
        catalog.query("CREATE PIPE p")
        with mock.patch.object(Erasures, "advance", return_value=[]):
            catalog.topic("clicks").erase("customer-1")
            stored = crash_image(clicks, clicks.with_name("copy"))
    for path in stored.glob("manifest.sqlite*"):
        path.unlink()
    assert command("rebuild-manifest", "copy").text.endswith(", 1 pipe, 1 hidden space\n")
    (stored / "manifest.sqlite").unlink()
    (stored / "catalog.facts").unlink()
    lost = command("rebuild-manifest", "copy")
    assert (lost.status, lost.text) == (1, "copy: 1 topic, 1 segment, 2 events, 1 more in the log\n")
    assert "catalog.facts is missing: topics without" in lost.err
    (stored / "manifest.sqlite").unlink()
    facts = command("rebuild-manifest", "copy", "--json").json
    assert (facts["pipes"], facts["hidden"], len(facts["missing"])) == (0, 0, 1)


def test_bench(command, tmp_path):
    """A short `bench` reports rates and latencies and leaves nothing behind."""
    for seconds in ("0.2", "2", "20"):  # on a busy machine, the time may be over before the first append
        facts = command(
            "bench", "--seconds", seconds, "--threads", "2", "--batch", "10", "--directory", tmp_path, "--json"
        ).json
        if facts["appends"]:
            break
    assert facts["events"] == 10 * facts["appends"] > 0
    assert 0 < facts["p50_ms"] <= facts["p99_ms"] <= facts["max_ms"]
    assert [path.name for path in tmp_path.iterdir()] == ["clicks.jsonl"]


WRONG = [
    (["bench", "--rate", "5"], 2, "aggregator bench: --rate goes with --url"),
    (["follow"], 2, "aggregator follow: Missing argument 'URL'"),
    (["scan", "nowhere", "t"], 2, "aggregator: nowhere: no catalog found; give the directory of a catalog"),
    (["verify", "nowhere"], 2, "aggregator: nowhere: no catalog found; give the directory of a catalog"),
    (["stats", "localhost:3931"], 2, "localhost:3931: no catalog found; the address of a server begins with http://"),
    (["append", "[::1]:3931", "t", "clicks.jsonl"], 2, "begins with http:// or https://: http://[::1]:3931"),
    (["stats", "clicks.jsonl"], 2, "clicks.jsonl: a file, not a catalog"),
    (["append", "nowhere", "t", "clicks.jsonl"], 2, "aggregator init nowhere"),
    (["scan", "data", "nope"], 2, "no topic 'nope'"),
    (["topics", "data", "--delete", "nope"], 2, "data: no topic 'nope'; see `aggregator topics`\n"),
    (["topics", "data", "--rename", "nope", "new"], 2, "data: no topic 'nope'; see `aggregator topics`\n"),
    (["scan", "data", "clicks", "--index", "nope=1"], 2, "no index 'nope'"),
    (["scan", "data", "clicks", "--columns", "nope"], 2, "no column 'nope'"),
    (["scan", "data", "clicks", "--partition", "p3"], 2, "no partition 'p3' in topic 'clicks'; its partitions are '0'"),
    (["export", "data", "clicks", "p3.csv", "--partition", "p3"], 2, "no partition 'p3' in topic 'clicks'"),
    (["topics", "data", "--create", "clicks"], 2, "exists"),
    (["topics", "data", "--index", "a"], 2, "--index and --keys go with --create"),
    (
        ["topics", "data", "--alter", "clicks", "--roll", "soon=1"],
        2,
        "roll has no setting 'soon'; known settings: rows, bytes, age, frame_bytes",
    ),
    (
        ["topics", "data", "--create", "new", "--retention", "agee=1d"],
        2,
        "no setting 'agee'; known settings: bytes, age, segments",
    ),
    (["topics", "data", "--alter", "clicks"], 2, "--alter needs --roll or --retention"),
    (["topics", "data", "--alter", "clicks", "--retention", "age=soon"], 2, "invalid length of time 'soon'"),
    (["append", "data", "clicks", "clicks.jsonl", "--durability", "hope"], 2, "durability must be"),
    (["append", "data", "clicks", "missing.csv"], 1, "missing.csv"),
    (["export", "data", "clicks", "file.xyz"], 2, "cannot tell a format"),
    (["export", "data", "clicks", "file.csv.gz"], 2, "file.csv.gz: output is not compressed; choose a name without"),
    (["scan", "data", "clicks", "-o", "y.xlsx"], 2, "cannot tell a format from the name 'y.xlsx': give --format"),
    (["query", "data", "SELECT COUNT", "-o", "y.xlsx"], 2, "cannot tell a format from the name 'y.xlsx'"),
    (["query", "data", "SELECT COUNT", "-o", "y.esdb"], 2, "-o y.esdb: a result cannot be written as esdb"),
    (["erase", "data", "clicks"], 2, "give either SPACE or --space-hex"),
    (
        ["import", "data", "clicks", "clicks.jsonl", "--index", "url"],
        2,
        "--index is for a new topic, but clicks already exists with no index 'url'",
    ),
    (["import", "data", "clicks", "clicks.jsonl", "--keys", "binary"], 2, "clicks already exists with keys of text"),
    (["nope"], 2, "No such command 'nope'"),
]


@pytest.mark.parametrize(("arguments", "status", "message"), WRONG, ids=[" ".join(each[0]) for each in WRONG])
def test_wrong_usage(command, clicks, arguments, status, message):
    """A usage error prints one line and creates nothing."""
    result = command(*arguments)
    assert (result.status, result.text, result.err.count("\n")) == (status, "", 1)
    assert message in result.err
    assert not (clicks.parent / "nowhere").exists()


def test_a_segment_instead_of_a_catalog(command, clicks):
    """A segment named instead of a catalog is refused with the command that reads it, and vice versa."""
    assert command("export", "data", "clicks", "clicks.esdb").status == 0
    for verb in (["scan", "clicks.esdb", "clicks"], ["append", "clicks.esdb", "clicks", "clicks.jsonl"]):
        refused = command(*verb)
        assert (refused.status, refused.text) == (2, "")
        assert "clicks.esdb: a segment, not a catalog; `esdb scan clicks.esdb` reads it" in refused.err
    command("init", "empty")
    with pytest.raises(esformat.UsageError, match="it is a catalog: `aggregator stats empty` shows its contents"):
        esformat.open_many("empty")


def test_a_locked_catalog(command, clicks):
    """A locked catalog names its writer; reads still work."""
    with aggregator.open(clicks):
        refused = command("compact", "data")
        assert refused.status == 1
        assert f"process {os.getpid()}" in refused.err
        assert command("scan", "data", "clicks", "--count").text == "3\n"


@pytest.mark.parametrize("name", list(main.commands))
def test_help(command, name):
    """The help of each verb ends in examples that name the verb."""
    result = command(name, "--help")
    assert result.status == 0
    examples = result.text.partition("Examples:")[2]
    assert examples.count(f"aggregator {name}") >= 2


def test_keys_that_are_no_text(command, tmp_path):
    """Binary keys are written in hexadecimal."""
    command("init", "data")
    command("topics", "data", "--create", "b", "--keys", "binary")
    table = pa.table({"space": [b"\xff", b"\x00"], "timestamp": [1, 2]})
    pyarrow.parquet.write_table(table, "b.parquet")
    assert command("append", "data", "b", "b.parquet", "--timestamp-format", "us").status == 0
    assert command("scan", "data", "b", "--space-hex", "ff", "--count").text == "1\n"
    erased = command("erase", "data", "b", "--space-hex", "ff", "--json")
    assert json.loads(erased.text)["space"] == "ff"


@pytest.mark.parametrize("verb", ["append", "import"])
@pytest.mark.parametrize("format_", ["jsonl", "csv", "arrow", "parquet"])
def test_what_scan_prints_comes_back_through_a_pipe(command, tmp_path, format_, verb):
    """The output of `scan` can be piped back in: named grouping keys, bytes and null payloads survive."""
    with aggregator.open(tmp_path / "data") as catalog:
        rows = [
            {"space": "a", "grouping": "web", "timestamp": 1_000_000, "data": b"\xff", "n": 1},
            {"space": "a", "grouping": "", "timestamp": 2_000_000, "data": b"x", "n": None},
        ]
        for name in ("t", "again")[: 1 + (verb == "append")]:
            catalog.create_topic(name)
        catalog.topic("t").append(rows)
    written = command("scan", "data", "t", "--format", format_, "-o", "out").text
    assert written == ""
    told = ["--input-format", format_]
    result = command(verb, "data", "again", "-", *told, stdin=(tmp_path / "out").read_bytes())
    assert result.status == 0, result.err
    again = command("scan", "data", "again", "--format", "jsonl")
    assert again.text == command("scan", "data", "t", "--format", "jsonl").text


def test_a_named_pipe_is_read_once(command, tmp_path):
    """A named pipe is appended as data arrives, like standard input; a shell's <(command) is one."""
    os.mkfifo(tmp_path / "fifo")
    command("init", "data")
    writer = threading.Thread(target=(tmp_path / "fifo").write_text, args=(CLICKS,))
    writer.start()
    result = command("import", "data", "visits", "fifo", *HOW)
    writer.join(120)
    assert (result.status, result.text.startswith("visits: 3 events")) == (0, True), result.err


def test_where(command, clicks, tmp_path):
    """--where takes conditions on any column, in `scan` and in `export`."""
    assert command("scan", "data", "clicks", "--where", "timestamp > 1970-01-01T00:00:00Z", "--count").text == "2\n"
    rows = command("scan", "data", "clicks", "--where", "type = page", "--columns", "space", "--format", "jsonl").rows
    assert rows == [{"space": "ada"}, {"space": "bob"}]
    assert command("export", "data", "clicks", "x.jsonl", "--where", "space IN (bob)").status == 0
    assert [json.loads(line)["space"] for line in (tmp_path / "x.jsonl").read_text().splitlines()] == ["bob"]


def test_reports_as_json(command, clicks):
    """Verbs that print one line have --json with the same facts."""
    assert command("init", "data", "--json").json == {"path": "data", "topics": ["clicks"]}
    told = command("export", "data", "clicks", "out.esdb", "--json").json
    assert (told["path"], told["events"]) == ("out.esdb", 3)
    told = command("export", "data", "clicks", "-", "--format", "json", "--json")
    assert (len(told.json), '"events": 3' in told.err) == (3, True)
    assert command("scan", "data", "clicks", "-o", "again.esdb").status == 0
    assert command("import", "data", "again", "again.esdb", "--json").json["events"] == 3
    assert command("topics", "data", "--json").json[0]["indexes"] == ["type"]


@pytest.mark.parametrize(
    ("line", "advice"),
    [
        ("topics data --create a --create b", "--create was given twice"),
        ("topics data --create a --retention age=1d --retention age=2d", "--retention has two values for 'age'"),
        ("store set data mem://a --keep-local age=1d --keep-local age=2d", "--keep-local has two values for 'age'"),
        ("collect --path a --path b --into data --tags a=b --tags a=c", "--tags has two values for 'a'"),
        ("serve data --set a=b --bind x --bind y", "--bind was given twice"),
        ("serve data --set log.level=info --set log.level=error", "--set has two values for 'log.level'"),
    ],
)
def test_a_repeated_option_is_refused(command, line, advice):
    """A second value for an option that takes one is refused, also in nested commands."""
    result = command(*line.split())
    assert (result.status, advice in result.err) == (2, True), result.err


@pytest.mark.parametrize(
    ("verb", "option"), [("query", "--format"), ("topics", "--keys"), ("store set", "--keep-local")]
)
def test_an_option_without_its_value(command, verb, option):
    """The message names the verb, also a nested one, and its help."""
    result = command(*verb.split(), "data", option)
    told = f"aggregator {verb}: Option '{option}' requires an argument (see 'aggregator {verb} --help')\n"
    assert (result.status, result.err) == (2, told)


def test_sql_writes_a_segment(command, clicks, tmp_path):
    """`sql -o` with the name of a segment writes one, or refuses if the result has no events."""
    assert command("sql", "data", "FROM clicks", "-o", "some.esdb").status == 0
    with esformat.open(tmp_path / "some.esdb") as segment:
        assert segment.num_events == 3
    refused = command("sql", "data", "SELECT count(*) FROM clicks", "-o", "n.esdb")
    assert (refused.status, "events need space and timestamp" in refused.err) == (2, True)
