"""The works over an object store: a history from an open file, or including opening, near and 50 ms away.

The store is moto's S3 server in a separate process. It counts requests and bytes, and delays every request like a
distant store. All contenders use the same Arrow filesystem.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.fs

from benchmarks import s3_endpoint
from benchmarks.measure import Figure, WrongAnswerError, excused, undisturbed
from benchmarks.session import Session

CONTENDERS = ("esformat", "parquet")
BUCKET = "events"
DISTANT_SECONDS = 0.05
QUESTIONS = 60
WARMUP_QUESTIONS = 3
KIB = 1024


def histories(session: Session, work: str, *, latency: float, cold: bool) -> dict[str, Figure]:
    """Histories of the R2 spaces, each on a newly opened file. cold: opening is timed and counted, too."""
    able, figures = session.willing(work, CONTENDERS)
    questions = session.dataset.uniform(WARMUP_QUESTIONS, min(QUESTIONS, session.questions))
    with _store(latency) as (url, filesystem):
        for name, contender in able.items():
            figures[name] = figure = Figure(points=True)
            with excused(figure):
                layout = session.layout(contender, work)
                (file,) = (path for path in session.built(contender, layout).iterdir() if path.suffix != ".json")
                s3_endpoint.client(url).upload_file(str(file), BUCKET, f"{name}/{file.name}")
                requests, kib = [], []
                for number, space in enumerate([*questions.warmup, *questions.counted]):
                    started = time.perf_counter()
                    reader = contender.open_stored(filesystem, f"{BUCKET}/{name}/{file.name}")
                    if not cold:
                        _log(url)
                        started = time.perf_counter()
                    with undisturbed():
                        answer = reader.history(space)
                        seconds = time.perf_counter() - started
                    log = _log(url)
                    if reader.rows(answer) != session.dataset.history(space):
                        raise WrongAnswerError(space)
                    reader.close()
                    if number >= WARMUP_QUESTIONS:
                        figure.samples.append(1000 * seconds)
                        requests.append(len(log))
                        kib.append(sum(entry["range"][1] - entry["range"][0] for entry in log if entry["range"]) / KIB)
                figure.detail = {
                    "requests, median": float(np.median(requests)),
                    "requests, most": max(requests),
                    "KiB, median": round(float(np.median(kib)), 1),
                    "KiB, most": round(max(kib), 1),
                }
    return figures


@contextmanager
def _store(latency: float) -> Iterator[tuple[str, Any]]:
    command = [sys.executable, "-m", "benchmarks.s3_endpoint", "--latency", str(latency)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[1]
    ) as server:
        assert server.stdout is not None
        assert server.stdin is not None
        try:
            url = server.stdout.readline().strip()
            s3_endpoint.client(url).create_bucket(Bucket=BUCKET)
            filesystem = pyarrow.fs.S3FileSystem(
                endpoint_override=url.removeprefix("http://"), scheme="http", region=s3_endpoint.REGION,
                access_key=s3_endpoint.KEY, secret_key=s3_endpoint.SECRET,
            )  # fmt: skip
            yield url, filesystem
        finally:
            server.stdin.close()


def _log(url: str) -> list[dict[str, Any]]:
    """The requests since the last call."""
    with urllib.request.urlopen(url + s3_endpoint.LOG_PATH) as answer:
        log: list[dict[str, Any]] = json.load(answer)
    return log
