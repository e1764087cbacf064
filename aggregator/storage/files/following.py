"""`following.json`: says that a directory follows the catalog of a server, and how far it has copied.

As long as the file exists, nobody else writes to the catalog: `promote` deletes it.
"""

from __future__ import annotations

import contextlib
import json
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from aggregator.storage.files.layout import replaced


@dataclass(frozen=True, slots=True)
class Following:
    """A follower's state. Positions are positions in the log; times are in µs.

    whole: whether the directory is a complete catalog, in a past state of the one at `url`. begin: where the log begins
    that belongs to the next manifest. position: the end of the copied log. end: the end of the server's log at that
    time. change: of the local manifest. heard_us: when the server last answered. caught_up_us: when the copy was last
    complete. trouble: the error of the last attempt.
    """

    url: str
    identity: str = ""
    whole: bool = False
    begin: int = 0
    position: int = 0
    end: int = 0
    change: int = 0
    heard_us: int = 0
    caught_up_us: int = 0
    trouble: str = ""

    def lag(self, now_us: int) -> dict[str, Any]:
        """How far the follower is behind, for people and metrics; the seconds keep growing if it does not run."""
        behind = max(0, self.end - self.position)
        current = self.caught_up_us == self.heard_us > now_us - _ALIVE_US
        seconds = 0.0 if current else max(0, now_us - self.caught_up_us) / 1e6 if self.caught_up_us else None
        return {
            "url": self.url,
            "whole": self.whole,
            "position": self.position,
            "lag_bytes": behind,
            "lag_seconds": seconds,
            "trouble": self.trouble or None,
        }


_ALIVE_US = 5_000_000  # a running follower hears from its server more often than this


def read_following(path: Path) -> Following | None:
    """The stored state; None if the directory follows no server. Raises OSError."""
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        try:
            stored = json.loads(path.read_bytes())
            names = {field.name for field in fields(Following)}
            return Following(**{name: value for name, value in stored.items() if name in names})
        except (ValueError, TypeError, AttributeError):
            return Following("", trouble=f"{path.name} cannot be read")
    return None


def write_following(path: Path, note: Following) -> None:
    """Store the state durably. Raises OSError."""
    with replaced(path) as file:
        file.write(json.dumps(asdict(note)).encode())
