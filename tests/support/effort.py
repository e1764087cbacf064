"""How much a run of the tests tries: a share with `make test`, everything with `make test-all`, which sets TESTS=all.

ESFORMAT_EXAMPLES=50 makes each property try fifty times as many examples as it would.
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
    """All of these cases, or one in so many: always the same, from all over them."""
    return list(cases)[:: 1 if ALL else one_in]


def pairs_of(*axes: Iterable[Any]) -> list[tuple[Any, ...]]:
    """All combinations of these values, or some in which any two values of two axes still meet: always the same."""
    every = list(product(*axes))
    if ALL:
        return every
    met, kept = set[Any](), list[tuple[Any, ...]]()
    while new := max((set(combinations(enumerate(case), 2)) - met for case in every), key=len):
        kept.append(next(case for case in every if new <= set(combinations(enumerate(case), 2))))
        met |= new
    return kept


def example_count(of_all: int) -> int:
    """How many examples this run tries where `make test-all` tries so many."""
    return max(1, int(max(of_all * _SHARE, min(of_all, _AT_LEAST)) * _TIMES))


def examples(of_all: int, **others: Any) -> settings:
    """Settings of a property that `make test-all` tries so many examples of."""
    return settings(max_examples=example_count(of_all), **others)


# Others use this machine, too: how long an example takes says nothing about the code. `make test` tries the same
# examples each time, so that it says something about a change; `make test-all` looks for new ones.
settings.register_profile(
    "tests",
    max_examples=example_count(100),
    deadline=None,
    derandomize=not ALL,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.load_profile("tests")
