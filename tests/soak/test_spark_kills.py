"""A few of the kills of `python -m tests.soak.spark_kills`."""

from __future__ import annotations

import pytest
from effort import long

from tests.spark.conftest import MISSING


@long
@pytest.mark.xdist_group("java")
@pytest.mark.skipif(MISSING is not None, reason=str(MISSING))
def test_kills(tmp_path):
    """If a driver or worker is killed while it converts or streams, the final output is exact."""
    from tests.soak.spark_kills import run

    # with this seed: a worker 1.2 s after the start, or else a driver after 1.7 s
    found = run(3, 1, rounds=1, folder=tmp_path, jobs=("convert", "stream"))
    assert found.wrong == []
    assert found.kills == 1
    assert found.jobs == {"convert": 1, "stream": 1}
