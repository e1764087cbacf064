"""Paths as bytes, as the system has them, and path-like objects were refused in several ways."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest

import aggregator
import esformat
from esformat import customerio, tools


@dataclass
class Named:
    """An object with a path."""

    path: str | bytes

    def __fspath__(self):
        return self.path


@pytest.mark.parametrize("path_of", [
    str, Path, os.fsencode, Named, lambda path: Named(os.fsencode(path)),
], ids=["text", "Path", "bytes", "PathLike", "PathLike of bytes"])  # fmt: skip
def test_every_form_of_a_path(tmp_path, path_of):
    """Files and catalogs are created, read, checked and copied by every form of path, even below odd names."""
    root = os.fsdecode(os.fsencode(tmp_path) + b"/odd \xff")
    Path(root).mkdir()

    def path(name):
        return path_of(f"{root}/{name}")

    with esformat.create(path("a.esdb"), temp_dir=path("")) as writer:
        writer.add("a", b"x", timestamp=1)
    with esformat.open(path("a.esdb")) as segment:
        assert segment.num_events == 1
    with esformat.open_many(path("a.esdb")) as one, esformat.open_many([path("a.esdb")]) as several:
        assert one.num_events == several.num_events == 1
    assert esformat.verify(path("a.esdb")).ok
    tools.merge([path("a.esdb")], path("b.esdb"))
    with pytest.raises(esformat.UsageError, match="the output is an input"):
        tools.merge([path("a.esdb")], path("a.esdb"))
    with aggregator.open(path("c")) as catalog:
        catalog.create_topic("t").append(pa.table({"space": ["a"], "timestamp": [1]}))
        catalog.topic("t").add_segments([path("b.esdb")])
        catalog.seal()
    Path(root, "c", "manifest.sqlite").unlink()
    aggregator.rebuild_manifest(path("c"))
    with aggregator.open(path("c"), read_only=True) as catalog:
        assert catalog.topic("t").scan().count() == 2
    customerio.write(path("d.esdb"), pa.table({"space": ["a"], "timestamp": [0], "data": [b"x"]}))
    with customerio.open(path("d.esdb")) as file:
        assert file.num_events == 1


def test_names_that_no_file_has(tmp_path):
    """A name that no file can have is one clear usage error."""
    for wrong in (f"{tmp_path}/a\0b", os.fsencode(tmp_path) + b"/a\0b"):
        with pytest.raises(esformat.UsageError, match="NUL"):
            esformat.create(wrong)
        with pytest.raises(aggregator.InvalidRequestError, match="NUL"):
            aggregator.open(wrong)
