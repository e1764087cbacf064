"""Measure the evaluator: `python -m tests.support.lql_bench [RECORDS]`. In-memory batches of 128-byte messages."""

from __future__ import annotations

import sys
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow as pa

from aggregator.lql import Columns, Filter, TagSet, TagTable, Template, parse_source, parse_statement, parse_where

BATCH_ROWS = 65_536
CONDITIONS = [
    'msg CONTAINS "ERROR"',
    'msg CONTAINS "nowhere to be found"',
    'msg CONTAINS "e"',
    "msg LIKE '*ERROR*disk*'",
    "msg MATCHES 'ERR(OR)? [a-z]+'",
    "LOWER(msg) CONTAINS error",
    "msg PREFIX ERROR",
    "status >= 500",
    "ts > 1500000000000000000 AND status = 500 AND msg CONTAINS ERROR",
    "who = user7",
    "msg.level = error",
    "msg.took > 900",
]
SOURCES = ["app = app7 AND zone = us", "host LIKE 'host-4?7*.org'", "UPPER(host) CONTAINS '99'", "{app=app7}"]


def records(count: int) -> list[pa.RecordBatch]:
    """Log lines of 128 bytes; one in a hundred is an error, one in ten is JSON."""
    chance = np.random.default_rng(1)
    words = np.array(
        ["index", "page", "static", "login", "cache", "reply", "user", "queue", "disk", "GET", "POST", "200"]
    )
    lines = [" ".join(chance.choice(words, 24))[:128].ljust(128, ".") for _ in range(5_000)]
    for i in range(0, len(lines), 100):
        lines[i] = f"{lines[i][:40]}ERROR {lines[i][46:]}"
    for i in range(5, len(lines), 10):
        level = ("info", "error")[i % 50 == 5]
        lines[i] = f'{{"level": "{level}", "took": {i % 1000}, "text": "{lines[i][:60]}"}}'.ljust(128)
    pool = pa.array([line.encode() for line in lines])
    people = pa.array([f"user{n}" for n in range(1000)])
    batches = []
    for begin in range(0, count, BATCH_ROWS):
        rows = min(BATCH_ROWS, count - begin)
        stamps = np.arange(begin, begin + rows) * 1000 + 1_700_000_000_000_000
        batches.append(
            pa.record_batch(
                {
                    "timestamp": pa.array(stamps).cast(pa.timestamp("us", "UTC")),
                    "data": pool.take(pa.array(chance.integers(0, len(pool), rows))),
                    "status": pa.array(chance.choice([200, 301, 404, 500], rows), pa.int16()),
                    "who": people.take(pa.array(chance.integers(0, 1000, rows))),
                }
            )
        )
    return batches


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 2_000_000
    batches = records(count)
    columns = Columns(batches[0].schema, tags=None)
    print(f"{count:,} records, M records/s with one thread and two")
    for where in CONDITIONS:
        compiled = Filter.compile(parse_where(where), columns, 0)
        one, matched = best(lambda compiled=compiled: sum(compiled.mask(batch).true_count for batch in batches))
        with ThreadPoolExecutor(2) as pool:
            two, again = best(
                lambda compiled=compiled, pool=pool: sum(pool.map(lambda b: compiled.mask(b).true_count, batches))
            )
        assert matched == again
        print(f"  {count / one / 1e6:7.1f} {count / two / 1e6:7.1f}   {where}   ({matched:,} match)")
    template = Template.compile("{ts} {vars:who} {msg}\n")
    seconds, _ = best(lambda: sum(len(template.render(batch, columns)) for batch in batches))
    print(f"  {count / seconds / 1e6:7.1f}           render {template.text!r}")
    begin = time.perf_counter()
    table = TagTable(
        TagSet.of({"host": f"host-{n}.example.org", "app": f"app{n % 40}", "zone": ("eu", "us")[n % 2]})
        for n in range(50_000)
    )
    print(f"50,000 streams added in {time.perf_counter() - begin:.2f} s; milliseconds per expression")
    for text in SOURCES:
        source = parse_source(text)
        seconds, found = best(lambda source=source: len(table.select(source)))
        print(f"  {seconds * 1000:7.1f}   {text}   ({found:,} match)")
    text = "SELECT '{msg}' FROM name LIKE 'app*' AND zone = eu WHERE msg CONTAINS ERROR RANGE '-1h' LIMIT 50"
    seconds, _ = best(lambda: [parse_statement(text) for _ in range(100)])
    print(f"a statement of 25 words parses in {seconds * 10:.2f} ms")


def best(work):
    """The seconds of the fastest of three runs, and the result of the work."""
    taken = []
    for _ in range(3):
        begin = time.perf_counter()
        result = work()
        taken.append(time.perf_counter() - begin)
    return min(taken), result


if __name__ == "__main__":
    main()
