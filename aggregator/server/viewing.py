"""`viewing`: the web page over `.esdb` files that are in no catalog: read-only, local, and temporary.

The routes need a catalog, so the events of the files are copied into a temporary one, one topic per file or per
directory of files. It is deleted with the server.
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
"""A fan-in that is never reached: segments are not merged, so each corresponds to one file."""


@contextlib.contextmanager
def viewing(topics: Mapping[str, Sequence[str]], copied: Callable[[str], None] = lambda path: None) -> Iterator[str]:
    """Serve files as topics, and yield the URL of the page, including the token of this run.

    topics: the paths of each topic's files. copied: called with each file that can be viewed. Raises UsageError (files
    of a topic with different columns), InvalidEventError (a column that a catalog reserves), CorruptSegmentError,
    OSError.
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
    """Fill a catalog. Yield the number of each segment and the file that it was copied from."""
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
