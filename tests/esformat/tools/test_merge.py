"""`merge` makes the file of all events; blocks that do not interleave are copied byte for byte."""

from __future__ import annotations

import random
import tempfile
from pathlib import Path

import pytest
import read_esdb
from effort import examples
from event_strategies import Recording, recordings
from hypothesis import given
from hypothesis import strategies as st
from segments import CODECS, check_segment, dealt, phrases, write_rows
from small_pieces import cut_small

import esformat
from esformat.tools import erase, merge


@examples(60)
@given(st.data(), recordings(), st.integers(1, 4))
def test_merge_is_a_segment_of_all_events(data: st.DataObject, recording: Recording, parts: int) -> None:
    """The result has all events, however they are distributed over files and blocks."""
    dealing = data.draw(dealt(recording.rows, parts))
    codecs = data.draw(st.lists(st.sampled_from(CODECS), min_size=parts, max_size=parts))
    with tempfile.TemporaryDirectory() as directory, cut_small(recording.pieces):
        folder = Path(directory)
        paths = [
            write_rows(folder / f"{i}.esdb", recording, rows, codec)
            for i, (rows, codec) in enumerate(zip(dealing, codecs, strict=True))
        ]
        before = [path.read_bytes() for path in paths]
        merge(paths, folder / "merged.esdb")
        check_segment(folder / "merged.esdb", recording, [row for rows in dealing for row in rows])
        assert [path.read_bytes() for path in paths] == before


def _segment(path: Path, spaces: range, *, codec: str = "zstd") -> Path:
    """2,000 events of each space, in a file with its own dictionary."""
    rnd = random.Random(spaces.start)
    with esformat.create(path, indexes=["type"], codec=codec) as writer:
        for space in spaces:
            for i, data in enumerate(phrases(rnd, 2000)):
                writer.add(f"s{space:03}", data, timestamp=i, indexes={"type": f"kind {(i + space) % 5}"})
    return path


def test_blocks_that_stand_alone_are_copied(tmp_path):
    """If key ranges do not interleave, all blocks are copied; every file's dictionary is kept under a number."""
    paths = [_segment(tmp_path / f"{i}.esdb", range(5 * i, 5 * i + 5)) for i in range(3)]
    made = merge(paths, tmp_path / "merged.esdb")
    assert made.encoded_blocks == 0
    with esformat.open(tmp_path / "merged.esdb") as segment:
        assert segment.info()["blocks"]["dictionary"]["count"] == 6  # three, twice
        assert segment.scan_index("type", "kind 3").count() == 3 * 2000
    assert esformat.verify(tmp_path / "merged.esdb").ok
    file = read_esdb.File((tmp_path / "merged.esdb").read_bytes())
    assert file.facts()["events"] == 30_000


def test_only_what_interleaves_is_encoded(tmp_path):
    """If one file's space lies within the range of another, only the blocks around it are encoded."""
    large = _segment(tmp_path / "large.esdb", range(0, 40, 2))
    small = _segment(tmp_path / "small.esdb", range(21, 22))
    made = merge([large, small], tmp_path / "merged.esdb")
    assert made.encoded_blocks <= 4
    assert made.copied_blocks >= 15
    assert esformat.verify(tmp_path / "merged.esdb").ok


def test_properties_are_given(tmp_path):
    """Given properties replace or extend those that the files share; in `erase`, too."""
    for number in range(2):
        properties = {"same": "s", "own": str(number)}
        with esformat.create(tmp_path / f"{number}.esdb", properties=properties) as writer:
            writer.add("a", b"x", timestamp=number)
            writer.add("b", b"x", timestamp=number)
    paths = [tmp_path / "0.esdb", tmp_path / "1.esdb"]
    merge(paths, tmp_path / "m.esdb", properties={"own": "both", "new": "n"})
    with esformat.open(tmp_path / "m.esdb") as merged:
        assert merged.properties == {"same": "s", "own": "both", "new": "n"}
    erase(tmp_path / "m.esdb", tmp_path / "e.esdb", ["a"], properties={"own": "less"})
    with esformat.open(tmp_path / "e.esdb") as left:
        assert left.properties == {"same": "s", "own": "less", "new": "n"}
        assert left.num_events == 2


def test_templates_come_with_the_merge(tmp_path):
    """Blocks that are encoded get templates and are smaller, unless templates are turned off."""
    clicks = [
        (f"s{i % 7}", f'{{"url":"/product/{i * i % 9973}","ms":{i * 31 % 5000}}}'.encode()) for i in range(20_000)
    ]
    paths = [tmp_path / f"{part}.esdb" for part in range(4)]
    for part, path in enumerate(paths):
        with esformat.create(path, templates=False) as writer:
            for i, (space, data) in list(enumerate(clicks))[part::4]:
                writer.add(space, data, timestamp=i)
    plain, made = tmp_path / "plain.esdb", tmp_path / "templates.esdb"
    merge(paths, plain)
    merge(paths, made, templates=True)
    with esformat.open(plain) as whole, esformat.open(made) as coded:
        assert (whole.info()["templates"], coded.info()["templates"]) == (False, True)
        assert coded.size_bytes < 0.7 * whole.size_bytes
        assert coded.scan().to_table() == whole.scan().to_table()
        assert coded.num_events == len(clicks)
    assert esformat.verify(made).ok
    assert read_esdb.File(made.read_bytes()).facts()["events"] == len(clicks)
    with pytest.raises(esformat.UsageError, match="templates"):
        merge([_segment(tmp_path / "lz4.esdb", range(2), codec="lz4")], tmp_path / "m.esdb", templates=True)


def test_what_stands_alone_gets_templates_once(tmp_path):
    """Blocks without templates are encoded once if templates pay, and copied otherwise and in later merges."""
    rnd = random.Random(1)
    clicks = [f'{{"url":"/product/{i * i % 9973}","ms":{i * 31 % 5000}}}'.encode() for i in range(12_000)]
    for name, values in {"clicks": clicks, "noise": [rnd.randbytes(40) for _ in clicks]}.items():
        paths = [tmp_path / f"{name} {part}.esdb" for part in range(3)]
        for part, path in enumerate(paths):
            with esformat.create(path, templates=False) as writer:
                for i, data in enumerate(values[4000 * part : 4000 * (part + 1)]):
                    writer.add(f"s{part}", data, timestamp=i)
        once, again = tmp_path / f"{name} once.esdb", tmp_path / f"{name} again.esdb"
        first = merge(paths, once, templates=True)
        with esformat.create(tmp_path / f"{name} other.esdb") as writer:
            writer.add("other", b"", timestamp=0)
        second = merge([once, tmp_path / f"{name} other.esdb"], again, templates=True)
        assert (first.copied_blocks > 0, second.copied_blocks > 0) == (name == "noise", True)
        with esformat.open(again) as segment:
            found = [event.data for part in range(3) for event in segment.find(f"s{part}").scan()]
        assert found == values
        assert esformat.verify(again).ok

    with esformat.create(tmp_path / "plain.esdb", templates=False) as writer:
        for i, data in enumerate(clicks[:4000]):
            writer.add("z", data, timestamp=i)
    unasked = merge([tmp_path / "plain.esdb", tmp_path / "clicks once.esdb"], tmp_path / "unasked.esdb")
    assert unasked.encoded_blocks == 0  # without the option, templates in another file do not matter
