"""The state of one pipe."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from math import inf

from aggregator.lql import TagSet
from aggregator.model import PipeInfo
from aggregator.streams.pipes.progress import Progress
from aggregator.streams.pipes.round import PIPE_TAG, Chosen
from aggregator.streams.reading.position import Position


@dataclass(slots=True, eq=False)
class Pipe:
    """The in-memory state of a pipe.

    state: "level" (caught up), "behind", "waiting" (for memory or log space) or "failing".
    """

    info: PipeInfo
    progress: Progress
    kept: Progress
    lock: threading.Lock = field(default_factory=threading.Lock)  # held while a batch is appended, or it is deleted
    deleted: bool = False
    state: str = "behind"
    problem: str | None = None
    failing_us: int = 0
    """When the problem began."""
    not_before: float = 0.0
    back_off_s: float = 0.0
    level_us: int | None = None
    chosen: Chosen | None = None
    resting: bool = False
    """Caught up, and not checked until one of its streams gets records. Has passed what other resting pipes have."""

    @classmethod
    def lost(cls, info: PipeInfo, problem: str, since_us: int) -> Pipe:
        """A pipe whose progress is unknown: it copies nothing more."""
        nothing = Progress(Position())
        return cls(info, nothing, nothing, state="failing", problem=problem, failing_us=since_us, not_before=inf)

    @property
    def space(self) -> str:
        """The stream that the pipe writes to."""
        return pipe_stream(self.info.name)


def pipe_stream(name: str) -> str:
    """The stream that the pipe of that name writes to."""
    return str(TagSet.of({PIPE_TAG: name}))
