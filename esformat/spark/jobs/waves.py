"""Processing of many files in Spark tasks, in waves of a few tasks per core, with results after each wave."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import pyarrow as pa
from pyspark.sql import SparkSession

from esformat.errors import EsdbError
from esformat.spark.jobs.summary import reason_of
from esformat.spark.requirement import require_classic

WAVE_TASKS_PER_CORE = 4
"""Enough that tasks of different lengths even out, few enough that results are published soon."""
CHUNK_FILES = 200
"""The number of small files per item: a few tenths of a second of work."""
CHUNK_BYTES = 64 << 20

T = TypeVar("T")
R = TypeVar("R")


def in_waves(
    spark: SparkSession, items: Sequence[T], work: Callable[[T], R]
) -> Iterator[tuple[T, R | None, str | None]]:
    """Yield each item, in order, with the result of `work` in a task, or the reason why it failed.

    Errors of an item's bytes or files cost only that item; Spark retries tasks that die.
    """
    require_classic(spark, "a job")
    size = WAVE_TASKS_PER_CORE * max(1, spark.sparkContext.defaultParallelism)
    for start in range(0, len(items), size):
        wave = list(items[start : start + size])
        outcomes = spark.sparkContext.parallelize(wave, len(wave)).map(_Guarded(work)).collect()
        for item, (result, reason) in zip(wave, outcomes, strict=True):
            yield item, result, reason


def chunked(files: Sequence[T], size_of: Callable[[T], int], *, most: int) -> list[list[T]]:
    """Divide files, in order, into lists of up to `most` bytes and CHUNK_FILES, each with at least one file."""
    chunks: list[list[T]] = []
    size = 0
    for file in files:
        if chunks and len(chunks[-1]) < CHUNK_FILES and size + size_of(file) <= most:
            chunks[-1].append(file)
            size += size_of(file)
        else:
            chunks.append([file])
            size = size_of(file)
    return chunks


class _Guarded:
    """Returns expected failures of some work as results. A class, so that tasks receive its name and not its code."""

    def __init__(self, work: Callable[[Any], Any]) -> None:
        self._work = work

    def __call__(self, item: Any) -> tuple[Any, str | None]:
        try:
            return self._work(item), None
        except (EsdbError, OSError, pa.ArrowException) as error:
            return None, str(error) if isinstance(error, EsdbError) else reason_of(error)
