"""Indexes of the Go ESDB with NUL in their names could not be converted, and cannot be renamed there."""

from __future__ import annotations

from go_files import go_archive, shown

import esformat
from esformat import customerio
from esformat.convert import Conversion, convert_file


def test_they_are_converted_and_come_back(tmp_path):
    """The column has "_" instead of NUL, queries agree with the file, and the conversion back makes an equal file."""
    old, new, back = (str(tmp_path / name) for name in ("old.esdb", "new.esdb", "back.esdb"))
    events = {b"a": [(b"1", 5, b"", {"n\0m": "x"})], b"b": [(b"2", 6, b"", {"n_m": "y"})]}
    (tmp_path / "old.esdb").write_bytes(go_archive(events))
    convert_file(old, new)
    with esformat.open(new) as segment, customerio.open(old) as archive:
        assert [event.indexes for event in segment.scan()] == [{"n_m_": "x"}, {"n_m": "y"}]
        assert [event.indexes for event in archive["a"].scan()] == [{"n_m_": "x"}]
    convert_file(new, back, Conversion(target_format="go-esdb"))
    with customerio.open(old) as archive, customerio.open(back) as again:
        assert again.layout.by_stored == archive.layout.by_stored
        assert shown(again.scan()) == shown(archive.scan())
