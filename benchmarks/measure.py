"""Time measurement: contenders take turns, garbage collection is off, checks are outside the timed region.

Contenders take turns within every repeat (bulk works) or every few questions (point works), starting with a different
one each time, so that other load on the machine affects all equally. A contender that fails or answers wrongly drops
out of that work with the reason as its figure; the others continue.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np

Q = TypeVar("Q")
A = TypeVar("A")

TURN_QUESTIONS = 25  # asked of one contender before the next has its turn


class WrongAnswerError(Exception):
    """A contender's answer is not the expected one."""


@dataclass
class Figure:
    """One contender's result in one work, or the reason why it has none."""

    samples: list[float] = field(default_factory=list)
    missing: str = ""  # why there is no figure: not this contender's work, failed, wrong
    failed: bool = False  # the reason is an error
    detail: dict[str, Any] = field(default_factory=dict)
    layout: str = ""
    points: bool = False  # the samples are single questions: too many to save, but their p99 is meaningful

    @property
    def median(self) -> float:
        """The figure itself, in the work's unit."""
        return float(np.median(self.samples))

    @property
    def p99(self) -> float:
        """The 99th percentile."""
        return float(np.percentile(self.samples, 99))

    def to_json(self) -> dict[str, Any]:
        """The figure as saved in JSON."""
        kept: dict[str, Any] = {"layout": self.layout, "detail": self.detail}
        if self.missing:
            return kept | {"missing": self.missing, "failed": self.failed}
        kept |= {"median": self.median, "count": len(self.samples)}
        return kept | ({"p99": self.p99} if self.points else {"samples": self.samples})


@contextmanager
def undisturbed() -> Iterator[None]:
    """Collect garbage before the block, and not within it.

    Later collections skip the objects that are alive now. Otherwise all objects of the run would pass through the
    processor's caches just before each turn, and its first question, one in 25, would take several times as long.
    """
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@contextmanager
def excused(figure: Figure) -> Iterator[None]:
    """Record an exception of the block as the figure's reason."""
    try:
        yield
    except WrongAnswerError as error:
        figure.missing, figure.failed = f"wrong answer: {error}", True
    except Exception as error:  # noqa: BLE001 - whatever a contender does wrong is a result to report
        figure.missing, figure.failed = f"failed: {type(error).__name__}: {error}", True


def _turns(figures: Mapping[str, Figure], turn: int) -> list[str]:
    """The contenders without a failure, starting with a different one each turn."""
    names = [name for name, figure in figures.items() if not figure.missing]
    start = turn % len(names) if names else 0
    return names[start:] + names[:start]


def measure_bulk(
    tasks: Mapping[str, Callable[[], A]],
    check: Callable[[str, A], None],
    repeats: int,
    prepare: Callable[[str], None] = lambda name: None,
) -> dict[str, Figure]:
    """Run each task `repeats` times; the samples are seconds. `prepare` and `check` are not timed."""
    figures = {name: Figure() for name in tasks}
    for repeat in range(repeats):
        for name in _turns(figures, repeat):
            with excused(figures[name]):
                prepare(name)
                with undisturbed():
                    start = time.perf_counter()
                    answer = tasks[name]()
                    seconds = time.perf_counter() - start
                check(name, answer)
                figures[name].samples.append(seconds)
                del answer
    return figures


def measure_points(
    asked: Mapping[str, Callable[[Q], A]],
    questions: Sequence[Q],
    check: Callable[[str, Q, Any], None],
    settle: Callable[[A], Any] = lambda answer: answer,
) -> dict[str, Figure]:
    """Ask every contender every question once; the samples are microseconds.

    Not timed: `settle`, called right after each question to get the value to check, and `check`, called after the turn.
    """
    figures = {name: Figure(points=True) for name in asked}
    for turn, first in enumerate(range(0, len(questions), TURN_QUESTIONS)):
        chunk = questions[first : first + TURN_QUESTIONS]
        for name in _turns(figures, turn):
            with excused(figures[name]):
                answers = _ask(asked[name], chunk, settle, figures[name].samples)
                for question, answer in zip(chunk, answers, strict=True):
                    check(name, question, answer)
    return figures


def _ask(ask: Callable[[Q], A], questions: Sequence[Q], settle: Callable[[A], Any], samples: list[float]) -> list[Any]:
    answers = []
    clock = time.perf_counter_ns
    with undisturbed():
        for question in questions:
            start = clock()
            answer = ask(question)
            samples.append((clock() - start) / 1000)
            answers.append(settle(answer))
            del answer  # or it would be freed in the next question's time
    return answers
