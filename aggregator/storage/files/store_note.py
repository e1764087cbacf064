"""`store.json`: what a directory knows of its catalog in a store, so that the next opening can tell whose it is.

It is no part of the manifest, which is copied to the store: two copies of a directory must be able to tell apart.
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
    """What is noted.

    runs: of the lease, the one that was held, and the one that was wanted last: nobody else's. sequence: every object
    of the log before it is known here. following: the directory is a copy that is brought up to date from the store.
    announced: the first object of the log, and its position, whose frames the last manifest in the store needs.
    """

    address: str
    runs: tuple[str, ...] = ()
    sequence: int = 1
    needs: tuple[int, int] = (1, 0)
    following: bool = False

    def but(self, **changes: Any) -> StoreNote:
        """The same with other values."""
        return replace(self, **changes)


def read_note(layout: Layout) -> StoreNote | None:
    """The note of a directory; None where it has none. Raises CorruptManifestError, OSError."""
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
    """Raises InvalidRequestError for a directory that only follows a catalog in a store, or is being restored."""
    note = read_note(layout)
    if note is not None and note.following:
        raise InvalidRequestError(
            f"the directory follows the catalog in {note.address}, and is none of its own",
            path=str(layout.root),
            hint="`aggregator serve --standby` takes over there; `aggregator restore` goes on with what it began",
        )


def write_note(layout: Layout, note: StoreNote) -> None:
    """Keep it, durably. Raises OSError."""
    with replaced(layout.root / NAME) as file:
        file.write(json.dumps(asdict(note)).encode())


def note_path(layout: Layout) -> Path:
    """Where it lies."""
    return layout.root / NAME
