"""Settings and helpers that the tests of `convert` share."""

from __future__ import annotations

import bz2
import gzip

import pytest
import zstandard
from hypothesis import HealthCheck, settings

# Others use this machine, too: how long an example takes says nothing about the code.
settings.register_profile("shared machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("shared machine")

COMPRESSIONS = {
    "": lambda data: data,
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".zst": lambda data: zstandard.ZstdCompressor().compress(data),
}


@pytest.fixture(params=list(COMPRESSIONS), ids=lambda extension: extension or "plain")
def compression(request):
    """An extension, and the function that compresses so."""
    return request.param, COMPRESSIONS[request.param]
