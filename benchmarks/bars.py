"""What the figures are measured against: the bars of the issue and the aims beyond them, at 1 M events."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

Figures = Mapping[str, Mapping[str, Mapping[str, Any]]]
"""Work -> contender -> the figure as JSON has it."""

SUBJECT = "esformat"
MEMORY_NOISE_MIB = 16  # allocators and thread stacks differ by this between runs on the same file


@dataclass(frozen=True)
class Bar:
    """One demand on one work."""

    work: str
    demand: str
    value: Callable[[Figures], float]  # raises KeyError where a figure is missing
    limit: float
    at_least: bool = False
    aim: bool = False  # to fight for, not to fail by

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


def _speedup(work: str, peer: str) -> Callable[[Figures], float]:
    return lambda figures: 1 / _ratio(work, peer)(figures)


def _memory_growth(figures: Figures) -> float:
    """The large file's peak as a multiple of the small one's, noise taken off."""
    figure = figures["memory"][SUBJECT]
    small = figure["detail"]["small file, MiB"]
    return max(0.0, figure["median"] - MEMORY_NOISE_MIB) / small


def _of_memory(figures: Figures) -> float:
    """The rate of the bounded write as a part of the unbounded one's."""
    return _median("W2")(figures) / _detail("W2", "in memory, M events/s")(figures)


BARS = (
    Bar("W1", "≥ 0.8 × Parquet's rate", _ratio("W1", "parquet"), 0.8, at_least=True),
    Bar("W1", "≥ 1 × Parquet's rate", _ratio("W1", "parquet"), 1.0, at_least=True, aim=True),
    Bar("W1", "≥ 3 × SQLite's rate", _ratio("W1", "sqlite"), 3.0, at_least=True),
    Bar("W2", "≥ 0.6 × the rate in memory", _of_memory, 0.6, at_least=True),
    Bar("W2", "≤ 512 MiB resident", _detail("W2", "resident, MiB"), 512),
    Bar("size", "≤ 1.10 × Parquet's", _ratio("size", "parquet"), 1.10),
    Bar("size", "≤ 1.00 × Parquet's", _ratio("size", "parquet"), 1.00, aim=True),
    Bar("R1-batch", "≥ 1.3 × Parquet's rate", _ratio("R1-batch", "parquet"), 1.3, at_least=True),
    Bar("R1-batch", "≥ DuckDB's rate", _ratio("R1-batch", "duckdb"), 1.0, at_least=True, aim=True),
    Bar("R1-object", "≥ 4 M events/s", _median("R1-object"), 4.0, at_least=True),
    Bar("R1-object", "≥ 6 M events/s", _median("R1-object"), 6.0, at_least=True, aim=True),
    Bar("R2", "median ≤ 35 µs", _median("R2"), 35),
    Bar("R2", "median ≤ 16 µs", _median("R2"), 16, aim=True),
    Bar("R2", "≥ 20 × faster than Parquet", _speedup("R2", "parquet"), 20, at_least=True),
    Bar("R3", "median ≤ 35 µs", _median("R3"), 35),
    Bar("R3w", "≤ RocksDB's", _ratio("R3w", "rocksdb"), 1.0),
    Bar("R3w", "≤ SQLite's", _ratio("R3w", "sqlite"), 1.0, aim=True),
    Bar("R4", "median ≤ 35 µs", _median("R4"), 35),
    Bar("R5", "≤ 1.2 × SQLite's", _ratio("R5", "sqlite"), 1.2),
    Bar("R5", "≤ Vortex's", _ratio("R5", "vortex"), 1.0, aim=True),
    Bar("open", "median ≤ 500 µs", _median("open"), 500),
    Bar("Q-point", "median ≤ 3 ms", _median("Q-point"), 3000),
    Bar("S1", "≤ 4 reads (median)", _detail("S1", "reads, median"), 4),
    Bar("S1", "≤ 128 KiB (median)", _median("S1"), 128),
    Bar("S2", "≤ 2 requests", _detail("S2", "requests, most"), 2),
    Bar("memory", f"5 × the events: ≤ 1 × + {MEMORY_NOISE_MIB} MiB", _memory_growth, 1.0),
)
