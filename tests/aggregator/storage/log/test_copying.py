"""A copied log contains whole frames of the original only, however the data is cut or damaged."""

from __future__ import annotations

import pytest

import aggregator
from aggregator.errors import CorruptLogError, InvalidRequestError
from aggregator.storage.log.copying import LogCopy, check_shared, log_range
from aggregator.storage.log.file import Marks, list_files


@pytest.fixture
def log(tmp_path):
    """The directory of a log with three batches in two files."""
    with aggregator.open(tmp_path / "data") as catalog:
        topic = catalog.create_topic("t")
        for time in (1, 2):
            topic.append([{"space": "a", "timestamp": time}])
        catalog._backend.log.roll()
        topic.append([{"space": "a", "timestamp": 3}])
    return tmp_path / "data" / "log"


def held(piece):
    return piece.path.read_bytes()[piece.position - piece.file :][: piece.length]


def copied(log, copy):
    """Copy everything. Returns the arguments of each `LogCopy.add`."""
    added = []
    while True:
        piece = log_range(log, copy.position, 1 << 20)
        if not piece.length:
            return added
        added.append((piece.file, piece.position, held(piece)))
        assert copy.add(*added[-1]) == 0


def test_a_copy_has_the_files_of_the_log(log, tmp_path):
    """The copy has the log's files byte for byte and continues after closing."""
    (tmp_path / "copy").mkdir()
    copy = LogCopy(tmp_path / "copy")
    copied(log, copy)
    assert copy.position == Marks.read(log).position
    copy.acknowledge(7)
    assert Marks.read(tmp_path / "copy") == Marks(copy.position, 7)
    last = copy.last
    copy.close()
    again = LogCopy(tmp_path / "copy")
    assert (again.position, again.last) == (Marks.read(log).position, last)
    check_shared(log, *again.last)
    with pytest.raises(InvalidRequestError, match="another history"):
        check_shared(log, again.last[0], again.last[1] ^ 1)
    for behind in (copy.position + 1, 2**63 - 1):
        with pytest.raises(InvalidRequestError, match=f"the log ends before position {behind}"):
            log_range(log, behind, 1)
        with pytest.raises(InvalidRequestError, match="another history"):
            check_shared(log, behind, 0)
    again.close()
    for (start, mine), (its, theirs) in zip(list_files(tmp_path / "copy"), list_files(log), strict=True):
        assert (start, mine.read_bytes()) == (its, theirs.read_bytes())


def test_bytes_cut_anywhere_are_added_up_to_the_last_whole_frame(log, tmp_path):
    """Data cut anywhere is added up to the last whole frame, and the rest is requested."""
    piece = log_range(log, None, 1 << 20)
    data = held(piece)
    for cut in range(1, len(data), 7):
        folder = tmp_path / f"copy-{cut}"
        folder.mkdir()
        copy = LogCopy(folder)
        lacking = copy.add(piece.file, piece.position, data[:cut])
        position = copy.position or 0
        assert lacking > 0 or position == piece.file + cut
        assert position <= piece.file + cut
        rest = data[position - piece.file :]
        assert copy.add(piece.file, position, rest) == 0
        copy.close()
        assert list_files(folder)[0][1].read_bytes() == data


def test_flipped_bytes_are_not_kept(log, tmp_path):
    """Data with a flipped byte is not kept, except in padding and meaningless header bytes."""
    piece = log_range(log, None, 1 << 20)
    data = held(piece)
    for place in range(0, len(data), 11):
        folder = tmp_path / f"copy-{place}"
        folder.mkdir()
        copy = LogCopy(folder)
        flipped = bytearray(data)
        flipped[place] ^= 0x40
        try:
            copy.add(piece.file, piece.position, bytes(flipped))
            kept = list_files(folder)[0][1].read_bytes()
        except CorruptLogError:
            kept = b""
        copy.close()
        assert len(kept) <= place or (data[place] == 0 and kept[: len(data)] == bytes(flipped[: len(kept)]))


def test_what_a_crash_left_behind_the_last_frame_is_written_over(log, tmp_path):
    """Bytes that a crash left after the last frame are overwritten, also an incomplete file header."""
    (tmp_path / "copy").mkdir()
    copy = LogCopy(tmp_path / "copy")
    first = log_range(log, None, 1 << 20)
    copy.add(first.file, first.position, held(first))
    position = copy.position
    copy.close()
    with (tmp_path / "copy" / first.path.name).open("ab") as file:
        file.write(b"LFRM" + b"x" * 50)
    (tmp_path / "copy" / f"{position:016x}.log").write_bytes(b"\x89ES")
    again = LogCopy(tmp_path / "copy")
    assert again.position == position
    copied(log, again)
    assert again.position == Marks.read(log).position
    again.close()


def test_bytes_that_do_not_follow_are_refused(log, tmp_path):
    """Data that does not follow is refused; a copy has gaps only where the log has them."""
    (tmp_path / "copy").mkdir()
    copy = LogCopy(tmp_path / "copy")
    first = log_range(log, None, 1 << 20)
    with pytest.raises(CorruptLogError, match="do not follow"):
        copy.add(first.file, first.position + 32, held(first)[32:])
    assert log_range(log, 0, 1 << 20).lost is False
    list_files(log)[0][1].unlink()
    assert log_range(log, 0, 1 << 20).lost
    copy.close()
