"""`viewing`: the page over files, without a catalog of theirs: read-only, for this machine alone, as long as it lasts.

The routes ask a catalog, so the files become one: their events are copied into a directory that goes with the server,
a topic for each file, or for the files of a directory.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import aggregator
import esformat
from aggregator import Catalog
from aggregator.policy import Tuning
from aggregator.server.config.settings import Settings
from aggregator.server.control.tokens import FILE, create
from aggregator.server.running import RunningServer

_ANY_PORT = "127.0.0.1:0"
_UNMERGED = 1 << 30
"""Segments of a level stay as they are: each is one of the files."""


@contextlib.contextmanager
def viewing(topics: Mapping[str, Sequence[str]], copied: Callable[[str], None] = lambda path: None) -> Iterator[str]:
    """Serve files by the names of their topics. Gives the address of the page, with the token of this run.

    copied: called with each file that can be looked at. Raises UsageError (files of a topic with different columns),
    InvalidEventError (a column that a catalog keeps for itself), CorruptSegmentError, OSError.
    """
    with tempfile.TemporaryDirectory(prefix="esdb-view-") as folder:
        root = Path(folder) / "files"
        tuning = replace(Tuning(), fan_in=_UNMERGED)
        with aggregator.open(root, durability="none", tuning=tuning) as catalog:
            originals = dict(_copies(catalog, topics, copied))
        token = create(root / FILE, "view", ["read"])
        settings = Settings()
        settings = replace(settings, http=replace(settings.http, bind=_ANY_PORT))
        with aggregator.open(root, read_only=True) as catalog, RunningServer(catalog, settings) as server:
            server.context.originals = originals
            yield f"{server.url}/#token={token}"


def _copies(
    catalog: Catalog, topics: Mapping[str, Sequence[str]], copied: Callable[[str], None]
) -> Iterator[tuple[int, Path]]:
    """Fill a catalog. Gives the number of each segment, and the file that it is a copy of."""
    for name, paths in topics.items():
        with esformat.open(paths[0]) as first:
            topic = catalog.create_topic(name, indexes=first.indexes, keys=first.info()["keys"])
        for path in paths:
            before = {segment["segment"] for segment in topic.segments()}
            topic.add_segments([path])
            for segment in topic.segments():
                if segment["segment"] not in before:
                    yield segment["segment"], Path(path).absolute()
            copied(path)
