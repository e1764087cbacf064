"""`repair` saves every event outside the damage, counts the lost ones exactly, and invents none."""

from __future__ import annotations

import tempfile
from pathlib import Path

import make_damaged
from effort import examples
from event_strategies import Recording, recordings
from hypothesis import assume, given
from hypothesis import strategies as st
from segments import check_segment, model_of, write_rows
from small_pieces import Pieces, cut_small

import esformat
from esformat.format.layout import BlockKind
from esformat.tools import repair


def rows_of_blocks(data: bytes, recording: Recording) -> list[tuple[make_damaged.Place, list]]:
    """The data blocks of a valid file with their rows."""
    rows = model_of(recording, recording.rows).rows
    found, at = [], 0
    for place in make_damaged.blocks_of(data, BlockKind.DATA):
        count = int.from_bytes(data[place.offset + 12 : place.offset + 16], "little")
        found.append((place, rows[at : at + count]))
        at += count
    assert at == len(rows)
    return found


@examples(50)
@given(st.data(), recordings())
def test_bad_blocks_cost_their_events_alone(data: st.DataObject, recording: Recording) -> None:
    """If data blocks and any other blocks are damaged, exactly the events of the data blocks are lost."""
    with tempfile.TemporaryDirectory() as directory, cut_small(recording.pieces):
        folder = Path(directory)
        path = write_rows(folder / "sound.esdb", recording, recording.rows, recording.codec)
        stored = bytearray(path.read_bytes())
        blocks = rows_of_blocks(bytes(stored), recording)
        contents = [bytes(stored[place.offset : place.end]) for place, _ in blocks]
        assume(len(set(contents)) == len(contents))  # of two identical blocks one replaces the other
        numbers = st.lists(st.integers(0, len(blocks) - 1), max_size=3, unique=True) if blocks else st.just([])
        bad = data.draw(numbers)
        others = make_damaged.blocks_of(bytes(stored), BlockKind.DIRECTORY)
        others += make_damaged.blocks_of(bytes(stored), BlockKind.DIRECTORY_PAGE)
        others += make_damaged.blocks_of(bytes(stored), BlockKind.DIRECTORY_ROOT)
        others += make_damaged.blocks_of(bytes(stored), BlockKind.INDEX_ROOT)
        others += make_damaged.blocks_of(bytes(stored), BlockKind.FILTER)
        others += make_damaged.blocks_of(bytes(stored), BlockKind.FOOTER)
        others += make_damaged.blocks_of(bytes(stored), BlockKind.METADATA)[1:]
        others += make_damaged.blocks_of(bytes(stored), BlockKind.DICTIONARY)[1:]
        chosen = [place for place in others if data.draw(st.integers(0, 3)) == 0]
        kinds = {stored[place.offset + 4] for place in chosen}
        for place in [*(blocks[number][0] for number in bad), *chosen]:
            stored[data.draw(st.integers(place.offset, place.end - 1))] ^= 1 << data.draw(st.integers(0, 7))
        damaged = folder / "damaged.esdb"
        damaged.write_bytes(stored)
        report = repair(damaged, folder / "saved.esdb")
        kept = [row for number, (_, rows) in enumerate(blocks) if number not in bad for row in rows]
        check_segment(folder / "saved.esdb", recording, kept)
        lost = len(recording.rows) - len(kept)
        assert report.saved_events == len(kept)
        assert report.lost_events in (lost, None)
        assert report.lost_at_least <= lost
        way = {BlockKind.DIRECTORY_PAGE, BlockKind.DIRECTORY_ROOT, BlockKind.FOOTER}  # to the leaves
        if not way & kinds and kept:
            assert report.lost_events == lost
        assert damaged.read_bytes() == bytes(stored)


@examples(30)
@given(st.data(), recordings())
def test_cut_off(data: st.DataObject, recording: Recording) -> None:
    """A file that ends early keeps the events of all complete data blocks."""
    with tempfile.TemporaryDirectory() as directory, cut_small(recording.pieces):
        folder = Path(directory)
        path = write_rows(folder / "sound.esdb", recording, recording.rows, recording.codec)
        stored = path.read_bytes()
        first = make_damaged.blocks(stored)[0].end
        dictionaries = make_damaged.blocks_of(stored, BlockKind.DICTIONARY)
        first = max([first, *(place.end for place in dictionaries[: len(dictionaries) // 2])])
        length = data.draw(st.integers(first, len(stored) - 1))
        (folder / "cut.esdb").write_bytes(stored[:length])
        report = repair(folder / "cut.esdb", folder / "saved.esdb")
        kept = [row for place, rows in rows_of_blocks(stored, recording) if place.end <= length for row in rows]
        check_segment(folder / "saved.esdb", recording, kept)
        assert report.lost_events in (None, len(recording.rows) - len(kept))
        assert report.lost_events is None or length > len(stored) - make_damaged.TRAILER_BYTES - 200


def test_equal_events_stay_in_their_order(tmp_path: Path) -> None:
    """Equal events keep their order, even if leaves or blocks are identical byte for byte."""
    payloads = [b"same"] * 30
    payloads[19] = b"other"
    with cut_small(Pieces(block_rows=3, leaf_blocks=1)):
        with esformat.create(tmp_path / "sound.esdb") as writer:
            for payload in payloads:
                writer.add("s", timestamp=0, data=payload)
        stored = (tmp_path / "sound.esdb").read_bytes()
        kept = make_damaged.blocks_of(stored, BlockKind.DATA)[8]
        (tmp_path / "cut.esdb").write_bytes(stored[: kept.end])
        repair(tmp_path / "cut.esdb", tmp_path / "saved.esdb")
    with esformat.open(tmp_path / "saved.esdb") as saved:
        assert [event.data for event in saved.scan()] == payloads[:27]
