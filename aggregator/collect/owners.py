"""Decide which group of files owns a file, and detect other collectors that store it as well."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from aggregator.collect.files import Found, Key, Tracked
from aggregator.collect.progress import ProgressFile
from aggregator.collect.settings import Files

_LOG = logging.getLogger(__name__)


class Owners:
    """Assigns each file to one group, so that a line is stored once. Create one per search; they all share `warned`."""

    def __init__(
        self, groups: Sequence[Files], known: Mapping[tuple[str, Key], Tracked], warned: set[tuple[str, str]]
    ) -> None:
        """known: recorded files by group and key. warned: pairs of groups already warned about, which this adds to."""
        self._groups, self._known, self._warned = groups, known, warned
        self._taken: dict[Key, str] = {}

    def own(self, files: Files, found: dict[Key, Found]) -> dict[Key, Found]:
        """Return those of the found files that belong to the group. Call it for the groups in their order."""
        if len(self._groups) == 1:
            return found
        owners = {key: self._taken.setdefault(key, self._noted(one) or files.name) for key, one in found.items()}
        for key, owner in owners.items():
            if owner != files.name and (owner, files.name) not in self._warned:
                self._warned.add((owner, files.name))
                path = found[key].path
                _LOG.warning("%s is already collected by [[files]] %r, so %r ignores it", path, owner, files.name)
        return {key: one for key, one in found.items() if owners[key] == files.name}

    def _noted(self, found: Found) -> str | None:
        """The first group that has the file in its recorded progress and whose globs still match it."""
        for files in self._groups:
            tracked = self._known.get((files.name, found.key))
            if tracked is not None and tracked.head.begins(found.start) and files.may_name(tracked.name):
                return files.name
        return None


def warn_of_other_collectors(fresh: Sequence[Found], progress_file: ProgressFile, catalog: str) -> None:
    """Warn about new files that other collectors store in the same catalog, according to their progress files."""
    for path, progress in progress_file.others() if fresh and catalog else ():
        heads = {tracked.key: tracked.head for tracked in progress.files.values()}
        shared = [one for one in fresh if one.key in heads and heads[one.key].begins(one.start)]
        if progress.catalog == catalog and shared:
            _LOG.warning(
                "another collector also collects %s into this catalog, so its lines are stored twice "
                "(files concerned: %d; state file of the other: %s)",
                shared[0].path,
                len(shared),
                path,
            )
