"""The collector stores every line once, through restarts, kills and all kinds of rotation, for all kinds of lines."""

from __future__ import annotations

import contextlib
import gzip
import http.server
import json
import os
import random
import re
import shutil
import threading
import time
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest
from ports import free_port
from served import served
from still import still

import aggregator
from aggregator.collect import (
    CatalogSink,
    Collector,
    Files,
    Patience,
    ServerSink,
    Settings,
    StoppedError,
    collector,
    files,
    progress,
)
from aggregator.collect.lines import measure, split
from aggregator.collect.settings import Cutting
from aggregator.collect.sinks import TooLargeError
from aggregator.collect.times import to_micros
from aggregator.lql import TagSet
from aggregator.server import Settings as ServerSettings
from aggregator.server.config.settings import Http

WEB_LOG = Path(__file__).parents[4] / "shared" / "data" / "apache_logs.gz"
LINE = '9.8.7.6 - ann [17/May/2015:10:05:03 +0200] "GET /a?b=c HTTP/1.1" 404 - "http://x/\\"q\\"" "Mozilla (X11)"'


class Rig:
    """A folder of logs, a catalog, and successive collectors."""

    def __init__(self, root, **files):
        self.logs, self.root = root / "logs", root
        self.logs.mkdir()
        self.files = {"path": (str(self.logs / "*.log"),), "file_tag": "", **files}
        self.now_us = 1_000_000

    def settings(self, **options):
        return Settings(
            "unused", (Files(**self.files),), flush_s=0.0 if options.pop("flush", False) else 1e9, **options
        )

    def collect(self, *, sink=None, once=False, **options):
        """Run steps of a new collector until there is nothing to do."""
        sink = sink or CatalogSink(self.open(), "logs", "0", time.sleep)
        made = Collector(self.settings(**options), sink, self.root / "notes.json", lambda: self.now_us)
        try:
            made.run(lambda _: made.stop(), once=once)
        finally:
            sink.close()
        return made

    def open(self):
        return aggregator.open(self.root / "c", durability="none")

    def write(self, name, text, mode="ab"):
        with (self.logs / name).open(mode) as file:
            file.write(text if isinstance(text, bytes) else text.encode())

    def messages(self, text="SELECT"):
        with self.open() as catalog:
            return sorted(event.data for event in catalog.query(text))


@pytest.fixture
def rig(tmp_path):
    return Rig(tmp_path)


def test_lines_are_collected_once(rig):
    """Appended lines are collected once, in one run or several; a line without a newline waits."""
    rig.write("a.log", "one\ntwo\nthr")
    rig.write("b.log", "\r\n\nother\r\n")
    rig.collect()
    assert rig.messages() == [b"one", b"other", b"two"]
    rig.write("a.log", "ee\nfour\n")
    rig.collect()
    rig.collect()
    assert rig.messages() == [b"four", b"one", b"other", b"three", b"two"]


def test_a_last_line_without_an_end_is_sent(rig):
    """A last line without a newline is sent if nothing was added for a while, or with `flush`."""
    rig.write("a.log", "one\ntwo")
    rig.collect(flush=True)
    assert rig.messages() == [b"one", b"two"]
    rig.write("b.log", "three")
    rig.collect(once=True)
    assert rig.messages() == [b"one", b"three", b"two"]


def test_rotation_by_rename(rig):
    """Lines written before and after a rename are collected, also if no collector ran or no glob matches now."""
    rig.write("a.log", "one\n")
    rig.collect()
    rig.write("a.log", "two\n")
    (rig.logs / "a.log").rename(rig.logs / "a.log.1")
    rig.write("a.log", "three\n")
    rig.collect()
    assert rig.messages() == [b"one", b"three", b"two"]
    (rig.logs / "a.log").rename(rig.logs / "old-a.log")
    rig.write("old-a.log", "four\n")
    rig.write("a.log", "five\n")
    rig.collect()
    assert rig.messages() == [b"five", b"four", b"one", b"three", b"two"]


def test_rotation_behind_a_symbolic_link(rig):
    """A file behind a symbolic link is rotated in its own folder: lines written before the rename are collected."""
    pod = rig.root / "pod"
    pod.mkdir()
    (pod / "0.log").write_text("one\n")
    (rig.logs / "a.log").symlink_to(pod / "0.log")
    rig.files["file_tag"] = "file"
    rig.collect()
    with (pod / "0.log").open("a") as file:
        file.write("two\n")
    (pod / "0.log").rename(pod / "0.log.1")
    (pod / "0.log").write_text("three\n")
    rig.collect()
    assert rig.messages() == [b"one", b"three", b"two"]
    with rig.open() as catalog:
        names = {TagSet.parse(event.space).get("file") for event in catalog.query("SELECT")}
    assert names == {str(rig.logs / "a.log")}


def test_links_in_a_circle(rig):
    """A folder linked inside itself is walked once, and its files are not named through the link."""
    rig.files |= {"path": (str(rig.logs),), "file_tag": "file"}
    rig.write("a.log", "one\n")
    (rig.logs / "sub").mkdir()
    rig.write("sub/b.log", "two\n")
    (rig.logs / "self").symlink_to(rig.logs)
    rig.collect()
    with rig.open() as catalog:
        names = {event.data: TagSet.parse(event.space).get("file") for event in catalog.query("SELECT")}
    assert names == {b"one": str(rig.logs / "a.log"), b"two": str(rig.logs / "sub" / "b.log")}
    (rig.logs / "sub" / "up").symlink_to(rig.logs)
    rig.write("a.log", "three\n")
    rig.collect()
    assert rig.messages() == [b"one", b"three", b"two"]


def test_a_folder_that_was_away(rig, monkeypatch):
    """A folder that was absent for any time is collected again when it is back."""
    monkeypatch.setattr(collector, "GONE_S", 0.0)
    monkeypatch.setattr(collector, "LOOK_S", 0.0)
    rig.write("a.log", "one\n")
    away = rig.root / "away"
    happens = iter(
        [
            lambda: rig.logs.rename(away),
            lambda: None,
            lambda: away.rename(rig.logs),
            lambda: rig.write("a.log", "two\n"),
            lambda: made.stop(),
        ]
    )
    sink = CatalogSink(rig.open(), "logs", "0", time.sleep)
    made = Collector(rig.settings(), sink, rig.root / "notes.json", lambda: rig.now_us)
    made.run(lambda _: next(happens)())
    sink.close()
    assert rig.messages() == [b"one", b"two"]


@pytest.mark.parametrize("linked", [False, True])
def test_the_catalog_does_not_collect_itself(rig, caplog, linked):
    """The catalog's files and the progress file are skipped, also behind symbolic links; `once` ends."""
    rig.write("a.log", "one\n")
    (rig.root / "link").symlink_to(rig.root / "c")
    rig.files["path"] = (str(rig.root / "link") if linked else str(rig.root),)
    sink = CatalogSink(rig.open(), "logs", "0", time.sleep)
    made = Collector(rig.settings(), sink, rig.root / "notes.json", lambda: rig.now_us)
    for _ in range(3):
        made.step(complete=True)
    sink.close()
    made._open_files.close()
    assert made.counts.lines == (0 if linked else 1)
    assert made.counts.unmatched == (1 if linked else 0)
    assert "skipped files of a catalog or of the collector itself" in caplog.text


def test_a_rotated_file_is_forgotten(rig, monkeypatch):
    """The collector keeps nothing about files that are gone: each rotation makes another one."""
    monkeypatch.setattr(collector, "GONE_S", 0)
    monkeypatch.setattr(collector, "LOOK_S", 0)
    sink = CatalogSink(rig.open(), "logs", "0", time.sleep)
    made = Collector(rig.settings(), sink, rig.root / "notes.json", lambda: rig.now_us)
    for number in range(3):
        rig.write("a.log", f"line {number}\n")
        while made.step():
            pass
        (rig.logs / "a.log").unlink()
        made.step()
        made.step()
        assert (made._sizes, made._present) == ({}, {})
    sink.close()
    made._open_files.close()
    assert rig.messages() == [b"line 0", b"line 1", b"line 2"]


def test_once_ends_while_a_file_grows(rig):
    """With `once`, a file is read to the size that it had at the start, even if each batch finds it longer."""
    rig.write("a.log", "one\ntwo\n")
    catalog_sink = CatalogSink(rig.open(), "logs", "0", time.sleep)

    class GrowingSink:
        batches = 0

        def append(self, *batch):
            self.batches += 1
            assert self.batches < 5, "it does not end"
            rig.write("a.log", "more\n")
            return catalog_sink.append(*batch)

        def __getattr__(self, name):
            return getattr(catalog_sink, name)

    rig.collect(sink=GrowingSink(), once=True)
    assert rig.messages() == [b"one", b"two"]
    rig.collect(once=True)
    assert rig.messages() == [b"more", b"one", b"two"]


@pytest.mark.parametrize("length", [4, 400])
def test_rotation_by_copy_and_truncate(rig, length):
    """A copy continues at the original's position, and the truncated file starts over, whichever is seen first."""
    rig.files["path"] = (str(rig.logs / "a*"),)
    lines = [f"{n}".ljust(length, "x") for n in range(6)]
    rig.write("a.log", "".join(f"{line}\n" for line in lines[:3]))
    rig.collect()
    rig.write("a.log", f"{lines[3]}\n")
    shutil.copy(rig.logs / "a.log", rig.logs / "a.log.1")
    if length > 64:
        rig.collect()  # the copy exists, and the file is not truncated yet
    rig.write("a.log", f"{lines[4]}\n{lines[5]}\n", "wb")
    rig.collect()
    assert Counter(rig.messages()) == Counter(line.encode() for line in lines)


def test_a_copy_in_the_place_of_an_old_one(rig, monkeypatch):
    """A second rotation's copy is held back, too, if it gets the inode of the deleted first copy."""
    monkeypatch.setattr(collector, "TWIN_S", 0.0)
    monkeypatch.setattr(collector, "LOOK_S", 0.0)
    rig.files["path"] = (str(rig.logs / "a*"),)
    sink = CatalogSink(rig.open(), "logs", "0", time.sleep)
    made = Collector(rig.settings(), sink, rig.root / "notes.json", lambda: 1_000_000)
    lines = [f"{n}".ljust(100, "x") for n in range(3)]
    for line in lines:
        rig.write("a.log", f"{line}\n")
        while made.step():
            pass
        (rig.logs / "a.log.1").write_bytes((rig.logs / "a.log").read_bytes())
        made.step()  # the copy exists, and the file is not truncated yet
        rig.write("a.log", "", "wb")
        while made.step():
            pass
    made._open_files.close()
    sink.close()
    assert Counter(rig.messages()) == Counter(line.encode() for line in lines)


def test_files_that_are_there_are_not_forgotten(rig, monkeypatch):
    """Existing files are never forgotten, however many; of deleted files, those gone longest are forgotten first."""
    monkeypatch.setattr(progress, "MAX_FORGOTTEN", 2)
    for n in range(5):
        rig.write(f"{n}.log", f"{n}\n")
    rig.collect()
    rig.write("5.log", "5\n")
    rig.collect()
    assert rig.messages() == [b"0", b"1", b"2", b"3", b"4", b"5"]
    for n in range(4):
        (rig.logs / f"{n}.log").unlink()
        rig.now_us += 1
        rig.collect(flush=True)
    rig.write("4.log", "4 again\n")
    rig.collect()
    noted = json.loads((rig.root / "notes.json").read_text())["files"]
    assert {Path(one["path"]).name for one in noted} == {"2.log", "3.log", "4.log", "5.log"}


def test_a_name_that_is_no_text(rig):
    """File names are bytes: bytes that are not UTF-8 are escaped."""
    rig.files["file_tag"] = "file"
    (rig.logs / os.fsdecode(b"caf\xe9.log")).write_bytes(b"one\n")
    rig.collect()
    rig.write("b.log", "two\n")
    rig.collect()
    assert rig.messages() == [b"one", b"two"]
    with rig.open() as catalog:
        streams = [TagSet.parse(event.space).get("file") for event in catalog.query("SELECT")]
    assert any(name.endswith(r"caf\xe9.log") for name in streams)


@pytest.mark.parametrize("known", [True, False])
def test_a_copy_of_a_file_that_was_not_read_yet(rig, monkeypatch, known):
    """If an unread file and its copy are found in one scan, before the truncation, the copy is held back."""
    monkeypatch.setattr(collector, "LOOK_S", 0.0)
    rig.files["path"] = (str(rig.logs / "a*"),)
    lines = [f"{n}".ljust(100, "x") for n in range(4)]
    sink = CatalogSink(rig.open(), "logs", "0", time.sleep)
    made = Collector(rig.settings(), sink, rig.root / "notes.json", int)
    if known:
        rig.write("a.log", "")
        made.step()
    rig.write("a.log", "".join(f"{line}\n" for line in lines[:2]))
    shutil.copy(rig.logs / "a.log", rig.logs / "a.log.1")
    made.step()
    rig.write("a.log", "".join(f"{line}\n" for line in lines[2:]), "wb")
    for _ in range(3):
        made.step()
    made._open_files.close()
    sink.close()
    assert Counter(rig.messages()) == Counter(line.encode() for line in lines)


def test_a_copy_that_stays_is_a_file(rig, monkeypatch):
    """A file that begins like another is collected after a while."""
    rig.write("a.log", "x" * 100 + "\n")
    rig.collect()
    shutil.copy(rig.logs / "a.log", rig.logs / "b.log")
    rig.collect()
    assert len(rig.messages()) == 1
    monkeypatch.setattr(collector, "TWIN_S", 0.0)
    monkeypatch.setattr(collector, "LOOK_S", 0.0)
    made = Collector(rig.settings(), CatalogSink(rig.open(), "logs", "0", time.sleep), rig.root / "notes.json", int)
    for _ in range(3):
        made.step()
    made._open_files.close()
    made._sink.close()
    assert len(rig.messages()) == 2


def test_a_copy_that_stays_is_collected_once(rig, monkeypatch):
    """Files that begin like a smaller one are not left out of a run with `once`."""
    monkeypatch.setattr(collector, "TWIN_S", 0.3)
    rig.write("a.log", "x" * 100 + "\none\n")
    rig.collect(once=True)
    rig.write("b.log", "x" * 100 + "\none\ntwo\n")
    sink = CatalogSink(rig.open(), "logs", "0", time.sleep)
    Collector(rig.settings(), sink, rig.root / "notes.json", int).run(time.sleep, once=True)
    sink.close()
    assert rig.messages() == [b"one", b"one", b"two", b"x" * 100, b"x" * 100]


def test_cut_and_written_anew(rig):
    """A rewritten file is recognised by its beginning, even if it is already longer than before."""
    rig.write("a.log", "one\n")
    rig.collect()
    rig.write("a.log", "two\nthree\nfour\n", "wb")
    rig.collect()
    assert rig.messages() == [b"four", b"one", b"three", b"two"]


def test_cut_and_written_anew_while_it_runs(rig):
    """No file is read from the middle of its new contents, however soon they are longer than the old ones."""
    rig.write("a.log", "one\n")
    sink = CatalogSink(rig.open(), "logs", "0", time.sleep)
    made = Collector(rig.settings(), sink, rig.root / "notes.json", int)
    made.step()
    rig.write("a.log", "two\nthree\nfour\n", "wb")
    for _ in range(3):
        made.step()
    made._open_files.close()
    sink.close()
    assert rig.messages() == [b"four", b"one", b"three", b"two"]


@pytest.mark.parametrize("known", ["", "0\n"])
@pytest.mark.parametrize("happens", ["copied", "cut", "copied and cut", "killed and cut"])
def test_a_file_that_was_found_when_it_was_short(rig, monkeypatch, known, happens):
    """A file is recognised by all that was read of it, not only by what it contained when it was found."""
    rig.files["path"] = (str(rig.logs / "*.log"),)
    lines = [f"{n}".ljust(100, "x") for n in range(1, 10)]
    rig.write("a.log", known)
    sink = Failing(rig.open(), "logs", "0", time.sleep)
    made = Collector(rig.settings(), CatalogSink(sink._catalog, "logs", "0", time.sleep), rig.root / "notes.json", int)
    made.step()
    rig.write("a.log", "".join(f"{line}\n" for line in lines[:2]))
    if happens == "killed and cut":
        made._sink = sink
        with pytest.raises(OSError, match="killed"):
            made.step()
    else:
        made.step()
    if happens != "cut":
        shutil.copy(rig.logs / "a.log", rig.logs / "copy of a.log")
    if happens != "copied":
        rig.write("a.log", "".join(f"{line}\n" for line in lines[2:]), "wb")
    else:
        monkeypatch.setattr(collector, "LOOK_S", 0.0)
        made.step()
        rig.write("a.log", "", "wb")
    made._open_files.close()
    sink.close()
    rig.collect()
    rig.collect()
    expected = [*known.split(), *(lines[:2] if happens == "copied" else lines)]
    assert Counter(rig.messages()) == Counter(line.encode() for line in expected)


def test_compressed_files(rig):
    """Compressed files are skipped, or read once; one compressed after it was collected continues at its position."""
    rig.files["path"] = (str(rig.logs / "*"),)
    rig.write("a.log", "one\ntwo\n")
    rig.collect()
    rig.write("a.log", "three\n")
    packed = gzip.compress((rig.logs / "a.log").read_bytes())
    (rig.logs / "a.log").unlink()
    rig.write("a.log.1.gz", packed[:-3])
    rig.write("z.gz", gzip.compress(b"zero\nnine"))
    rig.collect()
    assert rig.messages() == [b"one", b"two"]
    rig.files["compressed"] = "once"
    rig.collect()
    assert rig.messages() == [b"nine", b"one", b"two", b"zero"]  # the other one is still incomplete
    rig.write("a.log.1.gz", packed[-3:])
    rig.collect()
    rig.collect()
    assert rig.messages() == [b"nine", b"one", b"three", b"two", b"zero"]


def test_a_compressed_file_that_is_empty_at_first(rig):
    """A .gz file found before its first byte was written is read when it is complete."""
    rig.files |= {"path": (str(rig.logs / "*"),), "compressed": "once"}
    rig.write("a.gz", b"")
    assert rig.collect().counts.unread == 0
    rig.write("a.gz", gzip.compress(b"one\n"))
    rig.collect()
    assert rig.messages() == [b"one"]


BANNER = b"# the same words begin each of these files #\n" * 40
assert len(BANNER) > files.SAMPLE_BYTES


@pytest.mark.parametrize("begin", ["start", "end"])
@pytest.mark.parametrize("happens", ["deleted", "replaced", "written anew", "written anew while it runs", "compressed"])
def test_another_file_that_begins_alike(rig, happens, begin):
    """A file with the same first bytes as a collected one, and longer, is read from its start."""
    rig.files |= {"path": (str(rig.logs / "*"),), "compressed": "once", "begin": begin}
    rig.write("a.log", BANNER + b"one\n")
    sink = CatalogSink(rig.open(), "logs", "0", time.sleep)
    made = Collector(rig.settings(), sink, rig.root / "notes.json", int)
    made.step()
    other = BANNER + b"two\nthree\n"
    if happens == "written anew while it runs":
        rig.write("a.log", other, "wb")
        for _ in range(3):
            made.step()
    made._close()
    sink.close()
    if happens == "deleted":
        (rig.logs / "a.log").unlink()
        rig.write("b.log", other)
    elif happens == "replaced":
        rig.write("b.log", other)
        (rig.logs / "b.log").rename(rig.logs / "a.log")
    elif happens == "written anew":
        rig.write("a.log", other, "wb")
    elif happens == "compressed":
        (rig.logs / "a.log").unlink()
        rig.write("a.log.1.gz", gzip.compress(other))
    rig.collect()
    rig.collect()
    banners = [line for line in BANNER.splitlines() for _ in range(2 if begin == "start" else 1)]
    assert Counter(rig.messages()) == Counter([*banners, b"two", b"three", *([b"one"] if begin == "start" else [])])


@pytest.mark.parametrize("running", [True, False])
@pytest.mark.parametrize("lines", [10, 200])
def test_a_file_replaced_by_its_copy(rig, monkeypatch, lines, running):
    """A file that an editor or rsync replaces by a copy of itself continues where it was; nothing is stored twice."""
    monkeypatch.setattr(collector, "LOOK_S", 0.0)
    written = b"".join(b"line %d\n" % number for number in range(lines))
    rig.write("a.log", written)
    made = Collector(rig.settings(), CatalogSink(rig.open(), "logs", "0", time.sleep), rig.root / "notes.json", int)
    made.step()
    if not running:
        made._close()
        made = Collector(rig.settings(), made._sink, rig.root / "notes.json", int)
    (rig.logs / "copy").write_bytes(written)
    (rig.logs / "copy").rename(rig.logs / "a.log")
    made.step()
    rig.write("a.log", b"more\n")
    made.step()
    made._close()
    made._sink.close()
    assert rig.messages() == sorted([*written.splitlines(), b"more"])


PACKED = gzip.compress(b"one\n")


@pytest.mark.parametrize(("data", "why"), [
    (PACKED + bytes(600), None), (PACKED + b"garbage", "the bytes after its compressed data are not gzip"),
    (PACKED[:-8] + bytes(4) + PACKED[-4:], "CRC check failed"), (PACKED[:-3], "ends too early"),
    (gzip.compress(b"x" * 5000) + b"garbage", "the bytes after its compressed data are not gzip"),
], ids=["zeros", "garbage", "checksum", "cut off", "garbage after many bytes"])  # fmt: skip
def test_gzip_files_that_do_not_end_well(rig, caplog, data, why):
    """Zeros after a gzip file are ignored, as gzip(1) does; the report says what else is wrong with one."""
    rig.files |= {"path": (str(rig.logs / "*"),), "compressed": "once"}
    rig.write("a.log.gz", data)
    assert rig.collect().counts.unread == (why is not None)
    assert why is None or why in caplog.text
    assert "not a gzip file" not in caplog.text
    assert rig.messages() == ([b"one"] if why is None else [])


def test_no_gzip_file_though_it_is_called_so(rig, caplog):
    """A .gz file that is not gzip is reported once and collected once it is; other files are collected meanwhile."""
    rig.files |= {"path": (str(rig.logs / "*"),), "compressed": "once"}
    rig.write("a.log.gz", b"plain text\n")
    rig.write("b.log", b"one\n")
    made = rig.collect()
    assert (made.counts.unread, caplog.text.count("is not a gzip file: rename it")) == (1, 1)
    rig.write("a.log.gz", gzip.compress(b"two\n"), "wb")
    rig.collect()
    assert rig.messages() == [b"one", b"two"]


def test_compressed_files_that_begin_alike(rig, monkeypatch):
    """A compressed copy of an existing file waits; one that only begins alike is read, even if it replaces another."""
    monkeypatch.setattr(collector, "TWIN_S", 1e9)
    rig.files |= {"path": (str(rig.logs / "*"),), "compressed": "once"}
    rig.write("a.log", BANNER + b"one\n")
    rig.write("a.1.gz", gzip.compress(BANNER + b"zero\n"))
    rig.collect()
    shutil.copy(rig.logs / "a.log", rig.logs / "copy")
    rig.write("a.2.gz", gzip.compress(BANNER + b"one\n"))
    rig.write("a.3.gz", gzip.compress(BANNER + b"two\n")[:-3])
    rig.collect()
    rig.write("a.1.gz", gzip.compress(BANNER + b"four\n" * 2), "wb")
    rig.write("a.3.gz", gzip.compress(BANNER + b"two\n")[-3:])
    rig.collect()
    rig.collect()
    assert Counter(rig.messages()) == Counter([*BANNER.splitlines() * 4, b"one", b"zero", b"two", b"four", b"four"])


class Failing(CatalogSink):
    """A sink that fails once, before or after storing."""

    when = "before"

    def append(self, events, producer, sequence):
        if self.when == "behind":
            super().append(events, producer, sequence)
        raise OSError("killed")


@pytest.mark.parametrize("when", ["before", "behind"])
@pytest.mark.parametrize("happens", ["nothing", "renamed", "copied and cut", "grown"])
def test_a_kill_loses_and_doubles_nothing(rig, when, happens):
    """If the collector is killed while storing, it builds the batch again from the same bytes, wherever they are."""
    rig.files["path"] = (str(rig.logs / "a*"),)
    rig.files["format"] = "json"
    lines = [f'{{"n": {n}, "text": "{"x" * 100}"}}' for n in range(8)]
    rig.write("a.log", "".join(f"{line}\n" for line in lines[:3]) + lines[3])
    sink = Failing(rig.open(), "logs", "0", time.sleep)
    sink.when = when
    with pytest.raises(OSError, match="killed"):
        rig.collect(sink=sink)
    rest = "\n" + "".join(f"{line}\n" for line in lines[4:6])
    rig.write("a.log", rest)
    if happens == "renamed":
        (rig.logs / "a.log").rename(rig.logs / "a.log.1")
    elif happens == "copied and cut":
        shutil.copy(rig.logs / "a.log", rig.logs / "a.log.1")
        (rig.logs / "a.log").write_bytes(b"")
    elif happens == "grown":
        rig.now_us += 5
    rig.write("a.log", "".join(f"{line}\n" for line in lines[6:]))
    rig.collect()
    rig.collect()
    assert Counter(rig.messages()) == Counter(line.encode() for line in lines)


@pytest.mark.parametrize("killed", [False, True])
@pytest.mark.parametrize("over_http", [False, True])
def test_values_that_the_topic_does_not_take(rig, over_http, killed):
    """Values that a typed column refuses become fields of their records; later lines are collected, all once."""
    rig.files |= {"format": "json", "columns": {"took": "integer", "size": "integer"}}
    lines = ['{"took": 7, "size": 1}', '{"took": 9007199254740993, "size": 2}']
    rig.write("a.log", "".join(f"{line}\n" for line in lines))
    with rig.open() as catalog:
        catalog.write({"a": "1"}, pa.table({"ts": [1], "took": [1.5]}))

    kind = ServerSink if over_http else CatalogSink

    class Dying(kind):
        def append(self, events, producer, sequence):
            super().append(events, producer, sequence)
            raise OSError("killed")

    with served(rig.root / "c") if over_http else contextlib.nullcontext() as server:

        def sink(kind):
            return kind(*((server.url, "logs", "0", None) if server else (rig.open(), "logs", "0")), time.sleep)

        if killed:
            with pytest.raises(OSError, match="killed"):
                rig.collect(sink=sink(Dying))
        rig.collect(sink=sink(kind))
        rig.write("a.log", '{"took": 8, "size": 3}\n')
        rig.collect(sink=sink(kind))
    with rig.open() as catalog:
        found = catalog.query("SELECT WHERE msg PREFIX '{'").to_table().to_pylist()
    shown = [(row["data"].decode(), row["took"], row["size"], dict(row["fields"] or ())) for row in found]
    assert sorted(shown) == [
        ('{"took": 7, "size": 1}', None, 1, {"took": "7"}),
        ('{"took": 8, "size": 3}', 8.0, 3, {}),
        ('{"took": 9007199254740993, "size": 2}', None, 2, {"took": "9007199254740993"}),
    ]


@pytest.mark.parametrize("killed", [False, True])
@pytest.mark.parametrize("over_http", [False, True])
def test_batches_that_are_too_large(rig, over_http, killed):
    """Short lines are much larger as events. A refused batch is sent in parts, each line once."""
    rig.files["tags"] = {"app": "web", "host": "h" * 200}
    lines = [b"%d" % n for n in range(9000)]
    rig.write("a.log", b"\n".join(lines) + b"\n")
    rig.write("b.log", b"another\n")
    kind = ServerSink if over_http else CatalogSink

    class Dying(kind):
        def append(self, events, producer, sequence):
            raise OSError("killed")

    settings = ServerSettings(http=Http(max_append_bytes=1 << 20))
    with served(rig.root / "c", settings) if over_http else contextlib.nullcontext() as server:

        def sink(kind):
            if server:
                return kind(server.url, "logs", "0", None, time.sleep)
            catalog = aggregator.open(rig.root / "c", durability="none", limits={"memory_bytes": 1 << 20})
            return kind(catalog, "logs", "0", time.sleep)

        if killed:
            with pytest.raises(OSError, match="killed"):
                rig.collect(sink=sink(Dying))
        made = rig.collect(sink=sink(kind), once=True)
    assert made.counts.lines == 9001
    assert Counter(rig.messages()) == Counter([*lines, b"another"])


def test_a_line_that_is_too_large(rig):
    """A single line that is too large is an error with the server's limit; the collector does not retry forever."""
    rig.write("a.log", b"x" * 3000 + b"\n" + b"y\n" * 10)
    with (
        served(rig.root / "c", ServerSettings(http=Http(max_append_bytes=2048))) as server,
        pytest.raises(aggregator.AggregatorError, match="413: the body has more than 2,048 bytes"),
    ):
        rig.collect(sink=ServerSink(server.url, "logs", "0", None, time.sleep))


def test_batches_grow_again(rig):
    """A refused batch is halved until its long line is alone; later batches grow to the former size."""
    rig.write("a.log", b"x" * 600 + b"\n" + (b"z" * 99 + b"\n") * 2000)
    sizes = []

    class Narrow(CatalogSink):
        def append(self, events, producer, sequence):
            if len(events) > 1 and events["data"][0].as_py().startswith(b"x"):
                raise TooLargeError("too large")
            sizes.append(len(events))
            return super().append(events, producer, sequence)

    rig.collect(sink=Narrow(rig.open(), "logs", "0", time.sleep), batch_bytes=10_000)
    assert sizes[0] == 1
    assert max(sizes) >= 100
    assert sum(sizes) == 2001


def test_an_end_while_a_batch_waits(rig):
    """A collector that ends while its batch is refused stores it at its next start."""
    rig.write("a.log", "one\n")

    class Full(CatalogSink):
        def append(self, events, producer, sequence):
            raise StoppedError("ended")

    rig.collect(sink=Full(rig.open(), "logs", "0", time.sleep))
    assert rig.messages() == []
    rig.collect()
    assert rig.messages() == [b"one"]


@pytest.mark.parametrize("seed", range(4))
def test_random_life_of_files(tmp_path, monkeypatch, seed):
    """Files are written, rotated both ways, compressed, deleted once collected, amid kills and restarts: every line is
    stored once, also if all files begin alike.
    """
    chance = random.Random(seed)
    rig = Rig(tmp_path, max_line_bytes=4096)
    rig.files |= {"path": (str(rig.logs / "*.log*"),), "compressed": "once"}
    beginning = BANNER if seed % 2 else b""
    written = []

    def collect_all():
        with monkeypatch.context() as patched:
            patched.setattr(collector, "TWIN_S", 0.1)
            patched.setattr(collector, "LOOK_S", 0.0)
            for _ in range(2):
                sink = CatalogSink(rig.open(), "logs", "0", time.sleep)
                Collector(rig.settings(), sink, rig.root / "notes.json", int).run(time.sleep, once=True)
                sink.close()

    for step in range(50):
        name = f"{chance.choice('ab')}.log"
        what = chance.randrange(10)
        path = rig.logs / name
        old = sorted(one for one in rig.logs.iterdir() if one.suffix != ".log")
        if what < 4:
            if not path.exists():
                rig.write(name, beginning)
            for _ in range(chance.randrange(1, 30)):
                line = f"{name} {len(written)} {chance.getrandbits(200):x}"
                written.append(line.encode())
                rig.write(name, f"{line}\n")
        elif what == 4 and path.exists():
            path.rename(rig.logs / f"{name}.{step}")
        elif what == 5 and path.exists() and path.stat().st_size > 100:
            shutil.copy(path, rig.logs / f"{name}.{step}")
            path.write_bytes(chance.choice([b"", beginning]))
        elif what == 6:
            sink = Failing(rig.open(), "logs", "0", time.sleep)
            sink.when = chance.choice(["before", "behind"])
            with contextlib.suppress(OSError):
                rig.collect(sink=sink, batch_bytes=1024)
        elif what == 7 and old and old[0].suffix != ".gz":
            old[0].with_name(f"{old[0].name}.gz").write_bytes(gzip.compress(old[0].read_bytes()))
            old[0].unlink()
        elif what == 8 and old:
            collect_all()
            chance.choice(old).unlink()
        else:
            rig.collect(batch_bytes=1024)
    collect_all()
    begin = set(BANNER.splitlines())
    assert Counter(message for message in rig.messages() if message not in begin) == Counter(written)


def test_begun_at_the_end(rig):
    """With `begin = "end"`, only files that exist at the first start begin after their last line."""
    rig.files["begin"] = "end"
    rig.write("a.log", "one\ntwo")
    rig.collect()
    rig.write("a.log", " still\nthree\n")
    rig.write("b.log", "four\n")
    rig.collect()
    assert rig.messages() == [b"four", b"three"]


def test_into_a_server(rig):
    """Batches sent over HTTP are stored once, however often they are sent; the first creates the topic."""
    rig.write("a.log", "one\ntwo\n")
    with served(rig.root / "c") as server:

        class Again(ServerSink):
            def append(self, events, producer, sequence):
                super().append(events, producer, sequence)
                super().append(events, producer, sequence)

        rig.collect(sink=Again(server.url, "logs", "0", None, time.sleep))
        assert sorted(event.data for event in server.catalog.query("SELECT")) == [b"one", b"two"]
        nowhere = ServerSink(server.url + "/nowhere", "logs", "0", None, time.sleep)
        rig.write("a.log", "three\n")
        with pytest.raises(aggregator.AggregatorError, match="404"):
            rig.collect(sink=nowhere)


def test_once_against_a_server_that_is_away(rig):
    """With `once` and an absent server, the run ends after a while with a reason; the next run stores the rest once."""
    rig.write("a.log", "one\ntwo\n")
    address = f"http://127.0.0.1:{free_port()}"
    passed = [0.0]
    patience = Patience(60.0, lambda: passed[0])

    def sleep(seconds):
        passed[0] += seconds
        assert passed[0] <= 60.0

    with pytest.raises(aggregator.AggregatorError, match=r"cannot be reached.*refused") as told:
        rig.collect(sink=ServerSink(address, "logs", "0", None, sleep, patience), once=True)
    assert address in str(told.value)
    assert passed[0] > 20.0
    with served(rig.root / "c") as server:
        for _ in range(2):
            rig.collect(sink=ServerSink(server.url, "logs", "0", None, time.sleep, patience), once=True)
        assert sorted(event.data for event in server.catalog.query("SELECT")) == [b"one", b"two"]


def test_once_into_a_catalog_without_room(rig):
    """With `once` and a full catalog, the run raises; the next run stores the line once."""
    rows = [{"ts": 1, "msg": random.Random(1).randbytes(50_000).hex()}]
    with aggregator.open(rig.root / "c", durability="none", limits={"disk_bytes": 1 << 20}) as catalog:
        still(catalog)  # sealing would free room
        with contextlib.suppress(aggregator.OverloadedError):
            for _ in range(100):
                catalog.write({"app": "full"}, rows)
        rig.write("a.log", rows[0]["msg"] + "\n")
        sink = CatalogSink(catalog, "logs", "0", lambda _: None, Patience(0.0))
        with pytest.raises(aggregator.OverloadedError):
            rig.collect(sink=sink, once=True)
    rig.collect(once=True)
    assert rig.messages("SELECT FROM {app=full}")[0] == rows[0]["msg"].encode()
    assert len(rig.messages("SELECT")) == len(rig.messages("SELECT FROM {app=full}")) + 1


@pytest.mark.parametrize("address", ["http://", "ftp://x", "http://a..b", "http://h:99999", "http://[x", "http://u@h"])
def test_no_address_of_a_server(address):
    """An address that is not a server's is refused with an example of one."""
    with pytest.raises(aggregator.InvalidRequestError, match="invalid server address"):
        ServerSink(address, "logs", "0", None, time.sleep)


def test_a_server_in_trouble_while_its_topic_is_made(rig):
    """Broken connections and a busy server between the first batch and the creation of its topic are retried."""
    asked = []
    answers = iter([404, None, 404, 503, 404, 201, 200])

    class Server(http.server.BaseHTTPRequestHandler):
        def answer(self):
            self.rfile.read(int(self.headers["Content-Length"]))
            asked.append(self.command)
            status = next(answers)
            self.close_connection = True
            if status is not None:
                self.send_response(status)
                self.send_header("Retry-After", "0")
                self.send_header("Content-Length", "0")
                self.end_headers()

        do_POST = do_PUT = answer  # noqa: N815  # names of the standard library

        def log_message(self, *told):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Server)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    rig.write("a.log", "one\n")
    try:
        made = rig.collect(sink=ServerSink(f"http://127.0.0.1:{server.server_port}", "logs", "0", None, lambda _: None))
    finally:
        server.shutdown()
        server.server_close()
    assert asked == ["POST", "PUT"] * 3 + ["POST"]
    assert made.counts.lines == 1


# ------------------------------------------------------------ lines


def _cut_up(data, cutting, chance):
    """The records of data that arrives in pieces of any size."""
    at, skipping, records = 0, False, []
    while at < len(data):
        some = data[at : at + 2 * cutting.max_bytes + 2 + chance.randrange(100)]
        piece = measure(some, cutting, skipping=skipping, complete=at + len(some) == len(data))
        assert piece.length > 0
        records += split(some[: piece.length], cutting, skipping=skipping).messages.to_pylist()
        at, skipping = at + piece.length, piece.skipping
    return records


def test_pieces_and_records():
    """Records are the same however the data is cut into pieces, also with lines that are too long."""
    chance = random.Random(1)
    for _ in range(300):
        lengths = [chance.choice([0, 3, 20, 99, 100, 101, 130, 450]) for _ in range(chance.randrange(12))]
        lines = [bytes(chance.choices(b"ab \xff", k=length)) for length in lengths]
        data = b"".join(line + chance.choice([b"\n", b"\r\n"]) for line in lines)
        assert _cut_up(data, Cutting(100), chance) == [line[:100] for line in lines if line]


def test_pieces_and_records_of_several_lines():
    """Records of several lines are the same however the data is cut into pieces."""
    chance = random.Random(2)
    for _ in range(300):
        records = [b"\n ".join(b"x" * chance.randrange(1, 8) for _ in range(chance.randrange(1, 9))) for _ in range(9)]
        assert _cut_up(b"\n".join(records) + b"\n", Cutting(100, "^[^ ]"), chance) == records


def test_records_of_several_lines(rig):
    """A record of several lines ends at the next record's first line, or after a while."""
    rig.files["multiline"] = r"^\S"
    rig.write("a.log", "one\n  at x\n  at y\ntwo\n  at z\n")
    rig.collect()
    assert rig.messages() == [b"one\n  at x\n  at y"]
    rig.write("a.log", "  at w\n")
    rig.collect(flush=True)
    assert rig.messages() == [b"one\n  at x\n  at y", b"two\n  at z\n  at w"]


def test_long_lines_are_cut_and_counted(rig):
    """A line above the limit is cut and counted, over any number of batches; other lines are unaffected."""
    rig.files["max_line_bytes"] = 100
    rig.write("a.log", "a" * 5000 + "\nshort\n" + "b" * 101 + "\n" + "c" * 3000)
    counts = rig.collect(batch_bytes=1024).counts
    rig.write("a.log", "c" * 3000 + "\nlast\n")
    again = rig.collect(batch_bytes=1024).counts
    assert rig.messages() == [b"a" * 100, b"b" * 100, b"c" * 100, b"last", b"short"]
    assert counts.cut + again.cut == 3


def test_broken_bytes_and_encodings(rig):
    """Bytes that are not UTF-8 are kept; text in another encoding becomes UTF-8."""
    rig.write("a.log", b"\xff\xfe broken\n")
    rig.collect()
    rig.files["encoding"] = "latin-1"
    rig.write("a.log", "Z\u00fcrich\n".encode("latin-1"))
    rig.collect()
    assert rig.messages() == ["Z\u00fcrich".encode(), b"\xff\xfe broken"]


def test_a_mark_at_the_beginning(rig):
    """A UTF-8 byte order mark, which Windows writes, is not part of the first line."""
    rig.files.update(format="json", fields=("n",))
    rig.write("a.log", b'\xef\xbb\xbf{"n": 1}\r\n{"n": 2}\r\n')
    assert rig.collect().counts.failed == 0
    assert rig.messages() == [b'{"n": 1}', b'{"n": 2}']


@pytest.mark.parametrize(("name", "data", "why"), [
    ("a.log", "one\r\ntwo\r\n".encode("utf-16"), "UTF-16"), ("a.log", "one\r\ntwo\r\n".encode("utf-16-le"), "UTF-16"),
    ("a.log", "one\r\ntwo\r\n".encode("utf-16-be"), "UTF-16"),
    ("a.log", gzip.compress(b"one\n", mtime=0), "compressed"),
    ("b.log", b"\x28\xb5\x2f\xfd\x04\x00\x01\x00\x00", "compressed"),
])  # fmt: skip
def test_files_that_are_no_text(rig, caplog, name, data, why):
    """Files that are not text are reported by name and not stored; other files are collected."""
    rig.write(name, data)
    rig.write("c.log", "line\n")
    assert rig.collect().counts.unread == 1
    assert rig.messages() == [b"line"]
    assert why in caplog.text
    assert name in caplog.text


@pytest.mark.parametrize("hole", [1, 500, 5000])
def test_holes(rig, hole):
    """A hole left by a writer that does not append after truncation does not damage the lines after it."""
    rig.files["max_line_bytes"] = 100
    rig.write("a.log", b"one\n" + bytes(hole) + b"two\nthree\n" + bytes(hole) + b"four\n")
    counts = rig.collect(batch_bytes=1024).counts
    assert rig.messages() == [b"four", b"one", b"three", b"two"]
    assert counts.cut == 0


# ------------------------------------------------------------ formats


def _only(rig, line, **files):
    rig.files.update(files)
    rig.write("a.log", line + "\n")
    rig.collect()
    with rig.open() as catalog:
        (row,) = catalog.query("SELECT").to_table().to_pylist()
    return row | {"fields": dict(row["fields"] or [])}


def test_web_server_lines(rig):
    """Web server lines give the time with its zone, typed status and size, and a client tag; a dash is null."""
    row = _only(rig, LINE, format="combined", tags_from=("client",), tags={"app": "web"})
    assert row["space"] == "{app=web,client=9.8.7.6}"
    assert row["timestamp"].isoformat() == "2015-05-17T08:05:03+00:00"
    assert (row["status"], row["bytes"]) == (404, None)
    assert row["data"] == LINE.encode()
    assert row["fields"] == {
        "user": "ann", "method": "GET", "path": "/a?b=c", "protocol": "HTTP/1.1", "referer": 'http://x/\\"q\\"',
        "agent": "Mozilla (X11)",
    }  # fmt: skip


def test_json_lines(rig):
    """JSON keys become fields, typed columns and tags; a value that is not an object is stored as text and counted."""
    line = '{"at": "2026-03-01T08:00:00.5+01:00", "level": "warn", "took": 7, "k8s": {"pod": "p1"}, "l": [1, null]}'
    row = _only(
        rig, line, format="json", time="at", fields=("level", "l", "none"), columns={"took": "integer"},
        tags_from=("k8s.pod",),
    )  # fmt: skip
    assert (row["space"], row["timestamp"].isoformat()) == ("{k8s.pod=p1}", "2026-03-01T07:00:00.500000+00:00")
    assert (row["took"], row["fields"], row["data"]) == (7, {"level": "warn", "l": "[1,null]"}, line.encode())
    rig.write("a.log", '[1]\n{"took": "\\ud800", "level": "\\ud800"}\n')
    counts = rig.collect().counts
    assert (counts.lines, counts.failed, counts.untimed) == (2, 1, 2)
    with rig.open() as catalog:
        assert catalog.query("SELECT WHERE fields:parse_error = json").to_table()["data"].to_pylist() == [b"[1]"]


def test_negative_zero_in_json_lines(rig):
    """-0 is the integer 0 in a column of integers, and keeps its sign among floats and in fields."""
    columns = {"took": "integer", "load": "number"}
    row = _only(rig, '{"took":-0,"load":-0,"other":-0}', format="json", fields=("other",), columns=columns)
    assert repr((row["took"], row["load"], row["fields"])) == repr((0, -0.0, {"other": "-0"}))


@pytest.mark.parametrize(("text", "value"), [
    ("1772352000000000123", 1772352000000000123), ("9223372036854775807", 2**63 - 1), ("9223372036854775808", None),
    ("-9223372036854775808", -(2**63)), ("-9223372036854775809", None), ("9999999999999999999", None),
    ("10000000000000000000", None), ("null", None),
])  # fmt: skip
def test_integers_of_64_bits(rig, text, value):
    """An integer column takes every integer of 64 bits, such as nanoseconds; larger ones are kept as text."""
    row = _only(rig, f'{{"n":{text}}}', format="json", columns={"n": "integer"})
    assert (row["n"], row["fields"]) == (value, {"n": text} if value is None and text != "null" else {})


def test_signs_and_zeros_of_integers(rig):
    """A plus sign and leading zeros, which only text has, do not change an integer."""
    line = "a=+9223372036854775807 b=0009223372036854775 c=-0000000000000000001"
    row = _only(rig, line, format="logfmt", columns=dict.fromkeys("abc", "integer"))
    assert (row["a"], row["b"], row["c"]) == (2**63 - 1, 9223372036854775, -1)


def test_container_lines(rig):
    """A container log line gives its message, time and stream."""
    row = _only(rig, '{"log":"hello\\n","stream":"stderr","time":"2026-03-01T08:00:00.123456789Z"}')
    assert (row["data"], row["fields"]) == (b"hello", {"stream": "stderr"})
    assert row["timestamp"].isoformat() == "2026-03-01T08:00:00.123456+00:00"


def test_logfmt_lines(rig):
    """Values of logfmt may be plain or quoted."""
    line = 'time=2026-03-01T08:00:00Z level=info msg="a \\"b\\" c" took=1.5 empty='
    row = _only(rig, line, format="logfmt", fields=("level", "msg", "empty"), columns={"took": "number"})
    assert (row["fields"], row["took"]) == ({"level": "info", "msg": 'a "b" c', "empty": ""}, 1.5)
    assert row["timestamp"].isoformat() == "2026-03-01T08:00:00+00:00"


def test_a_line_that_is_not_utf8_among_others(rig):
    """Such a line does not change how others match; its own message keeps its bytes, and a dash."""
    rig.files.update(format="regex", pattern=r"^(?P<who>.) (?P<msg>.*)$")
    rig.write("a.log", b"\xc3\xa9 one\n\xff two \xfe\nz -\n\xc3\xa9\xc3\xa9 no\n")
    rig.collect()
    with rig.open() as catalog:
        rows = catalog.query("SELECT").to_table().to_pylist()
    assert {row["data"]: dict(row["fields"]) for row in rows} == {
        b"one": {"who": "é"}, b"two \xfe": {"who": "\ufffd"}, b"-": {"who": "z"},
        b"\xc3\xa9\xc3\xa9 no": {"parse_error": "regex"},
    }  # fmt: skip


@pytest.mark.parametrize(("line", "took"), [
    ('msg="retry took=99 now" took=5', 5), ('msg="took=99"', None), ('a="\\\\" took=5', 5), ("a= took=5", 5),
    ('size=5" took=5', 5), ('a="x"b took=5', 5), ("  took=5", 5), ("took took=5", 5), ('a="not closed took=5', None),
    ('I0102 x.go:1] "retry took=99 now" took=5', 5), ('msg= "retry took=99 now" took=5', 5), ('"a b"=x took=5', 5),
])  # fmt: skip
def test_a_quoted_value_that_looks_like_another(rig, line, took):
    """A value is never taken from within another value in quotes."""
    assert _only(rig, line, format="logfmt", columns={"took": "number"}).get("took") == took


@pytest.mark.parametrize(("written", "text"), [
    ('"no such file took=5', "no such file took=5"), (r'"a\"b\tc', 'a"b\tc'), ('"cut\\', "cut\\"), ('"', ""),
])  # fmt: skip
def test_a_quoted_value_that_does_not_end(rig, written, text):
    """A value whose quote is not closed, as in a line that was cut off, goes to the end of the line."""
    row = _only(rig, f"level=info msg={written}", format="logfmt", fields=("level", "msg", "took"))
    assert row["fields"] == {"level": "info", "msg": text}


@pytest.mark.parametrize(("written", "text"), [
    (r"a\nb\tc\r", "a\nb\tc\r"), (r"\u00e9\u001b[0m", "é\x1b[0m"), (r"C:\\new\\x", r"C:\new\x"), (r"\q\ux", "qux"),
    (r"\ud800", r"\ud800"), (r"\uD83d\ude00\uDE00", "😀" r"\uDE00"), (r"\\ud83d\ude00", r"\ud83d\ude00"),
])  # fmt: skip
def test_escapes_of_logfmt(rig, written, text):
    """Escapes in quoted values are those of JSON."""
    line = f'level=info msg="{written}"'
    row = _only(rig, line, format="logfmt", fields=("msg",))
    assert (row["data"], row["fields"]["msg"]) == (line.encode(), text)


def test_values_that_are_not_of_the_column(rig):
    """Values that do not fit a typed column are kept as text, and so is a tag that was shortened."""
    row = _only(
        rig, f"odd {'x' * 600} hello", format="regex", columns={"status": "integer"}, tags_from=("who",),
        tags={"more": "y" * 4000}, pattern=r"^(?P<status>\S+) (?P<who>\S+) (?P<msg>.*)$",
    )  # fmt: skip
    assert (row["data"], row["status"], row["fields"]) == (b"hello", None, {"status": "odd", "who": "x" * 600})


def test_numbers_beyond_all_floats(rig):
    """A number that no float holds is kept as text, too, and does not become infinity."""
    row = _only(rig, '{"a": 1e308, "b": -1e400}', format="json", columns={"a": "number", "b": "number"})
    assert (row["a"], row["b"], row["fields"]) == (1e308, None, {"b": "-1e400"})


@pytest.mark.parametrize("whole", [2**53 + 1, -(2**60) - 1, 10**40 + 1])
def test_integers_that_no_float_holds(rig, whole):
    """A column of numbers stores only integers that it holds exactly; others are kept as text."""
    line = f'{{"a": {2**53}, "b": {whole}, "c": 100000000000000000000, "d": 1.5}}'
    row = _only(rig, line, format="json", columns=dict.fromkeys("abcd", "number"))
    assert (row["a"], row["b"], row["c"], row["d"]) == (2**53, None, 10**20, 1.5)
    assert row["fields"] == {"b": str(whole)}


def test_lines_by_a_pattern(rig):
    """A pattern's named groups become fields; a line without a match is a message with a field that says so."""
    row = _only(rig, "2026-03-01 08:00:05 E db: gone", format="regex", tags_from=("unit",),
                pattern=r"^(?P<ts>\S+ \S+) (?P<level>\w) (?P<unit>\w+): (?P<msg>.*)$")  # fmt: skip
    assert (row["space"], row["data"], row["fields"]) == ("{unit=db}", b"gone", {"level": "error", "level_text": "E"})
    assert row["timestamp"].isoformat() == "2026-03-01T08:00:05+00:00"
    rig.write("a.log", b"\xff no match\n")
    assert rig.collect().counts.failed == 1
    assert rig.messages("SELECT WHERE fields:parse_error = regex") == [b"\xff no match"]


def test_times_in_lines():
    """All common time formats are read; text that is not a time, or is relative as in LQL, is null."""
    day = 1_772_352_000_000_000  # 2026-03-01 08:00 UTC
    cases = {
        "01/Mar/2026:09:00:00 +0100": day, "29/Feb/2025:00:00:00 +0000": None, "2026-03-01T08:00:00Z": day,
        "2026-03-01 08:00:00.25+0000": day + 250_000, "1772352000": day, "1772352000.5": day + 500_000,
        "1772352000000": day, "1772352000000000": day, "1772352000000000000": day, "Mar  1 08:00:00": day,
        "2026-02-30T08:00:00Z": None, "day": None, "-5m": None, "": None, None: None,
        "Sun, 01 Mar 2026 08:00:00 GMT": day,
    }  # fmt: skip
    found = to_micros(pa.array(list(cases), pa.string()), day + 1)
    assert dict(zip(cases, found.to_pylist(), strict=True)) == cases


@pytest.mark.parametrize(
    "wrong",
    [
        {"format": "xml"}, {"format": "regex"}, {"pattern": "a"}, {"container": "podman"}, {"zone": "Nowhere"},
        {"time": "ts"}, {"path_tags": "[^/]"}, {"pattern": "(a)", "format": "regex"},
        {"format": "regex", "pattern": "("},
        {"multiline": "["}, {"encoding": "utf-16"}, {"encoding": "none"}, {"columns": {"a": "int7"}}, {"path": ()},
        {"max_line_bytes": 1}, {"begin": "middle"}, {"compressed": "twice"}, {"tags": {"a": "x" * 5000}},
        {"columns": {"data": "text"}}, {"columns": {"space": "text"}}, {"columns": {"timestamp": "integer"}},
        {"columns": {"grouping": "text"}}, {"columns": {"fields": "text"}}, {"columns": {"record_index": "integer"}},
    ],
)  # fmt: skip
def test_settings_that_make_no_sense(wrong):
    """Contradictory settings are refused."""
    with pytest.raises(aggregator.InvalidRequestError):
        Files(**{"path": ("x",), **wrong})


def test_settings_of_a_file(tmp_path):
    """Settings are read from TOML; an unknown one is refused with the file's name."""
    path = tmp_path / "collect.toml"
    path.write_text('into = "data"\n[[files]]\npath = "a*.log"\ncolumns = {n = "integer"}\n[[files]]\npath = ["b"]\n')
    settings = Settings.load(path)
    assert [(one.name, one.path) for one in settings.files] == [("files", ("a*.log",)), ("files1", ("b",))]
    for wrong in ('into = "x"', 'into = 5\n[[files]]\npath = "a"', 'into = "x"\n[[files]]\nfiles = "a"', "a b"):
        path.write_text(wrong)
        with pytest.raises(aggregator.InvalidRequestError):
            Settings.load(path)
    path.write_text('into = "x"\ninterval_s = "1"\n[[files]]\npath = "a"')
    with pytest.raises(aggregator.InvalidRequestError, match="'interval_s' cannot be '1'; give a number"):
        Settings.load(path)


@pytest.mark.skipif(not WEB_LOG.exists(), reason="the web server's log is not here")
def test_a_real_web_log(rig):
    """Queries over ten thousand real lines equal a direct computation over the text."""
    data = gzip.decompress(WEB_LOG.read_bytes())
    rig.files.update(format="combined", tags_from=("client",), tags={"app": "site"})
    rig.write("access.log", data)
    counts = rig.collect().counts
    assert (counts.lines, counts.failed, counts.untimed) == (10_000, 0, 0)
    lines = data.decode("utf-8", "replace").splitlines()
    clients = Counter(line.split()[0] for line in lines)
    status = [int(re.search(r'" (\d{3}) ', line)[1]) for line in lines]
    hours = Counter(re.search(r"\[([^:]+:\d\d)", line)[1] for line in lines)
    with rig.open() as catalog:
        counted = catalog.query("SELECT COUNT GROUP BY client").to_pylist()
        assert {row["client"]: row["count"] for row in counted} == clients
        counted = catalog.query("SELECT COUNT GROUP BY status").to_pylist()
        assert {row["status"]: row["count"] for row in counted} == Counter(status)
        busiest, count = clients.most_common(1)[0]
        assert catalog.query(f'SELECT FROM client = "{busiest}"').count() == count
        assert catalog.query("SELECT WHERE status >= 500 AND msg CONTAINS wp-login").count() == sum(
            code >= 500 and "wp-login" in line for code, line in zip(status, lines, strict=True)
        )
        counted = catalog.query('SELECT COUNT GROUP BY ts EVERY "1h"').to_pylist()
        assert {next(iter(row.values())).strftime("%d/%b/%Y:%H"): row["count"]
                for row in counted} == hours  # fmt: skip
        assert sorted(e.data for e in catalog.query("SELECT")) == sorted(data.splitlines())
    assert (rig.root / "notes.json").stat().st_size < 2000


def test_a_catalog_made_anew(rig, caplog):
    """A new catalog at the same path gets everything: the notes describe another catalog."""
    rig.write("a.log", "one\ntwo\n")
    rig.collect()
    shutil.rmtree(rig.root / "c")
    made = rig.collect()
    assert made.counts.lines == 2
    assert sorted(rig.messages()) == [b"one", b"two"]
    assert "the state file belongs to another catalog" in caplog.text


def test_an_older_copy_of_the_catalog(rig):
    """An older copy of the catalog is refused: it lacks lines noted as stored. Nothing is stored after the gap."""
    rig.write("a.log", "one\n")
    rig.collect()
    shutil.copytree(rig.root / "c", rig.root / "copy")
    rig.write("a.log", "two\n")
    rig.collect()
    shutil.rmtree(rig.root / "c")
    (rig.root / "copy").rename(rig.root / "c")
    rig.write("a.log", "three\n")
    with pytest.raises(
        aggregator.AggregatorError, match=r"records end at 1, but .* to 2 were collected: the catalog is an older copy"
    ):
        rig.collect()
    (rig.root / "notes.json").unlink()
    rig.collect()
    assert sorted(rig.messages()) == [b"one", b"one", b"three", b"two"]


def test_a_server_with_a_catalog_made_anew(rig):
    """The collector recognises a new catalog behind the same kind of server and sends everything."""
    rig.write("a.log", "one\n")
    for name in ("first", "second"):
        with served(rig.root / name) as server:
            made = rig.collect(sink=ServerSink(server.url, "logs", "0", None, time.sleep))
            assert made.counts.lines == 1
            rig.write("a.log", "")
            assert rig.collect(sink=ServerSink(server.url, "logs", "0", None, time.sleep)).counts.lines == 0


def test_a_pattern_that_matches_no_file(rig, caplog):
    """A pattern that matches no file is reported: it is most likely a mistake."""
    made = rig.collect(once=True)
    assert made.counts.unmatched == 1
    assert f"no file matches {rig.logs}/*.log" in caplog.text
