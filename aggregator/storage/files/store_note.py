"""`store.json`: what a directory knows of its catalog in a store, so that the next opening knows who owns the catalog.

It is not part of the manifest, which is copied to the store: two copies of a directory must remain distinguishable.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from aggregator.errors import CorruptManifestError, InvalidRequestError
from aggregator.storage.files.layout import Layout, replaced

NAME = "store.json"


@dataclass(frozen=True, slots=True)
class StoreNote:
    """The contents of the note.

    runs: lease runs that belong to this directory only: the last one held, and those requested since. sequence: every
    log object before it is known here. needs: the first log object whose frames the last manifest in the store needs,
    and its position. following: the directory is a copy that is kept up to date from the store.
    """

    address: str
    runs: tuple[str, ...] = ()
    sequence: int = 1
    needs: tuple[int, int] = (1, 0)
    following: bool = False

    def but(self, **changes: Any) -> StoreNote:
        """A copy with other values."""
        return replace(self, **changes)


def read_note(layout: Layout) -> StoreNote | None:
    """The note of a directory; None if there is none. Raises CorruptManifestError, OSError."""
    path = layout.root / NAME
    try:
        facts = json.loads(path.read_bytes())
        facts["runs"], facts["needs"] = tuple(facts["runs"]), tuple(facts["needs"])
        return StoreNote(**facts)
    except FileNotFoundError:
        return None
    except (KeyError, TypeError, ValueError) as error:
        raise CorruptManifestError(
            f"the note of the catalog's store cannot be read: {error!r}",
            path=str(path),
            hint="restore the catalog from its store into another directory",
        ) from None


def refuse_followers(layout: Layout) -> None:
    """Raises InvalidRequestError if the directory only follows a catalog in a store, or is being restored."""
    note = read_note(layout)
    if note is not None and note.following:
        raise InvalidRequestError(
            f"the directory only follows the catalog in {note.address}",
            path=str(layout.root),
            hint="take over with `aggregator serve --standby`, or finish a restore with `aggregator restore`",
        )


def write_note(layout: Layout, note: StoreNote) -> None:
    """Store the note durably. Raises OSError."""
    with replaced(layout.root / NAME) as file:
        file.write(json.dumps(asdict(note)).encode())


def note_path(layout: Layout) -> Path:
    """The path of the note."""
    return layout.root / NAME
