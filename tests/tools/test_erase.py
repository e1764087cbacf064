"""`erase`: what is left is the segment without the spaces, nothing of them is in it, and the report is right."""

from __future__ import annotations

import tempfile
from pathlib import Path

from event_strategies import Recording, examples, recordings
from hypothesis import given
from hypothesis import strategies as st
from small_pieces import cut_small

from esformat.tools import erase
from tests.tools.segments import check_segment, write_rows


@examples(150)
@given(st.data(), recordings())
def test_erase_is_a_segment_without_the_spaces(data: st.DataObject, recording: Recording) -> None:
    """Any spaces of any file; the original stays as it is."""
    keys = sorted({row.space for row in recording.rows})
    if not keys:
        return
    doomed = data.draw(st.lists(st.sampled_from(keys), min_size=1, unique=True))
    with tempfile.TemporaryDirectory() as directory, cut_small(recording.pieces):
        folder = Path(directory)
        path = write_rows(folder / "all.esdb", recording, recording.rows, recording.codec)
        before = path.read_bytes()
        report = erase(path, folder / "rest.esdb", doomed)
        kept = [row for row in recording.rows if row.space not in doomed]
        check_segment(folder / "rest.esdb", recording, kept)
        assert report.ok
        assert report.events == len(recording.rows) - len(kept)
        assert path.read_bytes() == before
