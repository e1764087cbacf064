"""Jobs with a real Spark: every event is written once, even if the job is stopped and run again."""

from __future__ import annotations

import json
import shutil
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from clicks import click_table, in_file_order, write_clicks
from effort import long

import esformat
from esformat import UsageError
from esformat.spark import jobs
from esformat.spark.files import segments_at
from esformat.spark.jobs.compact import Member, choose
from esformat.spark.jobs.inputs import InputFile, choose_groups, input_files
from esformat.spark.jobs.summary import reason_of
from esformat.spark.options import as_list
from tests.spark.test_read import rows, rows_of
from tests.spark.test_write import left, load

ROLES = {"space": "user", "timestamp": "at", "grouping": "app", "indexes": ["type"], "partitions": 2}


@pytest.fixture(scope="module")
def expected():
    return rows_of(in_file_order(click_table(3000)))


@pytest.fixture(scope="module")
def parquet(tmp_path_factory):
    """3,000 clicks in three Parquet files."""
    folder = tmp_path_factory.mktemp("parquet")
    table = click_table(3000).rename_columns(["user", "app", "at", "data", "type", "country"])
    for number in range(3):
        pq.write_table(table.slice(1000 * number, 1000), folder / f"{number}.parquet")
    return folder


@long
def test_convert_stopped_and_run_again(spark, parquet, expected, tmp_path, monkeypatch):
    """A job that dies between two groups continues with the next one, and a third run does nothing."""
    convert_module = import_module("esformat.spark.jobs.convert")  # the module, not the function of this name
    real, calls = convert_module.write, []

    def dies(*arguments, **options):
        calls.append(1)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return real(*arguments, **options)

    monkeypatch.setattr(convert_module, "write", dies)
    out = str(tmp_path / "out")
    with pytest.raises(KeyboardInterrupt):
        jobs.convert(spark, [str(parquet)], out, group_bytes=1, **ROLES)
    assert load(spark, out).count() == 1000
    seen = []
    again = jobs.convert(spark, [str(parquet)], out, group_bytes=1, progress=lambda *done: seen.append(done), **ROLES)
    assert (again.files, again.skipped, again.events, again.ok) == (2, 1, 2000, True)
    assert seen[-1][0] == seen[-1][1] > 0
    assert rows(load(spark, out)) == expected
    third = jobs.convert(spark, [f"{parquet}/*.parquet"], out, **ROLES)
    assert (third.files, third.skipped, third.events) == (0, 3, 0)


@long
def test_convert_of_a_moved_folder(spark, parquet, expected, tmp_path):
    """Files are recognized by their content: those of a moved folder are not converted again; a new file in it is."""
    before, after, out = tmp_path / "before", tmp_path / "after", str(tmp_path / "out")
    shutil.copytree(parquet, before)
    (before / "2.parquet").rename(tmp_path / "2.parquet")
    assert jobs.convert(spark, [str(before)], out, **ROLES).events == 2000
    before.rename(after)
    (tmp_path / "2.parquet").rename(after / "2.parquet")
    again = jobs.convert(spark, [str(after)], out, **ROLES)
    assert (again.failed, again.files, again.skipped, again.events) == ([], 1, 2, 1000)
    assert "another name" in again.notes[0]
    assert rows(load(spark, out)) == expected


@long
def test_two_converts_into_one_output(spark, parquet, expected, tmp_path):
    """Of two simultaneous jobs, one is refused or runs later and finds nothing to do: every event once."""
    out = str(tmp_path / "out")

    def run(group_bytes):
        return jobs.convert(spark, [str(parquet)], out, group_bytes=group_bytes, **ROLES)

    with ThreadPoolExecutor(2) as pool:
        begun = [pool.submit(run, group_bytes) for group_bytes in (1, 1 << 30)]
    refused = [str(each.exception()) for each in begun if each.exception()]
    assert [each.result().failed for each in begun if not each.exception()] in ([[]], [[], []])
    assert all("another job is running here: convert" in reason for reason in refused)
    assert rows(load(spark, out)) == expected


def test_compact_of_what_was_replaced(spark, lake, monkeypatch):
    """Segments that an overwrite removed during a merge do not reappear."""
    compact_module = import_module("esformat.spark.jobs.compact")
    real = compact_module.in_waves

    def overwritten_meanwhile(session, items, work):
        yield from real(session, items, work)
        if work is compact_module._member:
            return
        for path in lake.glob("*.esdb"):
            path.unlink()

    monkeypatch.setattr(compact_module, "in_waves", lambda *given: list(overwritten_meanwhile(*given)))
    with pytest.raises(UsageError, match="was replaced while it was merged"):
        jobs.compact(spark, str(lake))
    assert [path.name for path in lake.rglob("*")] == []


@long
def test_convert_of_what_changed(spark, parquet, tmp_path):
    """A file that changed since its conversion is a failure, not a second copy of its events."""
    source = tmp_path / "x.parquet"
    source.write_bytes((parquet / "0.parquet").read_bytes())
    out = str(tmp_path / "out")
    assert jobs.convert(spark, [str(source)], out, **ROLES).ok
    source.write_bytes((parquet / "1.parquet").read_bytes())
    again = jobs.convert(spark, [str(source)], out, **ROLES)
    assert not again.ok
    assert "has changed since" in again.failed[0][1]
    assert load(spark, out).count() == 1000


def test_convert_what_cannot_be_read(spark, tmp_path):
    """Unreadable rows fail their group with a reason; nothing of that group is published, other groups are."""
    (tmp_path / "a.json").write_text('{"user": "u", "at": "2026-01-02T03:04:05Z", "n": 1}\n')
    (tmp_path / "b.json").write_text('{"user": "u", "at": "yesterday", "n": 1}\n')
    (tmp_path / "c.json").write_text('{"user": "u", "at": \n')
    roles = {"space": "user", "timestamp": "at"}
    done = jobs.convert(spark, [str(tmp_path / "*.json")], str(tmp_path / "out"), group_bytes=1, **roles)
    assert done.events == 1
    assert [Path(path).name for path, _ in done.failed] == ["b.json", "c.json"]
    assert "yesterday" in done.failed[0][1]
    assert load(spark, tmp_path / "out").collect()[0].timestamp.isoformat().startswith("2026-01-02T03:04:05")


@long
def test_convert_arrow_and_go(spark, expected, tmp_path):
    """Arrow files with dictionaries, and a file of the Go ESDB, are converted."""
    table = click_table(3000)
    coded = table.set_column(4, "type", table["type"].dictionary_encode())
    with pa.OSFile(str(tmp_path / "clicks.arrow"), "wb") as sink, pa.ipc.new_file(sink, coded.schema) as writer:
        writer.write_table(coded, max_chunksize=700)
    done = jobs.convert(spark, [str(tmp_path / "clicks.arrow")], str(tmp_path / "out"), indexes=["type"])
    assert (done.ok, done.events) == (True, 3000)
    assert rows(load(spark, tmp_path / "out")) == expected
    archive = next((Path(__file__).parents[2] / "fixtures" / "go_esdb").rglob("*.esdb"))
    with esformat.customerio.open(archive) as opened:
        before = opened.scan().to_table()
    done = jobs.convert(spark, [str(archive)], str(tmp_path / "go"), format="customerio")
    assert (done.ok, done.events) == (True, len(before))
    found = load(spark, tmp_path / "go").toArrow()
    for name in ("space", "grouping", "data"):
        assert sorted(found[name].to_pylist()) == sorted(before[name].to_pylist())


@pytest.fixture
def lake(tmp_path):
    """The clicks in six segments."""
    table = click_table(3000)
    (tmp_path / "lake").mkdir()
    for number in range(6):
        write_clicks(tmp_path / "lake" / f"{number}.esdb", table.slice(500 * number, 500))
    return tmp_path / "lake"


@long
def test_export(spark, lake, expected, tmp_path):
    """Segments exported to Parquet and converted back have the same events; exported ones are skipped."""
    out = tmp_path / "export"
    done = jobs.export(spark, [str(lake)], str(out), format="parquet")
    assert (done.ok, done.events, done.made) == (True, 3000, len(list(out.glob("*.parquet"))))
    assert rows(spark.read.parquet(str(out))) == expected
    jobs.compact(spark, str(lake))
    jobs.erase(spark, [str(lake)], ["customer-2"])
    jobs.reindex(spark, [str(lake)], ["country"])
    again = jobs.export(spark, [str(lake)], str(out), format="parquet")
    assert (again.failed, again.events, again.skipped) == ([], 0, 1)  # the same events, in whichever files
    assert rows(spark.read.parquet(str(out))) == expected
    csv = jobs.export(spark, [str(lake)], str(tmp_path / "csv"), format="csv")
    assert (csv.failed, csv.events) == ([], sum(row[0] != "customer-2" for row in expected))


def test_compact(spark, lake, expected):
    """Six segments become one with the same events; a second run does nothing."""
    done = jobs.compact(spark, str(lake))
    assert (done.ok, done.files, done.made, done.events) == (True, 6, 1, 3000)
    assert len(list(lake.glob("*.esdb"))) == 1
    assert rows(load(spark, lake)) == expected
    assert len(left(lake)) == 1
    again = jobs.compact(spark, str(lake))
    assert (again.files, again.made, again.skipped) == (0, 0, 1)


@long
def test_reindex_erase_verify(spark, lake, expected):
    """Reindex changes indexes, erase removes spaces, and verify finds a damaged file; finished files are skipped."""
    done = jobs.reindex(spark, [str(lake)], ["country"])
    assert (done.ok, done.made, done.events) == (True, 6, 3000)
    assert jobs.reindex(spark, [str(lake)], ["country"]).skipped == 6
    for path in lake.glob("*.esdb"):
        with esformat.open(path) as segment:
            assert segment.indexes == ("country",)
    rest = [row for row in expected if row[0] != "customer-2"]
    done = jobs.erase(spark, [str(lake)], ["customer-2", "nobody"])
    assert done.ok
    assert done.made >= 3
    assert rows(load(spark, lake)) == rest
    assert jobs.erase(spark, [str(lake)], ["customer-2"]).made == 0
    assert jobs.verify(spark, [str(lake)]).events == len(rest)
    damaged = next(lake.glob("*.esdb"))
    content = bytearray(damaged.read_bytes())
    content[len(content) // 3] ^= 1
    damaged.write_bytes(content)
    report = jobs.verify(spark, [str(lake)])
    assert not report.ok
    assert {path for path, _ in report.failed} == {str(damaged)}


def test_command_line(spark, lake, capfd):
    """The commands run the jobs, print a summary, and return the exit status that scripts rely on."""
    from esformat.cli import run

    assert run(["spark", "verify", str(lake)]) == 0
    assert "verify: 6 files; 3,000 events" in capfd.readouterr().out
    assert run(["spark", "erase", str(lake), "--space", "customer-2", "--json"]) == 0
    assert json.loads(capfd.readouterr().out)["job"] == "erase"
    next(lake.glob("*.esdb")).write_bytes(b"no segment")
    assert run(["spark", "compact", str(lake)]) == 1
    assert run(["spark", "reindex", str(lake)]) == 2
    assert "--no-index" in capfd.readouterr().err


# ------------------------------------------------------------ decisions, without Spark


def test_one_path_is_a_path(tmp_path):
    """A single path is not split into letters; a single name is refused if a list of names is expected."""
    write_clicks(tmp_path / "a.esdb", click_table(10))
    assert segments_at(str(tmp_path)) == input_files(str(tmp_path)) == [str(tmp_path / "a.esdb")]
    with pytest.raises(UsageError, match=r"a list of names, not the text 'type'; give \['type'\]"):
        as_list("type")


def test_choose_neighbours_up_to_the_target():
    """Small neighbours of one kind are merged in the order of their first spaces, up to the target size; a single
    segment is left alone.
    """
    sizes = [("c", 40, "x"), ("a", 40, "x"), ("b", 30, "x"), ("d", 60, "x"), ("e", 10, "y"), ("f", 10, "x")]
    members = [Member(name, size, name.encode(), kind) for name, size, kind in sizes]
    groups = [[member.name for member in group] for group in choose(members, 100)]
    assert groups == [["a", "b"], ["c", "f"]]
    assert choose(members[:1], 100) == []


def test_groups_of_inputs():
    """Groups keep the order, stay within the size, and have at least one file."""
    files = [InputFile(str(number), size, 0) for number, size in enumerate([5, 5, 20, 1, 1])]
    assert [[file.path for file in group] for group in choose_groups(files, 10)] == [["0", "1"], ["2"], ["3", "4"]]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            "Job aborted\n  File x\nesformat.errors.UsageError: no column 'x'; read it\n\tat org.apache",
            "no column 'x'; read it",
        ),
        ("something\nelse", "something"),
        (
            "An error occurred while calling o116.save.\n: org.apache.spark.SparkException: Job aborted\n\tat org.x\n"
            "Caused by: java.io.IOException: No space left on device\n\tat java.base/java.io",
            "No space left on device",
        ),
        (
            "An error occurred while calling o1.save.\n: x.SparkException: aborted\nTraceback\n"
            "esformat.errors.InputError: a.csv: line 3: 1 fields; correct it\n\n"
            "Caused by: x.PythonException: Traceback (most",
            "a.csv: line 3: 1 fields; correct it",
        ),
        ("An error occurred while calling o533.save.", "ValueError"),
        ("", "ValueError"),
    ],
)
def test_reasons(text, reason):
    """The reason is the line that a task raised, taken from Spark's whole message."""
    assert reason_of(ValueError(text)) == reason
