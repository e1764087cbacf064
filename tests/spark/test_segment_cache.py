"""Files that Spark's queries know from earlier ones: not opened again, never confused with others."""

import os
import threading
from pathlib import Path

import pyarrow as pa
import pytest

import esformat
from esformat.io.source import FileSource
from esformat.spark import segment_cache
from esformat.spark.segment_cache import SegmentCache


def segment(path, n):
    """A segment of the space `a`, with one event for each number."""
    times = pa.array(range(len(n)), pa.timestamp("us", "UTC"))
    with esformat.create(path) as writer:
        writer.add_table(pa.table({"space": ["a"] * len(n), "timestamp": times, "n": n}))


@pytest.fixture
def reads(monkeypatch):
    """The file name and the bytes of each read."""
    found = []
    real = FileSource.read_at

    def counted(self, offset, length):
        found.append((Path(self.name).name, length))
        return real(self, offset, length)

    monkeypatch.setattr(FileSource, "read_at", counted)
    return found


def numbers(known, path):
    """The column `n` of a file."""
    with known.opened(str(path)) as found:
        return found.scan(columns=["n"]).to_table()["n"].to_pylist()


def test_nothing_is_read_to_open_a_known_file(tmp_path, reads):
    """A second query reads only a leaf and the events of a known file."""
    path = tmp_path / "a.esdb"
    segment(path, n=[1, 2, 3])
    known = SegmentCache()
    reads.clear()
    with known.opened(str(path)):
        assert reads
    reads.clear()
    with known.opened(str(path)) as found:
        assert found.num_events == 3
        assert reads == []
        found.scan().to_table()
    assert len(reads) <= 2  # a leaf and the events


def test_events_are_read_each_time(tmp_path, reads):
    """Blocks are read again by every query: no event is cached that an erasure elsewhere may remove."""
    path = tmp_path / "a.esdb"
    segment(path, n=[1, 2, 3])
    known = SegmentCache()
    assert numbers(known, path) == [1, 2, 3]
    for _ in range(2):
        reads.clear()
        assert numbers(known, path) == [1, 2, 3]
        assert [name for name, _ in reads] == ["a.esdb"]


@pytest.mark.parametrize("how", ["replaced", "written over"])
def test_another_file_of_the_name(tmp_path, how):
    """A file that replaced a known one is opened with its own content."""
    path = tmp_path / "a.esdb"
    segment(path, n=[1, 2, 3])
    known = SegmentCache()
    assert numbers(known, path) == [1, 2, 3]
    segment(tmp_path / "b.esdb", n=[4, 5, 6])
    if how == "replaced":
        (tmp_path / "b.esdb").replace(path)
    else:
        path.write_bytes((tmp_path / "b.esdb").read_bytes())
    assert numbers(known, path) == [4, 5, 6]


def test_a_file_that_is_gone(tmp_path):
    """A deleted file raises an error, known or not."""
    path = tmp_path / "a.esdb"
    segment(path, n=[1])
    known = SegmentCache()
    assert numbers(known, path) == [1]
    path.unlink()
    with pytest.raises(FileNotFoundError):
        numbers(known, path)


def test_a_file_replaced_while_it_is_read(tmp_path):
    """A reader that began before a file was replaced reads the old content to the end."""
    path = tmp_path / "a.esdb"
    segment(path, n=[1, 2, 3])
    segment(tmp_path / "b.esdb", n=[4, 5, 6])
    known = SegmentCache()
    assert numbers(known, path) == [1, 2, 3]
    with known.opened(str(path)) as found:
        (tmp_path / "b.esdb").replace(path)
        assert numbers(known, path) == [4, 5, 6]
        assert found.scan(columns=["n"]).to_table()["n"].to_pylist() == [1, 2, 3]


def test_a_damaged_file_is_not_known(tmp_path):
    """A damaged file raises an error that names it, each time; once repaired, it is read."""
    path = tmp_path / "a.esdb"
    segment(path, n=[1])
    whole = path.read_bytes()
    path.write_bytes(whole[:-30])
    known = SegmentCache()
    for _ in range(2):
        with pytest.raises(esformat.CorruptSegmentError, match=r"a\.esdb"), known.opened(str(path)):
            raise AssertionError("it was opened")
    path.write_bytes(whole)
    assert numbers(known, path) == [1]


def test_files_are_closed_between_questions(tmp_path):
    """However many files are known, none is open between queries."""
    descriptors = Path("/proc/self/fd")
    if not descriptors.is_dir():
        pytest.skip("the system does not tell which files are open")
    known = SegmentCache()
    for number in range(20):
        segment(tmp_path / f"{number}.esdb", n=[number])
        assert numbers(known, tmp_path / f"{number}.esdb") == [number]
    held = [os.path.realpath(link) for link in descriptors.iterdir()]
    assert [path for path in held if path.startswith(f"{tmp_path}/")] == []


def test_no_more_files_than_that(tmp_path, reads):
    """The file that was read longest ago is forgotten."""
    for name in "abc":
        segment(tmp_path / f"{name}.esdb", n=[1])
    known = SegmentCache(most=2)
    for name in ("a", "b", "a", "c"):
        numbers(known, tmp_path / f"{name}.esdb")
    counts = {}
    for name in ("a", "c", "b"):
        reads.clear()
        with known.opened(str(tmp_path / f"{name}.esdb")):
            counts[name] = len(reads)
    assert counts["a"] == counts["c"] == 0 < counts["b"]


def test_several_threads(tmp_path):
    """Simultaneous queries share a file, and none closes it for another."""
    path = tmp_path / "a.esdb"
    segment(path, n=list(range(2000)))
    known = SegmentCache()
    found, begin = [], threading.Barrier(4)

    def ask():
        begin.wait(timeout=60)
        found.extend(sum(numbers(known, path)) for _ in range(50))

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [sum(range(2000))] * 200


def test_what_is_kept_of_all_files(tmp_path):
    """The caches of all files are bounded: no block and no frame, and a fixed number of bytes for directories and
    indexes.
    """
    known = SegmentCache()
    for number in range(3):
        segment(tmp_path / f"{number}.esdb", n=list(range(2000)))
        with known.opened(str(tmp_path / f"{number}.esdb")) as found:
            assert len(list(found["a"].scan())) == len(list(found["a"].scan())) == 2000
    tables, *others = known._budgets
    assert [budget.held_bytes for budget in others] == [0, 0, 0]
    assert 0 < tables.held_bytes <= segment_cache.TABLES_BYTES
