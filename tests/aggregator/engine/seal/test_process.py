"""Segments written by a separate process equal those written in a thread, whatever happens to that process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pyarrow as pa
import pytest
from effort import long

import aggregator
import esformat
from aggregator.engine.seal import process as sealing_process
from aggregator.engine.seal.process import SealingProcess
from aggregator.engine.seal.worker import Task, send
from aggregator.errors import InvalidRequestError, SealingFailedError
from aggregator.model import ProducerEntry, SchemaInfo, TopicInfo
from aggregator.policy import Retention, Roll
from aggregator.storage.files.layout import Layout
from aggregator.storage.segments.file import LEAST_SEARCHED_BYTES, arrow_schema, merge_segments, write_segment
from esformat.parts import make_schema

PATIENCE_S = 60


@pytest.fixture(scope="module")
def process(tmp_path_factory):
    """A process that writes segments; starting one takes a second."""
    layout = Layout(tmp_path_factory.mktemp("catalog"))
    process = SealingProcess(layout)
    yield process, layout
    process.close()
    assert list((layout.root / "staging").iterdir()) == []


def facts(binary=False):
    """The facts of a segment besides its events."""
    schema = make_schema(pa.schema([("data", pa.binary()), ("n", pa.int64())]), ["n"], binary_keys=binary)
    topic = TopicInfo(1, "t", "binary" if binary else "text", ("n",), Roll(), Retention(), 5)
    producers = [ProducerEntry(1, "p", 3, 2**64 - 1, 0, 4, "a note")]
    return {
        "number": 7, "topic": topic, "partition": (1, "0"), "schema": SchemaInfo(1, 1, 1, schema),
        "producers": producers, "now_us": 1_000_000,
    }  # fmt: skip


def events(schema, count):
    """Events in two chunks; the second starts in the middle of its buffers."""
    rows = [
        {"space": f"s{number % 7}", "grouping": "", "timestamp": number, "data": b"x" * number, "n": number % 3,
         "record_index": number}
        for number in range(count + 1)
    ]  # fmt: skip
    whole = pa.Table.from_pylist(rows, schema=arrow_schema(schema))
    return pa.concat_tables([whole.slice(0, count // 2), whole.slice(count // 2, count - count // 2)])


def test_the_same_file(process, tmp_path):
    """The file and its facts equal byte for byte those of a thread; this many events have templates."""
    writer, layout = process
    given = facts()
    table = events(given["schema"].schema, 5000)
    assert table.nbytes > LEAST_SEARCHED_BYTES
    here = write_segment(tmp_path / "0" / "a.esdb", [table], templates=True, **given)
    there = writer.write_segment(layout.segment(7), table.to_batches(), **given)
    assert there == here
    assert layout.segment(7).read_bytes() == (tmp_path / "0" / "a.esdb").read_bytes()
    with pytest.raises(esformat.UsageError, match="the file exists"):
        writer.write_segment(layout.segment(7), table.to_batches(), **given)


def test_errors_come_back(process):
    """An event that cannot be written raises as in a thread, leaves no file and does not end the process."""
    writer, layout = process
    given = facts() | {"number": 8}
    table = events(given["schema"].schema, 10)
    pid = writer.pid
    long = table.set_column(0, table.schema.field(0), pa.array(["x" * 70_000] * len(table)))
    with pytest.raises(esformat.InvalidEventError, match="space"):
        writer.write_segment(layout.segment(8), long.to_batches(), **given)
    with pytest.raises(SealingFailedError, match="writing a segment failed: KeyError"):
        writer.write_segment(layout.segment(8), table.drop_columns("space").to_batches(), **given)
    assert not layout.segment(8).exists()
    os.kill(pid, signal.SIGINT)  # sent to the whole group, as by Ctrl-C or a service manager
    os.kill(pid, signal.SIGTERM)
    assert writer.write_segment(layout.segment(8), table.to_batches(), **given).rows == 10
    assert writer.pid == pid


def test_a_name_that_is_not_durable(process, monkeypatch):
    """If the directory cannot be synced, the segment is removed, because the manifest will not name it."""
    writer, layout = process
    given = facts() | {"number": 9}
    table = events(given["schema"].schema, 10)
    real = sealing_process.sync_directory

    def fail(directory):
        if directory == layout.segment(9).parent:
            raise OSError(5, "Input/output error")
        real(directory)

    monkeypatch.setattr(sealing_process, "sync_directory", fail)
    with pytest.raises(OSError, match="Input/output"):
        writer.write_segment(layout.segment(9), table.to_batches(), **given)
    assert not layout.segment(9).exists()
    monkeypatch.undo()
    assert writer.write_segment(layout.segment(9), table.to_batches(), **given).rows == 10


def test_threads_share_it(process):
    """Partitions sealed in parallel get separate segments."""
    writer, layout = process
    given = facts()
    found = {}

    def write(number):
        table = events(given["schema"].schema, 100 * number)
        found[number] = writer.write_segment(layout.segment(number), table.to_batches(), **(given | {"number": number}))

    threads = [threading.Thread(target=write, args=(number,)) for number in (20, 21, 22)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {number: info.rows for number, info in found.items()} == {20: 2000, 21: 2100, 22: 2200}
    for number in found:
        with esformat.open(layout.segment(number)) as segment:
            assert segment.num_events == 100 * number


def test_killed_and_begun_anew(tmp_path):
    """Killing the process loses nothing: the caller gets an error, and background sealing starts another process."""
    (tmp_path / "data" / "staging" / "sealing-0123" / "deep").mkdir(parents=True)  # left by a killed writer
    with aggregator.open(tmp_path / "data", sealing="process") as catalog:
        assert list((tmp_path / "data" / "staging").iterdir()) == []
        writer = catalog._backend.sealing_process
        topic = catalog.create_topic("t", roll={"rows": 2})
        topic.append([{"space": "a", "timestamp": 1}])
        first = writer.pid
        os.kill(first, signal.SIGKILL)
        with pytest.raises(SealingFailedError, match="ended by signal 9"):
            catalog.seal()
        assert topic.scan().count() == 1
        topic.append([{"space": "b", "timestamp": 2}] * 2)
        deadline = time.monotonic() + PATIENCE_S
        while topic.stats()["unsealed_rows"] and time.monotonic() < deadline:
            time.sleep(0.02)
        assert topic.stats()["unsealed_rows"] == 0
        assert writer.pid not in (None, first)
        assert [event.space for event in topic.scan()] == ["a", "b", "b"]
    assert writer.pid is None
    assert list((tmp_path / "data" / "staging").iterdir()) == []
    with aggregator.open(tmp_path / "data") as catalog:
        assert catalog.topic("t").scan().count() == 3
        assert catalog.problems() == []


def test_it_ends_with_its_parent(tmp_path):
    """A killed catalog leaves no sealing process behind: everything that held its standard error is gone."""
    program = "import sys, aggregator; aggregator.open(sys.argv[1], sealing='process'); print(1, flush=True); input()"
    command = [sys.executable, "-c", program, str(tmp_path / "data")]
    parent = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    with parent:
        assert parent.stdout.readline() == b"1\n"
        parent.kill()
        assert parent.communicate(timeout=PATIENCE_S) == (b"", b"")


def test_nobody_gets_one_unasked(tmp_path):
    """Sealing uses threads by default, and an unknown value is refused."""
    with aggregator.open(tmp_path / "data") as catalog:
        assert catalog._backend.sealing_process is None
    with pytest.raises(InvalidRequestError, match="sealing must be thread or process, not 'fork'"):
        aggregator.open(tmp_path / "data", sealing="fork")


def written(layout, process, count):
    """Files of a few events each, like a topic's segments."""
    given = facts()
    for number in range(count):
        table = events(given["schema"].schema, 40 + number)
        process.write_segment(layout.segment(120 + number), table.to_batches(), **given | {"number": 120 + number})
    return [str(layout.segment(120 + number)) for number in range(count)]


def test_the_same_merge(process, tmp_path):
    """A merge in the process equals one in a thread byte for byte; a failed one leaves no file and ends no process."""
    writer, layout = process
    sources, properties = written(layout, writer, 3), {"name": "value"}
    here = merge_segments(sources, tmp_path / "a.esdb", properties)
    there = writer.merge(layout.segment(130), sources, properties)
    assert there == here
    assert layout.segment(130).read_bytes() == (tmp_path / "a.esdb").read_bytes()
    pid = writer.pid
    with pytest.raises(FileNotFoundError):
        writer.merge(layout.segment(131), [*sources, str(tmp_path / "gone.esdb")], properties)
    (tmp_path / "broken.esdb").write_bytes(b"no segment" * 99)
    with pytest.raises(esformat.CorruptSegmentError):
        writer.merge(layout.segment(131), [*sources, str(tmp_path / "broken.esdb")], properties)
    assert not layout.segment(131).exists()
    assert writer.pid == pid


def test_given_up(tmp_path):
    """An abandoned merge ends immediately with an error and leaves no file."""
    layout = Layout(tmp_path)
    with closing(SealingProcess(layout)) as process:
        sources = written(layout, process, 2)
        os.kill(process.pid, signal.SIGSTOP)  # otherwise it could finish too soon
        with ThreadPoolExecutor(1) as pool:
            merging = pool.submit(process.merge, layout.segment(130), sources, {})
            time.sleep(0.1)
            stopped = process.pid
            process.abort()
            os.kill(stopped, signal.SIGCONT)
            with pytest.raises(SealingFailedError, match="ended"):
                merging.result(PATIENCE_S)
        assert not layout.segment(130).exists()
        assert process.merge(layout.segment(130), sources, {}).rows == 81


@pytest.mark.parametrize("sealing", ["thread", "process"])
def test_merged_in_another_process(tmp_path, sealing):
    """A catalog that seals in a process merges in another, which starts with the first merge."""
    with aggregator.open(tmp_path / "data", sealing=sealing) as catalog:
        merging = catalog._backend.merging_process
        assert merging is None or merging.pid is None
        topic = catalog.create_topic("t")
        for number in range(3):
            topic.append([{"space": f"s{row}", "timestamp": 10 * row + number} for row in range(50)])
            catalog.seal()
        assert catalog.compact().merged == 3
        assert (merging is not None and merging.pid not in (None, catalog._backend.sealing_process.pid)) == (
            sealing == "process"
        )
        assert topic.stats()["segments"] == 1
        assert topic.scan().count() == 150
        assert catalog.verify() == []
    assert merging is None or merging.pid is None
    assert list((tmp_path / "data").glob("staging/*")) == []


def test_killed_while_it_merges(tmp_path):
    """Segments whose merge was killed once are merged next time; those killed twice are skipped and reported."""
    with aggregator.open(tmp_path / "data", sealing="process") as catalog, ThreadPoolExecutor(1) as pool:
        merging = catalog._backend.merging_process
        topic = catalog.create_topic("t", retention={"segments": 1 << 30})  # merges run only on request

        def more():
            for number in range(2):
                topic.append([{"space": f"s{row}", "timestamp": 2 * row + number} for row in range(50)])
                catalog.seal()

        def killed():
            os.kill(merging.pid, signal.SIGSTOP)  # otherwise it could finish too soon
            compacting = pool.submit(catalog.compact)
            time.sleep(0.3)
            os.kill(merging.pid, signal.SIGKILL)
            return compacting.exception(PATIENCE_S)

        more()
        assert catalog.compact().merged == 2
        more()
        assert isinstance(killed(), SealingFailedError)
        assert catalog.problems() == []
        assert catalog.compact().merged == 3
        assert topic.stats()["segments"] == 1
        more()
        group = topic.stats()["segments"]
        assert isinstance(killed(), SealingFailedError)
        merging._running = merging._start()  # as the next merge would
        assert killed() is None
        assert len(catalog.problems()) == group
        assert topic.scan().count() == 300


@long
def test_a_message_without_its_events(tmp_path):
    """A process that receives no events for its task ends, and its parent gets an error instead of waiting."""
    writer = SealingProcess(Layout(tmp_path))
    (process, channel), task = writer._running, facts()
    del task["producers"]
    send(channel, Task(path=tmp_path / "a.esdb", producers=(), threads=None, hidden={}, **task))
    assert process.wait(PATIENCE_S) == 1
    table = events(task["schema"].schema, 10)
    with pytest.raises(SealingFailedError, match="ended with status 1"):
        writer.write_segment(tmp_path / "segments" / "0" / "a.esdb", table.to_batches(), **task)
    writer.close()
