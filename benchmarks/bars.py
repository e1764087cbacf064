"""The requirements for the figures at 1 M events: bars, and aims beyond them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from benchmarks import engines

Figures = Mapping[str, Mapping[str, Mapping[str, Any]]]
"""Work -> contender -> the figure as JSON."""

SUBJECT = "esformat"
MEMORY_NOISE_MIB = 16  # allocators and thread stacks differ by this between runs on the same file


@dataclass(frozen=True)
class Bar:
    """A requirement for one work."""

    work: str
    demand: str
    value: Callable[[Figures], float]  # raises KeyError if a figure is missing
    limit: float
    at_least: bool = False
    aim: bool = False  # a goal; missing it is not a failure

    def judge(self, figures: Figures) -> tuple[float, bool] | None:
        """The value and whether it is good enough; None if a figure it needs is missing."""
        try:
            value = self.value(figures)
        except KeyError:
            return None
        return value, value >= self.limit if self.at_least else value <= self.limit


def _median(work: str, name: str = SUBJECT) -> Callable[[Figures], float]:
    return lambda figures: figures[work][name]["median"]


def _detail(work: str, key: str) -> Callable[[Figures], float]:
    return lambda figures: figures[work][SUBJECT]["detail"][key]


def _ratio(work: str, peer: str) -> Callable[[Figures], float]:
    """The subject's figure as a multiple of the peer's."""
    return lambda figures: _median(work)(figures) / _median(work, peer)(figures)


def _sql_ratio(work: str, peer: str) -> Callable[[Figures], float]:
    """The same for the subject's `Segment.sql`."""
    return lambda figures: _detail(work, engines.BY_SQL)(figures) / _median(work, peer)(figures)


def _memory_growth(figures: Figures) -> float:
    """The large file's peak as a multiple of the small one's, after subtracting noise."""
    figure = figures["memory"][SUBJECT]
    small = figure["detail"]["small file, MiB"]
    return max(0.0, figure["median"] - MEMORY_NOISE_MIB) / small


def _of_memory(figures: Figures) -> float:
    """The rate of the bounded write as a fraction of the unbounded one's."""
    return _median("W2")(figures) / _detail("W2", "in memory, M events/s")(figures)


BARS = (
    Bar("W1", "≥ 1.3 × Parquet's rate", _ratio("W1", "parquet"), 1.3, at_least=True),
    Bar("W1", "≥ 2 × Parquet's rate", _ratio("W1", "parquet"), 2.0, at_least=True, aim=True),
    Bar("W2", "≥ 0.6 × the rate in memory", _of_memory, 0.6, at_least=True),
    Bar("W2", "≤ 512 MiB resident", _detail("W2", "resident, MiB"), 512),
    Bar("size", "≤ 0.70 × Parquet's", _ratio("size", "parquet"), 0.70),
    Bar("size", "≤ 0.60 × Parquet's", _ratio("size", "parquet"), 0.60, aim=True),
    Bar("R1-batch", "≥ 1.5 × Parquet's rate", _ratio("R1-batch", "parquet"), 1.5, at_least=True),
    Bar("R1-batch", "≥ DuckDB's rate", _ratio("R1-batch", "duckdb"), 1.0, at_least=True),
    Bar("R1-batch", "≥ Vortex's rate", _ratio("R1-batch", "vortex"), 1.0, at_least=True, aim=True),
    Bar("R1-untouched", "≥ 5 M events/s", _median("R1-untouched"), 5.0, at_least=True),
    Bar("R1-untouched", "≥ 8 M events/s", _median("R1-untouched"), 8.0, at_least=True, aim=True),
    Bar("R1-fields", "≥ 3 M events/s", _median("R1-fields"), 3.0, at_least=True),
    Bar("R1-fields", "≥ 5 M events/s", _median("R1-fields"), 5.0, at_least=True, aim=True),
    *(
        Bar(work, f"≤ {title}", _ratio(work, peer), 1.0, aim=aim)
        for work in ("R2", "R3", "R4", "R3w")
        for title, peer, aim in (("SQLite's", "sqlite", False), ("LMDB's", "lmdb", True))
    ),
    Bar("R2-uncached", "median ≤ 60 µs", _median("R2-uncached"), 60),
    Bar("R2-uncached", "median ≤ 30 µs", _median("R2-uncached"), 30, aim=True),
    Bar("R5", "≤ 15 ms", _median("R5"), 15),
    Bar("R5", "≤ DuckDB's", _ratio("R5", "duckdb"), 1.0, aim=True),
    Bar("open", "median ≤ 120 µs", _median("open"), 120),
    Bar("open", "≤ LMDB's", _ratio("open", "lmdb"), 1.0, aim=True),
    Bar("Q-full", "≤ 2 × Parquet's", _ratio("Q-full", "parquet"), 2.0),
    Bar("Q-full", "≤ Parquet's", _ratio("Q-full", "parquet"), 1.0, aim=True),
    Bar("Q-full", "by `segment.sql` ≤ 2 × Parquet's", _sql_ratio("Q-full", "parquet"), 2.0),
    Bar("Q-full", "by `segment.sql` ≤ Parquet's", _sql_ratio("Q-full", "parquet"), 1.0, aim=True),
    Bar("Q-point", "median ≤ 1 ms", _median("Q-point"), 1000),
    Bar("Q-point", "≤ Parquet's / 2", _ratio("Q-point", "parquet"), 0.5),
    Bar("Q-index", "≤ Parquet's / 2", _ratio("Q-index", "parquet"), 0.5),
    Bar("S1", "≤ 3 reads (median)", _detail("S1", "reads, median"), 3),
    Bar("S1", "≤ 85 KiB (median)", _median("S1"), 85),
    Bar("S2", "≤ 2 requests", _detail("S2", "requests, most"), 2),
    Bar("S2", "1 request", _detail("S2", "requests, most"), 1, aim=True),
    Bar("memory", f"5 × the events: ≤ 1 × + {MEMORY_NOISE_MIB} MiB", _memory_growth, 1.0),
)
