"""The clock for computing ages: the machine's clock, unless it jumped ahead.

A clock set too far ahead would suddenly make everything look old. Such a clock is doubted, and ages are then counted
from when the catalog was last open. The clock is believed again

- after it advanced evenly for a day and more of the incoming events agreed with it than with the believed time, or
- after it advanced evenly for a week in which no events agreed with either, or
- when a user confirms it.

The module does no I/O: the caller passes all times in.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from typing import Any

_HOUR_US = 3_600_000_000
_DAY_US = 24 * _HOUR_US
MAX_LEAP_US = 365 * _DAY_US
"""When a catalog is opened, a clock is doubted if it is more than this ahead of when the catalog was last open. So a
jump of the clock makes nothing more than a year older.
"""
MAX_DRIFT_US = 90 * 60_000_000
"""While the catalog is open, a clock is doubted if it is more than this ahead of the elapsed time. Not a whole number
of hours: clocks are typically wrong by whole hours, and such a clock would be doubted at one check and believed at the
next.
"""
NEAR_US = _DAY_US
"""An event agrees with a clock if its timestamp differs from it by at most this."""
WITNESSED_US, ALONE_US = _DAY_US, 7 * _DAY_US
"""How long a doubted clock must advance evenly: with events that agree with it, and without any."""
UNSET_US = 1_577_836_800_000_000
"""A clock that shows a time before 2020 was never set."""


@dataclass(frozen=True, slots=True)
class Doubt:
    """A clock that is not believed.

    ahead_us: how far it is ahead of the believed time. wall_us: what it showed last. agreed_us: for how long it has
    advanced evenly. near, far: number of event times that agreed with it, or with the believed time.
    """

    ahead_us: int
    wall_us: int
    agreed_us: int = 0
    near: int = 0
    far: int = 0

    @property
    def is_over(self) -> bool:
        """Whether it has advanced evenly for long enough, and the events, if there were any, agree with it."""
        if self.near or self.far:
            return self.near > self.far and self.agreed_us >= WITNESSED_US
        return self.agreed_us >= ALONE_US


class AgeClock:
    """Decides whether to believe a clock. Not thread-safe.

    wall_us: what the machine's clock shows. steady_us: a monotonic clock with any start.
    """

    def __init__(self, wall_us: int, steady_us: int, stored: str | None = None) -> None:
        """stored: the result of `encode` when the catalog was last open."""
        seen_us, doubt = _decode(stored)
        self._seen_us = seen_us  # the latest believed time; None: none yet
        self._doubt: Doubt | None = None
        self._start(wall_us, steady_us)
        if seen_us is not None and wall_us - seen_us > MAX_LEAP_US:
            self._start(seen_us, steady_us)
            self._doubt = Doubt(wall_us - seen_us, wall_us)
            if doubt is not None and 0 <= (closed_us := wall_us - doubt.wall_us) <= MAX_LEAP_US:
                agreed_us = doubt.agreed_us + min(closed_us, _DAY_US)
                self._doubt = replace(doubt, ahead_us=wall_us - seen_us, wall_us=wall_us, agreed_us=agreed_us)

    def _start(self, now_us: int, steady_us: int) -> None:
        self._base_us, self._base_steady_us = now_us, steady_us
        self._last_steady_us = steady_us
        self._is_behind = now_us < (UNSET_US if self._seen_us is None else self._seen_us - NEAR_US)

    @property
    def doubt(self) -> Doubt | None:
        """Why the clock is not believed; None if it is."""
        return self._doubt

    def now(self, wall_us: int, steady_us: int) -> int:
        """The time for computing ages. A clock that went back is believed: it makes things younger."""
        believed_us = self._base_us + steady_us - self._base_steady_us
        if wall_us <= believed_us + MAX_DRIFT_US:
            self._doubt = None
        elif self._is_behind and (self._seen_us is None or wall_us - self._seen_us <= MAX_LEAP_US):
            self._start(wall_us, steady_us)  # it was corrected
            self._doubt = None
        else:
            self._observe(wall_us, steady_us, wall_us - believed_us)
            return believed_us
        self._seen_us = wall_us if self._seen_us is None and wall_us >= UNSET_US else self._seen_us
        if self._seen_us is not None:
            self._seen_us = max(self._seen_us, wall_us)
        return wall_us

    def _observe(self, wall_us: int, steady_us: int, ahead_us: int) -> None:
        passed_us, self._last_steady_us = steady_us - self._last_steady_us, steady_us
        if self._doubt is None or abs(ahead_us - self._doubt.ahead_us) > MAX_DRIFT_US:
            self._doubt = Doubt(ahead_us, wall_us)
        else:
            self._doubt = replace(self._doubt, wall_us=wall_us, agreed_us=self._doubt.agreed_us + passed_us)

    def hear(self, wall_us: int, steady_us: int, event_times: Iterable[int], file_us: int) -> None:
        """Reassess a doubted clock. event_times: of newly arrived events. file_us: the time that the file system
        recorded for a file written just now.
        """
        believed_us = self.now(wall_us, steady_us)
        doubt = self._doubt
        if doubt is None:
            return
        if abs(file_us - wall_us) > MAX_DRIFT_US:  # the files are on another machine, whose clock is trusted more
            self._doubt = Doubt(doubt.ahead_us, wall_us)
            return
        times = list(event_times)
        near = sum(abs(time - wall_us) <= NEAR_US for time in times)
        far = sum(abs(time - believed_us) <= NEAR_US for time in times)
        doubt = self._doubt = replace(doubt, near=doubt.near + near, far=doubt.far + far)
        if doubt.is_over:
            self.believe(wall_us, steady_us)
        elif doubt.far >= doubt.near and doubt.far and doubt.agreed_us >= WITNESSED_US:
            self._doubt = Doubt(doubt.ahead_us, wall_us)  # events contradict it: start another day

    def believe(self, wall_us: int, steady_us: int) -> None:
        """Compute ages by the clock from now on, whatever it shows."""
        self._seen_us = wall_us
        self._start(wall_us, steady_us)
        self._doubt = None

    def encode(self) -> str:
        """Encode the state as text, to store while the catalog is closed."""
        return json.dumps({"seen_us": self._seen_us, "doubt": None if self._doubt is None else asdict(self._doubt)})


def stored_clock(seen_us: int) -> str:
    """The encoded state of a catalog of which only the time of the last write is known."""
    return json.dumps({"seen_us": seen_us, "doubt": None})


def _decode(stored: str | None) -> tuple[int | None, Doubt | None]:
    facts: dict[str, Any] = {} if stored is None else json.loads(stored)
    seen_us, doubt = facts.get("seen_us"), facts.get("doubt")
    if seen_us is not None and seen_us < UNSET_US:
        seen_us = None
    return seen_us, None if doubt is None else Doubt(**doubt)
