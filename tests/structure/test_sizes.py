"""Files of real and generated events keep their size in relation to Parquet's."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from effort import long

from benchmarks import sizes

GIVEN = Path(os.environ.get("ESFORMAT_TEST_DATA", Path(__file__).parents[3] / "shared" / "data"))
MOST = {
    "web log, real": 0.84,
    "reviews as JSON, real": sizes.BAR,
    "system log, made": 0.68,
    "orders as nested JSON, made": 0.64,
}


@long
@pytest.mark.parametrize("name", MOST)
def test_files_stay_small(name):
    """No ratio exceeds the kept one, so that a change of encodings shows its cost before the next `make bench`."""
    try:
        found = sizes.measure(sizes.SETS[name](GIVEN))
    except FileNotFoundError as error:
        pytest.skip(str(error))
    assert found["ours"] <= MOST[name] * found["theirs"]
