"""Pages read little more than they return."""

from __future__ import annotations

import cProfile
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from effort import share_of

from aggregator.server.plateau.definitions import Definitions
from aggregator.server.plateau.paging import Pager, Wanted
from tests.aggregator.server.plateau.test_plateau import send

SCHEMAS = 150


def calls(work: Callable[[], Any]) -> int:
    """Count the function calls of some work."""
    profile = cProfile.Profile()
    profile.runcall(work)
    return sum(entry.callcount for entry in profile.getstats())


@pytest.mark.parametrize("descending", share_of([False, True], 2))
def test_a_page_ends_its_reading_with_its_schema(server, web, descending):
    """Records after a schema change cost nothing, however many records are requested."""
    for number in range(SCHEMAS):
        table = pa.table({"time": [number, number], f"c{number}": [1, 2]})
        send(web, table, "many", "p")
    topic, pager = server.catalog.topic("many"), Pager(Definitions(server.catalog))
    begin = SCHEMAS  # in the middle

    def page(size: int) -> Any:
        return pager.page(topic, {"p": begin}, Wanted(size, 1 << 20, descending=descending))

    assert (page(1000).status, page(1000).records.column_names[0], page(1000).records.num_rows) == (
        "SchemaChange", "time", 2,
    )  # fmt: skip
    assert page(1000).next == {"p": begin - 2 if descending else begin + 2}
    assert calls(lambda: page(1000)) < 1.2 * calls(lambda: page(3))
