"""A real S3 endpoint for tests: started once, and found by every S3 client through the environment."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pyarrow.fs
import pytest

if TYPE_CHECKING:
    from benchmarks.s3_endpoint import S3Endpoint


@pytest.fixture(scope="session")
def _endpoint() -> Iterator[S3Endpoint]:
    from benchmarks.s3_endpoint import S3Endpoint  # loads moto and boto3: half a second in each test process

    with S3Endpoint() as endpoint:
        yield endpoint


@pytest.fixture
def s3(_endpoint: S3Endpoint, monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Endpoint]:
    """The endpoint, without delays or refusals."""
    for name, value in _endpoint.environment.items():
        monkeypatch.setenv(name, value)
    yield _endpoint
    _endpoint.latency_seconds = 0.0
    _endpoint.refuse = lambda method, path, query: None


@pytest.fixture
def bucket(s3: S3Endpoint) -> str:
    """The name of an empty bucket."""
    name = f"bucket-{secrets.token_hex(4)}"
    s3.client.create_bucket(Bucket=name)
    return name


@pytest.fixture
def unshipped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Catalogs upload only their segments to their stores, so that the remaining objects are those of the test."""
    monkeypatch.setattr("aggregator.engine.writer.WriterEngine._attach", lambda self: None)


def keys(s3: S3Endpoint, bucket: str) -> list[str]:
    """The keys in a bucket, as another client sees them."""
    return [item["Key"] for item in s3.client.list_objects_v2(Bucket=bucket).get("Contents", [])]


def uploads(s3: S3Endpoint, bucket: str) -> list[str]:
    """Uploads that were begun and neither completed nor aborted."""
    return [item["Key"] for item in s3.client.list_multipart_uploads(Bucket=bucket).get("Uploads", [])]


def arrow_filesystem(s3: S3Endpoint) -> Any:
    """Arrow's filesystem on the endpoint, constructed directly rather than from a URI."""
    return pyarrow.fs.S3FileSystem(
        endpoint_override=s3.url.removeprefix("http://"), scheme="http", region="us-east-1",
        access_key="testing", secret_key="testing",
        retry_strategy=pyarrow.fs.AwsStandardS3RetryStrategy(max_attempts=1),
    )  # fmt: skip
