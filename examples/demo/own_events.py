"""Read events from the user's own file, with the same conversion as `esdb write`."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import esformat
from esformat.convert import InputOptions, Load, Plan, Roles
from examples.demo.event_set import EventSet

_COMPRESSED = (".gz", ".bz2", ".zst")


def read_own_events(path: Path, roles: Roles, options: InputOptions) -> EventSet:
    """Read all events of the file at `path` into memory. Raises the errors of `Load`."""
    with TemporaryDirectory(prefix="esdb-demo-") as scratch:
        converted = Path(scratch, "converted.esdb")

        def create(_: Plan) -> esformat.Writer:
            return esformat.create(converted, indexes=roles.indexes, overwrite=True)

        with Load([str(path)], roles, options) as load:
            load.write(create)
        with esformat.open(converted) as segment:
            table = segment.scan().to_table()
    return EventSet(_stem(path), f"the rows of {path.name}", table, roles.indexes)


def _stem(path: Path) -> str:
    return Path(path.stem).stem if path.suffix in _COMPRESSED else path.stem
