"""More overlapping segments than a process may have open files, all merged in one scan."""

from __future__ import annotations

import subprocess
import sys

from effort import long

SEGMENTS, HANDLES = 120, 64

CHILD = f"""
import resource, sys, threading, time
sys.path.append(sys.argv[2])
import httpx
import aggregator, esformat
from esformat.parts import hide_pandas
from served import served

hide_pandas()
resource.setrlimit(resource.RLIMIT_NOFILE, ({HANDLES}, {HANDLES}))
count = {SEGMENTS}
path = sys.argv[1]

def times_of(events):
    return [event.timestamp for event in events]

def patiently(ask):
    while (answer := ask()).status_code == 429:  # others are before it, on a machine that is busy
        time.sleep(int(answer.headers["retry-after"]))
    return answer

with aggregator.open(path, durability="none") as catalog:
    topic = catalog.create_topic("logs", retention=aggregator.Retention(segments=10 * count))
    for number in range(count):
        space = f"{{{{app=a{{number % 3}}}}}}"
        topic.append([{{"space": space, "timestamp": time, "data": b"x"}} for time in (number, 10_000 - number)])
        catalog.seal()
    assert catalog.stats()["topics"]["logs"]["segments"] == count
    expected = sorted([*range(count), *(10_000 - number for number in range(count))])
    assert times_of(topic.scan()) == expected
    assert times_of(topic.scan(reverse=True)) == expected[::-1]
    assert times_of(topic.read("0")) == [time for n in range(count) for time in (n, 10_000 - n)]
    assert len(times_of(topic.scan(space="{{app=a1}}"))) == len(range(1, count, 3)) * 2
    assert catalog.query("SELECT COUNT FROM app=a0 OR app=a1 OR app=a2").to_pylist() == [{{"count": 2 * count}}]
    assert len(list(catalog.query("SELECT"))) == 2 * count
with esformat.open_many(path + "/segments") as many:
    assert len(many.paths) == count
    assert many.scan().to_table().num_rows == 2 * count
with served(path) as server, httpx.Client(base_url=server.url, timeout=60) as web:
    lines = '{{"space": "new", "timestamp": 20000, "data": "y"}}\\n' * 5
    json_lines, text = {{"content-type": "application/x-ndjson"}}, {{"content-type": "text/plain"}}
    statuses, stop = [], threading.Event()

    def append():
        with httpx.Client(base_url=server.url, timeout=60) as mine:
            while not stop.is_set() or not statuses:
                answer = mine.post("/v1/topics/logs/events", content=lines, headers=json_lines)
                statuses.append(answer.status_code)

    writer = threading.Thread(target=append)
    writer.start()

    def read():
        with httpx.Client(base_url=server.url, timeout=60) as mine:
            answer = patiently(lambda: mine.get("/v1/topics/logs/events?end=15000"))
            found.append((answer.status_code, answer.text.count("\\n")))
            answer = patiently(lambda: mine.post("/v1/query", content="SELECT WHERE ts < 15000000", headers=text))
            found.append((answer.status_code, 2 * count))

    found = []
    readers = [threading.Thread(target=read) for _ in range(3)]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join()
    stop.set()
    writer.join()
    assert set(found) == {{(200, 2 * count)}}, found
    assert set(statuses) == {{200}}, statuses
print("fine")
"""


@long
def test_more_overlapping_segments_than_handles(tmp_path, request):
    """All events come in order when embedded, through the server during appends, and as files."""
    helpers = request.config.rootpath / "tests" / "support"
    command = [sys.executable, "-c", CHILD, str(tmp_path / "data"), str(helpers)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout == "fine\n", done.stderr[-3000:]
