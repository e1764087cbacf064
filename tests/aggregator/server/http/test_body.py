"""Bodies with a content encoding."""

from __future__ import annotations

import gzip
import tracemalloc

import pyarrow as pa
import pytest

from aggregator.server.bodies.shared.problems import ProblemError
from aggregator.server.http.body import decompress

PLAIN = b"an event\n" * 100_000
STORED = {"gzip": gzip.compress(PLAIN), "zstd": pa.compress(PLAIN, "zstd", asbytes=True)}


@pytest.mark.parametrize("encoding", STORED)
def test_up_to_the_limit(encoding):
    """A body up to the limit is returned whole; one more byte is refused."""
    assert decompress(STORED[encoding], encoding, len(PLAIN)) == pa.py_buffer(PLAIN)
    with pytest.raises(ProblemError) as refusal:
        decompress(STORED[encoding], encoding, len(PLAIN) - 1)
    assert refusal.value.problem.status == 413


@pytest.mark.parametrize(
    "more", [b"\0" * 100_000, STORED["gzip"], b"\0" * 512 + STORED["gzip"] + b"\0"], ids=["zeros", "member", "both"]
)
def test_after_the_end_of_gzip(more):
    """More members are read, and zeros around them are padding, as in files."""
    plain = gzip.decompress(STORED["gzip"] + more)
    assert decompress(STORED["gzip"] + more, "gzip", len(plain)) == pa.py_buffer(plain)


def test_other_bytes_after_the_end_of_gzip():
    """Bytes that are neither a member nor padding are refused."""
    with pytest.raises(ProblemError, match="the body is not gzip"):
        decompress(STORED["gzip"] + b"\0\0x", "gzip", 1 << 30)


@pytest.mark.parametrize("encoding", STORED)
def test_broken_bodies_leave_no_memory_behind(encoding):
    """Memory of broken bodies is released, so that any number of them does no harm."""
    tracemalloc.start()
    try:
        for broken in (STORED[encoding][:-9], STORED[encoding][:30], b"no such thing") * 5:
            with pytest.raises(ProblemError) as refusal:
                decompress(broken, encoding, 1 << 30)
            assert refusal.value.problem.status == 400
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 4 << 20  # of fifteen: the last error keeps its traceback
