"""`Search`: the log files that globs match, without the files of catalogs and of the collector itself."""

from __future__ import annotations

import glob
import logging
import os
from collections.abc import Container, Iterator
from dataclasses import replace
from pathlib import Path

from aggregator.collect.events import Counts
from aggregator.collect.files import Found, Key, OpenFiles, is_compressed
from aggregator.collect.globs import paths_of, real_paths
from aggregator.collect.progress import ProgressFile
from aggregator.collect.settings import Files
from aggregator.storage.files.modes import is_of_a_catalog

_LOG = logging.getLogger(__name__)


class Search:
    """Finds the files of a collector. Warns of those that cannot be collected, and counts them."""

    def __init__(self, open_files: OpenFiles, progress_file: ProgressFile, counts: Counts) -> None:
        self._open_files, self._progress_file, self._counts = open_files, progress_file, counts
        self._unread: set[str] = set()  # paths with a warning

    def find(self, files: Files, searched: Container[str], *, first: bool) -> dict[Key, Found]:
        """The readable files that the globs match, by key.

        searched: patterns of earlier searches; files that others match are new. first: warn of patterns that match
        nothing, and of files that are skipped.
        """
        found: dict[Key, Found] = {}
        for path, pattern in self._paths(files, warns=first):
            one = self._open_files.find(path, self._warn_unreadable)
            if one is not None:
                found[one.key] = replace(one, new=os.path.abspath(pattern) not in searched)  # noqa: PTH100 - symbolic links stay
        return found

    def _warn_unreadable(self, path: str, why: str) -> None:
        """Warn once about a file that cannot be read; each search tries it again."""
        if path not in self._unread:
            self._unread.add(path)
            self._counts.unread += 1
            _LOG.warning("%s is not collected: %s", path, why)

    def _paths(self, files: Files, *, warns: bool) -> Iterator[tuple[str, str]]:
        """Yield the paths that the globs match, each with the first glob that matches it."""
        seen = set()
        for pattern in files.path:
            within = f"{glob.escape(pattern.rstrip('/'))}/**" if Path(pattern).is_dir() else pattern
            matching = sorted(path for path in paths_of(within) if not Path(path).is_dir())
            real = real_paths(path for path in matching if not files.excludes(path))
            own = {path for path, place in real if is_of_a_catalog(place) or self._progress_file.is_own(place)}
            if own and warns:  # files that grow with each batch
                _LOG.warning("%s: skipped files of a catalog or of the collector itself: %d", pattern, len(own))
            found = [path for path in matching if path not in own]
            if not found and warns:
                self._counts.unmatched += 1
                _LOG.warning("no file matches %s", pattern)
            skipped = 0
            for path in found:
                if path in seen or files.excludes(path):
                    continue
                if is_compressed(path) and files.compressed == "skip":
                    skipped += 1
                    continue
                seen.add(path)
                yield path, pattern
            if skipped and warns:
                _LOG.warning("%s: skipped %d compressed files (.gz); --compressed once reads them", pattern, skipped)
