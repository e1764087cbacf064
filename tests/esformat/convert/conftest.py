"""Settings and helpers shared by the tests of `convert`."""

from __future__ import annotations

import bz2
import gzip
import lzma

import pytest
import zstandard

COMPRESSIONS = {
    "": lambda data: data,
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
    ".zst": lambda data: zstandard.ZstdCompressor().compress(data),
}


@pytest.fixture(params=list(COMPRESSIONS), ids=lambda extension: extension or "plain")
def compression(request):
    """A file extension and the function that compresses accordingly."""
    return request.param, COMPRESSIONS[request.param]
