"""Whether a manifest change that could not be synced is there after the process was killed.

python -m tests.soak.unsynced_change
"""

from __future__ import annotations

import contextlib
import errno
import os
import tempfile
from pathlib import Path

from aggregator.errors import ManifestFailedError
from aggregator.storage.manifest import Manifest
from tests.soak import tracing
from tests.soak.tracing import Fault, Run

_SYNCS = frozenset(tracing.SYNCS.values())


def came_back(fault: Fault | None, *, settled: bool) -> tuple[bool, Run]:
    """Make a change under a fault and exit as if killed. Returns whether the change is found later, and the run."""
    with tempfile.TemporaryDirectory(prefix="unsynced-") as folder:
        root = Path(folder).resolve()
        path = root / "manifest.sqlite"
        Manifest(path).close()

        def work() -> None:
            manifest = Manifest(path)
            manifest.put("before", "1")
            with contextlib.suppress(ManifestFailedError):
                manifest.put("change", "1")
            if settled:
                manifest.commit_empty()
            os._exit(0)  # as if killed

        run = tracing.run(work, root, fault)
        manifest = Manifest(path)
        found = manifest.get("change") is not None
        manifest.close()
        return found, run


def main() -> None:
    """Print the results: synced, not synced, not synced and settled."""
    synced, run = came_back(None, settled=False)
    last = sum(name in _SYNCS for name, _ in run.calls)
    fault = Fault(last, calls=_SYNCS, error=errno.EIO)
    found = [synced, *(came_back(fault, settled=settled)[0] for settled in (False, True))]
    print("synced, not synced, settled:", *found)


if __name__ == "__main__":
    main()
