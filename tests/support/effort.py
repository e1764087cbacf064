"""The extent of a test run: a share with `make test`, everything with `make test-all`, which sets TESTS=all.

ESFORMAT_EXAMPLES=50 makes each property try fifty times as many examples.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from itertools import combinations, product
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, settings

Case = TypeVar("Case")

ALL = os.environ.get("TESTS") == "all"
_SHARE = 1.0 if ALL else 0.05
_AT_LEAST = 3
_TIMES = float(os.environ.get("ESFORMAT_EXAMPLES", "1"))

long = pytest.mark.skipif(not ALL, reason="long, so only with `make test-all`")


def share_of(cases: Iterable[Case], one_in: int) -> list[Case]:
    """All of these cases, or one in `one_in`: a fixed, even selection."""
    return list(cases)[:: 1 if ALL else one_in]


def pairs_of(*axes: Iterable[Any]) -> list[tuple[Any, ...]]:
    """All combinations of these values, or a fixed selection in which any two values of two axes still meet."""
    every = list(product(*axes))
    if ALL:
        return every
    met, kept = set[Any](), list[tuple[Any, ...]]()
    while new := max((set(combinations(enumerate(case), 2)) - met for case in every), key=len):
        kept.append(next(case for case in every if new <= set(combinations(enumerate(case), 2))))
        met |= new
    return kept


def example_count(of_all: int) -> int:
    """The number of examples of this run, given the number for `make test-all`."""
    return max(1, int(max(of_all * _SHARE, min(of_all, _AT_LEAST)) * _TIMES))


def examples(of_all: int, **others: Any) -> settings:
    """Settings of a property with the number of examples for `make test-all`."""
    return settings(max_examples=example_count(of_all), **others)


# The duration of an example says nothing about the code, because other processes use this machine, too. `make test`
# uses the same examples each time, so that its result reflects a change; `make test-all` searches for new ones.
settings.register_profile(
    "tests",
    max_examples=example_count(100),
    deadline=None,
    derandomize=not ALL,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.load_profile("tests")
