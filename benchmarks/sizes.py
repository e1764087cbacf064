"""File sizes compared with Parquet: `python -m benchmarks.sizes [--given FOLDER] [--write-docs]`.

The events are real and synthetic. FOLDER contains the real ones: `apache_logs.gz` and `anonreviews.csv.bz2` (both from
elastic/examples); missing files are left out. Lines of a system log and nested JSON are generated here, the same each
time. Every set is written with all other columns as indexes, read back and compared. Parquet is sorted the same way,
with zstd, times as deltas, and dictionaries for all columns but times and payload.
"""

from __future__ import annotations

import argparse
import bz2
import csv
import gzip
import json
import random
import re
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

import esformat
from benchmarks.environment import describe
from benchmarks.section import report

BAR = 0.85
ROUNDS = 3
TIMES = pa.timestamp("us", "UTC")
_COMBINED = re.compile(rb'(\S+) .*?\[([^]]+)\] "(\S+).*?" (\d{3}) ')
_USERS = [b"root", b"admin", b"oracle", b"git", *(b"user%d" % n for n in range(60))]


def table_of(rows: Iterator[tuple[object, ...]], *names: str) -> pa.Table:
    """Build a table from rows of space, timestamp in µs, data, and further columns with the given names."""
    space, times, data, *others = zip(*rows, strict=True)
    arrays = [pa.array(space), pa.array(times, TIMES), pa.array(data, pa.binary()), *map(pa.array, others)]
    return pa.table(arrays, ["space", "timestamp", "data", *names])


def micros(moment: datetime) -> int:
    """µs since the epoch."""
    return round(moment.timestamp() * 1_000_000)


def web_log(given: Path) -> pa.Table:
    """Lines of a web server's log, by client, with columns for status and method."""

    def rows() -> Iterator[tuple[object, ...]]:
        for line in gzip.decompress((given / "apache_logs.gz").read_bytes()).splitlines():
            found = _COMBINED.match(line)
            client, moment, method, status = (text.decode() for text in found.groups()) if found else ("", "", "", "")
            yield client, micros(datetime.strptime(moment, "%d/%b/%Y:%H:%M:%S %z")), line, status, method

    return table_of(rows(), "status", "method")


def reviews(given: Path) -> pa.Table:
    """Reviews as JSON objects, by reviewer, with a column for the rating."""

    def rows() -> Iterator[tuple[object, ...]]:
        with bz2.open(given / "anonreviews.csv.bz2", "rt") as lines:
            for row in csv.DictReader(lines):
                moment = datetime.strptime(row["date"], "%Y-%m-%d %H:%M").replace(tzinfo=UTC)
                yield row["reviewerId"], micros(moment), json.dumps(row).encode(), row["rating"]

    return table_of(rows(), "rating")


def system_log(_: Path) -> pa.Table:
    """Lines of a system log in syslog's format, by program."""
    rnd, moment = random.Random(5), datetime(2026, 6, 1, tzinfo=UTC)
    addresses = [b".".join(b"%d" % rnd.randrange(1, 255) for _ in range(4)) for _ in range(300)]

    def rows() -> Iterator[tuple[object, ...]]:
        nonlocal moment
        for _ in range(100_000):
            moment += timedelta(microseconds=rnd.randrange(10_000_000))
            program, number, text = _message(rnd, addresses)
            head = f"{moment:%b} {moment.day:2} {moment:%H:%M:%S} combo ".encode()
            yield program.decode(), micros(moment), head + program + number + b": " + text

    return table_of(rows())


def _message(rnd: random.Random, addresses: list[bytes]) -> tuple[bytes, bytes, bytes]:
    """Return a program, its process ID in brackets or empty, and its message."""
    user, address = rnd.choice(_USERS), rnd.choice(addresses)
    number, port = b"[%d]" % rnd.randrange(1000, 32000), rnd.randrange(1024, 65535)
    kind = rnd.random()
    if kind < 0.3:
        named = b" user=" + user if rnd.random() < 0.5 else b""
        text = b"authentication failure; logname= uid=0 euid=0 tty=NODEVssh ruser= rhost=%b %b" % (address, named)
        return b"sshd(pam_unix)", number, text
    if kind < 0.45:
        return b"sshd", number, b"Failed password for invalid user %b from %b port %d ssh2" % (user, address, port)
    if kind < 0.6:
        return b"ftpd", number, b"connection from %b () at Wed Jun %d 2026" % (address, rnd.randrange(1, 30))
    if kind < 0.7:
        by = b" by (uid=0)" if rnd.random() < 0.5 else b""
        return b"su(pam_unix)", number, b"session %b for user %b%b" % (rnd.choice([b"opened", b"closed"]), user, by)
    if kind < 0.8:
        state = rnd.choice([b"up", b"down"])
        return b"kernel", b"", b"[%.6f] eth0: link %b, %dMbps" % (rnd.random() * 1e5, state, rnd.choice([100, 1000]))
    if kind < 0.95:
        return b"CRON", number, b"(%b) CMD (/usr/lib/sa/sa1 %d 1)" % (user, rnd.randrange(9))
    return b"app", number, b" ".join(rnd.choices(_USERS, k=rnd.randrange(1, 12)))


def orders(_: Path) -> pa.Table:
    """Orders as nested JSON objects that contain lists, by customer."""
    rnd, moment = random.Random(6), datetime(2026, 6, 1, tzinfo=UTC)

    def rows() -> Iterator[tuple[object, ...]]:
        nonlocal moment
        for number in range(100_000):
            moment += timedelta(microseconds=rnd.randrange(2_000_000))
            customer = f"customer-{int(rnd.paretovariate(0.8)) % 20_000}"
            order = {
                "id": f"{rnd.getrandbits(128):032x}", "number": 100_000 + number, "customer": customer,
                "at": f"{moment:%Y-%m-%dT%H:%M:%S}.{moment.microsecond // 1000:03}Z",
                "state": rnd.choice(["new", "paid", "paid", "paid", "sent"]),
                "lines": [
                    {"sku": f"A-{rnd.randrange(5000):05}", "count": rnd.randrange(1, 5), "price": rnd.randrange(9999)}
                    for _ in range(rnd.randrange(1, 4))
                ],
                "to": {"country": rnd.choice(["SE", "DE", "US", "US"]), "zip": f"{rnd.randrange(10**5):05}"},
            }  # fmt: skip
            yield customer, micros(moment), json.dumps(order).encode(), order["state"]

    return table_of(rows(), "state")


SETS: dict[str, Callable[[Path], pa.Table]] = {
    "web log, real": web_log,
    "reviews as JSON, real": reviews,
    "system log, made": system_log,
    "orders as nested JSON, made": orders,
}


def measure(table: pa.Table) -> dict[str, float]:
    """Bytes per event of both formats; events per processor second when writing and reading ours."""
    columns = [name for name in table.schema.names if name not in ("space", "timestamp", "data")]
    ordered = table.sort_by([("space", "ascending"), ("timestamp", "ascending")])
    with tempfile.TemporaryDirectory() as folder:
        ours, theirs = Path(folder) / "a.esdb", Path(folder) / "a.parquet"
        pq.write_table(
            ordered, theirs, compression="zstd", use_dictionary=["space", *columns],
            column_encoding={"timestamp": "DELTA_BINARY_PACKED"},
        )  # fmt: skip
        written, read = [], []
        for _ in range(ROUNDS):
            ours.unlink(missing_ok=True)
            began = time.process_time()
            with esformat.create(ours, indexes=columns) as writer:
                writer.add_table(table)
            written.append(time.process_time() - began)
        with esformat.open(ours) as segment:
            for _ in range(ROUNDS):
                began = time.process_time()
                count = sum(len(batch) for batch in segment.scan().batches())
                read.append(time.process_time() - began)
            back = segment.scan().to_table()
        for name in table.schema.names:
            if name != "timestamp" and sorted(back[name].to_pylist()) != sorted(table[name].to_pylist()):
                raise SystemExit(f"the column {name} came back with other values")
        return {
            "ours": ours.stat().st_size / count, "theirs": theirs.stat().st_size / count,
            "written": count / statistics.median(written), "read": count / statistics.median(read), "events": count,
        }  # fmt: skip


def main() -> None:
    """Measure, print, and rewrite the page if `--write-docs` is given."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--given", type=Path, default=Path(), help="the folder with the real events")
    parser.add_argument("--write-docs", action="store_true", help="rewrite the section of docs/benchmarks.md")
    options = parser.parse_args()
    rows = []
    for name, make in SETS.items():
        try:
            found = measure(make(options.given))
        except FileNotFoundError as error:
            print(f"{name}: left out, {error}")
            continue
        ratio = found["ours"] / found["theirs"]
        rows.append((
            name, f"{found['events']:,.0f}", f"{found['ours']:.2f}", f"{found['theirs']:.2f}", f"{ratio:.2f}",
            "met" if ratio <= BAR else "MISSED", f"{found['written'] / 1e6:.2f}", f"{found['read'] / 1e6:.2f}",
        ))  # fmt: skip
    headings = (
        "events", "how many", "bytes an event", "Parquet", "ratio", f"bar {BAR}", "written, M/s", "read as Arrow, M/s",
    )  # fmt: skip
    report("benchmarks.sizes", [(headings, rows)], describe([]), write_docs=options.write_docs)


if __name__ == "__main__":
    main()
