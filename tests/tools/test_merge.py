"""`merge` of any files is the file of all their events; blocks that stand alone are the same bytes as before."""

from __future__ import annotations

import tempfile
from pathlib import Path

from event_strategies import Recording, examples, recordings
from hypothesis import given
from hypothesis import strategies as st
from small_pieces import cut_small

from esformat.tools import merge
from tests.tools.segments import CODECS, check_segment, dealt, write_rows


@examples(150)
@given(st.data(), recordings(), st.integers(1, 4))
def test_merge_is_a_segment_of_all_events(data: st.DataObject, recording: Recording, parts: int) -> None:
    """Whatever is dealt to however many files, and however they are cut into blocks."""
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
