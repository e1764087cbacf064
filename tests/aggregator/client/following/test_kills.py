"""Followers and servers killed at any moment: no event is missing or duplicated."""

from __future__ import annotations

import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

from effort import ALL, long
from killing import PATIENT, batch
from serving import Serving
from waiting import until

import aggregator
from aggregator.client import Client

ROOT = Path(__file__).parents[4]
KILLS = 40 if ALL else 3


class Following:
    """`aggregator follow` as a process."""

    def __init__(self, url: str, copy: Path) -> None:
        self._command = [sys.executable, "-m", "aggregator", "follow", url, str(copy)]
        self.start()

    def start(self) -> None:
        self.process = subprocess.Popen(self._command, cwd=ROOT, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        assert self.process.wait() == -signal.SIGKILL


class Writing(threading.Thread):
    """Append batch after batch and keep the receipts of acknowledged batches."""

    def __init__(self, url: str) -> None:
        super().__init__(name="writing", daemon=True)  # if the test fails, nobody waits for it
        self._url = url
        self.end = threading.Event()
        self.receipts: dict[int, tuple[int, int]] = {}

    def run(self) -> None:
        with Client(self._url, retry=PATIENT) as client:
            sequence = 0
            while not self.end.is_set():
                receipt = client.topic("t").append(batch("p", sequence), producer="p", sequence=sequence)
                self.receipts[sequence] = (receipt.first, receipt.last)
                sequence += 1
                self.end.wait(0.003)  # leave some processor time: the killed processes must make progress


def check_promoted(copy: Path, receipts: dict[int, tuple[int, int]], *, whole: bool) -> None:
    """Check that a promoted copy contains the first batches, each once, by record index; all of them if `whole`."""
    assert aggregator.promote(copy)["whole"]
    with aggregator.open(copy) as catalog:
        assert catalog.problems() == []
        topic = catalog.topic("t")
        there = topic.read().to_table()
        indexes = there["record_index"].to_pylist() if "record_index" in there.column_names else None
        data, at = there["data"].to_pylist(), 0
        looked_at = max(1, len(receipts) // 50)
        for sequence in sorted(receipts):
            rows = batch("p", sequence)["data"].to_pylist()
            if at == len(data) and not whole:
                break
            assert data[at : at + len(rows)] == rows, sequence
            first, last = receipts[sequence]
            if sequence % looked_at == 0:
                assert topic.read("0", first, len(rows)).to_table()["data"].to_pylist() == rows
            assert last - first + 1 == len(rows)
            at += len(rows)
        assert indexes is None or len(set(indexes)) == len(indexes)
        again = topic.append(batch("p", 0), producer="other", sequence=1)
        assert again.first > max(last for _, last in receipts.values())
        assert topic.read("0", again.first).to_table()["data"].to_pylist() == batch("p", 0)["data"].to_pylist()


@long
def test_kills_on_both_sides(tmp_path, request):
    """Both sides are killed repeatedly at any moment; copies are promoted in between and at the end."""
    chance = random.Random(1)
    data, copy = tmp_path / "data", tmp_path / "copy"
    with aggregator.open(data) as catalog:
        catalog.create_topic("t", roll={"rows": 300})
    with Serving(data, "--set", "catalog.log_bytes=1MiB") as server:
        writing = Writing(server.url)
        writing.start()
        following = Following(server.url, copy)
        request.addfinalizer(lambda: following.process.kill())
        for number in range(KILLS):
            time.sleep(chance.uniform(0.3, 1.5))
            if number % 3 == 2:
                server.kill()
                server.start()
                seen = len(writing.receipts)
                until(lambda seen=seen: len(writing.receipts) > seen)  # on a busy machine the first one takes long
                continue
            following.kill()
            receipts = dict(writing.receipts)
            note = copy / "following.json"
            if note.exists() and b'"whole": true' in note.read_bytes():
                shutil.copytree(copy, tmp_path / f"promoted-{number}")
                check_promoted(tmp_path / f"promoted-{number}", {**receipts, **dict(writing.receipts)}, whole=False)
            following.start()
        writing.end.set()
        writing.join(120)
        following.kill()
        command = [sys.executable, "-m", "aggregator", "follow", server.url, str(copy), "--once"]
        subprocess.run(command, cwd=ROOT, check=True, timeout=120)
    check_promoted(copy, writing.receipts, whole=True)
