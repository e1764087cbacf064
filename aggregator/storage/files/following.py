"""`following.json`: that a directory follows the catalog of a server, and how far it has come.

As long as the file is there, nobody else writes to the catalog: `promote` deletes it.
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
    """What a follower notes. Positions are of the log, times µs.

    whole: whether the directory is a catalog, as the one at `url` was at some moment. begin: where the log begins that
    belongs to the manifest that is to come. position: what is copied; end: what the server had then; change: of the
    manifest that is there. heard_us: when the server answered last; caught_up_us: when nothing was missing last;
    trouble: what the last try ended with.
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
        """How far behind it is, for people and figures; of a follower that does not run, the seconds go on."""
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


_ALIVE_US = 5_000_000  # a follower that runs hears from its server more often


def read_following(path: Path) -> Following | None:
    """What is noted; None where the directory follows nobody. Raises OSError."""
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        try:
            stored = json.loads(path.read_bytes())
            names = {field.name for field in fields(Following)}
            return Following(**{name: value for name, value in stored.items() if name in names})
        except (ValueError, TypeError, AttributeError):
            return Following("", trouble=f"{path.name} cannot be read")
    return None


def write_following(path: Path, note: Following) -> None:
    """Note it, durably. Raises OSError."""
    with replaced(path) as file:
        file.write(json.dumps(asdict(note)).encode())
