"""Pipes and their progress as the tables of SHOW PIPES and DESCRIBE PIPE."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from aggregator.engine.backend import Backend
from aggregator.engine.writer import now_us
from aggregator.errors import CorruptManifestError
from aggregator.lql.parse.tree import ShowPipes
from aggregator.model import Problem
from aggregator.storage.manifest import PipeRows
from aggregator.streams.pipes.pipe import Pipe, pipe_stream
from aggregator.streams.pipes.progress import stored_progress
from aggregator.streams.pipes.round import visible_ends
from aggregator.streams.pipes.worker import Pipes, no_pipe
from aggregator.streams.reading.record_ranges import distance

_ACTION = "its records wait until it can copy them; DESCRIBE PIPE shows the error, DELETE PIPE removes it"
_STAMP = pa.timestamp("us", "UTC")
_SHOWN = pa.schema(
    [
        ("name", pa.string()),
        ("from", pa.string()),
        ("where", pa.string()),
        ("copied", pa.int64()),
        ("lag", pa.int64()),
        ("gone", pa.int64()),
        ("state", pa.string()),
    ]
)
_DESCRIBED = pa.schema(
    [
        *_SHOWN,
        ("destination", pa.string()),
        ("backfill", pa.bool_()),
        ("created", _STAMP),
        ("caught_up", _STAMP),
        ("problem", pa.string()),
    ]
)


def pipe_facts(backend: Backend, pipes: Pipes | None) -> list[dict[str, Any]]:
    """Everything about each pipe, by name; times in µs. pipes: the running ones, None in a process that only reads.

    copied: records since it was created. lag: at most this many records are not examined yet. gone: records that were
    removed before it examined them. state: "level" (caught up), "behind", "waiting" for space, or "failing" with a
    problem. caught_up: when it last had examined everything, as far as this process knows.
    """
    if pipes is not None:
        return [_of(pipe, pipes.lag(pipe), pipes.level_us(pipe)) for pipe in pipes.all()]
    return [_of(pipe, lag) for pipe, lag in _stored(backend)]


def pipe_problems(backend: Backend, pipes: Pipes | None) -> list[Problem]:
    """One problem for each pipe that is currently failing."""
    known = pipes.all() if pipes is not None else [pipe for pipe, _ in _stored(backend)]
    return [
        Problem(f"pipe {pipe.info.name}", pipe.problem.partition("\n")[0], _ACTION, pipe.failing_us)
        for pipe in known
        if pipe.problem is not None
    ]


def _stored(backend: Backend) -> Iterator[tuple[Pipe, int]]:
    """The pipes and their lags, as seen by a process that only reads."""
    backend.refresh()
    for info in PipeRows(backend.manifest).all():
        try:
            progress = stored_progress(backend, info)
        except CorruptManifestError as error:
            yield Pipe.lost(info, str(error), now_us()), 0
            continue
        lag = distance(backend.state, progress.standing.begin, visible_ends(backend))
        yield Pipe(info, progress, progress, state="behind" if lag else "level"), lag


def _of(pipe: Pipe, lag: int, level_us: int | None = None) -> dict[str, Any]:
    info = pipe.info
    return {
        "name": info.name, "from": info.source, "where": info.condition, "copied": pipe.progress.copied, "lag": lag,
        "gone": pipe.progress.gone, "state": pipe.state, "destination": pipe_stream(info.name),
        "backfill": info.backfill, "created": info.created_us, "caught_up": level_us, "problem": pipe.problem,
    }  # fmt: skip


def shown_pipes(backend: Backend, pipes: Pipes | None, statement: ShowPipes) -> pa.Table:
    """The result of SHOW PIPES."""
    facts = pipe_facts(backend, pipes)[statement.offset or 0 :]
    if statement.limit is not None and statement.limit >= 0:
        facts = facts[: statement.limit]
    return pa.Table.from_pylist(facts, _SHOWN)


def described_pipe(backend: Backend, pipes: Pipes | None, name: str) -> pa.Table:
    """The result of DESCRIBE PIPE. Raises InvalidRequestError if no pipe has that name."""
    found = [facts for facts in pipe_facts(backend, pipes) if facts["name"] == name]
    if not found:
        raise no_pipe(name)
    return pa.Table.from_pylist(found, _DESCRIBED)
