"""LQL statements over a catalog equal a plain list, and positions reach every record exactly once."""

from __future__ import annotations

import random
import threading
import time

import effort
import pyarrow as pa
import pytest
from waiting import PATIENCE_S

import aggregator
from aggregator.lql import TagSet
from aggregator.storage.state.arrivals import Arrivals
from aggregator.streams.reading import windows as rounds

TAGS = [{"app": app, "zone": zone} for app in ("web", "db", "it's") for zone in ("eu", "us")]


class Model:
    """A catalog and its contents as a list of (time, partition number, record index, tags, message, field)."""

    def __init__(self, path):
        self.path = path
        self.catalog = aggregator.open(path, durability="none")
        self.rows = []
        self.random = random.Random(7)

    def write(self, topic, partition, count):
        tags = self.random.choice(TAGS)
        records = [
            {"ts": self.random.randrange(1000), "msg": f"m{self.random.randrange(50)}", "n": str(i % 3)}
            for i in range(count)
        ]
        receipt = self.catalog.write(tags, records, topic, partition=partition)
        number = self.catalog._backend.state.topics[topic].partitions[partition].number
        for index, record in enumerate(records, receipt.first):
            self.rows.append((record["ts"], number, index, str(TagSet.of(tags)), record["msg"], record["n"]))

    def reopen(self):
        self.catalog.close()
        self.catalog = aggregator.open(self.path, durability="none")

    def step(self):
        what = self.random.randrange(12)
        if what == 0:
            self.catalog.seal()
        elif what == 1:
            self.reopen()
        elif what == 2:
            self.catalog.compact()
        else:
            self.write(self.random.choice(["logs", "other"]), self.random.choice("01"), self.random.randrange(1, 40))


def _keys(answer):
    """The contents of an answer in order: time, stream, message."""
    return [(event.timestamp, event.space, event.data.decode()) for event in answer]


def _expected(rows):
    return [(row[0], row[3], row[4]) for row in sorted(rows)]


QUESTIONS = [
    ("SELECT", lambda row: True),
    ("SELECT FROM app = web", lambda row: "app=web" in row[3]),
    ("SELECT FROM {zone=eu}", lambda row: "zone=eu" in row[3]),
    ("SELECT WHERE msg = m7", lambda row: row[4] == "m7"),
    (
        "SELECT FROM app LIKE 'i*' WHERE fields:n = 1 OR msg CONTAINS 3",
        lambda row: "it's" in row[3] and (row[5] == "1" or "3" in row[4]),
    ),
    ("SELECT WHERE ts >= 200000ns AND ts < 700000ns", lambda row: 200 <= row[0] < 700),
    ("SELECT RANGE [200000ns : 700000ns] WHERE NOT msg = m1", lambda row: 200 <= row[0] <= 700 and row[4] != "m1"),
    ("SELECT FROM app = nobody", lambda row: False),
]  # fmt: skip


@pytest.mark.parametrize("large", [False, True])
def test_selects_equal_a_list(tmp_path, monkeypatch, large):
    """After random writes, seals, reopenings and compactions, every SELECT equals a sorted list.

    large: take the code paths for large amounts.
    """
    if large:
        monkeypatch.setattr(rounds, "FRESH_ROWS", 0)
        monkeypatch.setattr(rounds, "FEW_STREAMS", 0)
    model = Model(tmp_path / "c")
    for _ in range(60 if effort.ALL else 20):
        model.step()
    for _ in range(2):
        for text, keep in effort.share_of(QUESTIONS, 6):
            expected = _expected(row for row in model.rows if keep(row))
            query = model.catalog.query
            assert _keys(query(text)) == expected, text
            assert _keys(query(f"{text} ORDER BY ts DESC")) == expected[::-1], text
            assert _keys(query(f"{text} OFFSET 3 LIMIT 10")) == expected[3:13], text
            assert _keys(query(f"{text} POSITION TAIL OFFSET -9 LIMIT 5")) == expected[-9:][:5], text
            assert query(text).count() == len(expected), text
            assert query(f"{text} OFFSET 3 LIMIT 10").count() == len(expected[3:13]), text
            assert query(f"{text} POSITION TAIL OFFSET -9").count() == len(expected[-9:]), text
            counted = query(text.replace("SELECT", "SELECT COUNT"))
            assert counted.to_pylist() == [{"count": len(expected)}], text
            assert len(list(query(text.replace("SELECT", "SELECT '{vars:app} {msg}'")).lines())) == len(expected)
        model.catalog.seal()
    model.catalog.close()


@pytest.mark.parametrize("text", effort.share_of(["SELECT", "SELECT FROM app = web WHERE msg != m3"], 2))
def test_positions_see_every_record_once(tmp_path, text):
    """A reader that takes a few records at a time amid all kinds of changes misses and repeats none."""
    model = Model(tmp_path / "c")
    keep = dict([QUESTIONS[0], ("SELECT FROM app = web WHERE msg != m3", lambda r: "app=web" in r[3] and r[4] != "m3")])
    position, seen = "HEAD", []
    steps = 80 if effort.ALL else 40
    for step in range(steps):
        if step < steps - 20:
            model.step()
        answer = model.catalog.query(f"{text} POSITION {position} LIMIT {model.random.randrange(1, 60)}")
        seen += _keys(answer)
        position = answer.position
    rest = model.catalog.query(f"{text} POSITION {position}")
    seen += _keys(rest)
    assert sorted(seen) == sorted(_expected(row for row in model.rows if keep[text](row)))
    assert _keys(model.catalog.query(f"{text} POSITION {rest.position}")) == []
    model.catalog.close()


def test_resuming_keeps_the_order(tmp_path):
    """Pages of a round keep its order although older records arrive in between; those come afterwards."""
    with aggregator.open(tmp_path / "c") as catalog:
        catalog.write({"a": "1"}, [{"ts": ts, "msg": str(ts)} for ts in (5, 1, 9, 3, 7)])
        first = catalog.query("SELECT LIMIT 2")
        assert [event.timestamp for event in first] == [1, 3]
        catalog.write({"a": "2"}, [{"ts": 0}, {"ts": 6}])
        catalog.seal()
        second = catalog.query(f'SELECT POSITION "{first.position}" LIMIT 4')
        assert [event.timestamp for event in second] == [5, 7, 9, 0]
        back = catalog.query(f"SELECT POSITION {second.position} OFFSET -6")
        assert [event.timestamp for event in back] == [0, 1, 3, 5, 7, 9, 6]  # what was read, by time; then the rest


def test_walking_back_goes_by_time(tmp_path):
    """A negative offset from a page's position returns the records before it by time, whenever they were written."""
    with aggregator.open(tmp_path / "c") as catalog:
        catalog.write({"a": "1"}, [{"ts": ts} for ts in (4, 9, 1, 7, 3, 5)])
        first = catalog.query("SELECT LIMIT 3")
        assert [event.timestamp for event in first] == [1, 3, 4]
        for back, found in ((1, [4]), (2, [3, 4]), (3, [1, 3, 4]), (9, [1, 3, 4])):
            answer = catalog.query(f"SELECT POSITION {first.position} OFFSET -{back}")
            assert [event.timestamp for event in answer] == [*found, 5, 7, 9]
            page = catalog.query(f"SELECT POSITION {first.position} OFFSET -{back} LIMIT 1")
            rest = [event.timestamp for event in page] + [
                event.timestamp for event in catalog.query(f"SELECT POSITION {page.position}")
            ]
            assert rest == [*found, 5, 7, 9]


def test_a_position_passes_what_does_not_match(tmp_path):
    """Records read to the end without a match are not read again from the position."""
    with aggregator.open(tmp_path / "c") as catalog:
        catalog.write({"a": "1"}, [{"msg": "x"}])
        answer = catalog.query("SELECT WHERE msg = y")
        assert list(answer) == []
        explained = catalog.query(f"EXPLAIN SELECT POSITION {answer.position}")
        assert explained["unsealed batches"].to_pylist() == [0]


def test_positions_by_time(tmp_path):
    """AT begins with the first record at or after the time; positions continue from there."""
    with aggregator.open(tmp_path / "c") as catalog:
        catalog.write({"a": "1"}, [{"ts": ts} for ts in (1, 2, 2, 3)])
        answer = catalog.query("SELECT POSITION AT 2000ns LIMIT 1")
        assert [event.timestamp for event in answer] == [2]
        assert [event.timestamp for event in catalog.query(f"SELECT POSITION {answer.position}")] == [2, 3]
        assert [event.timestamp for event in catalog.query("SELECT POSITION AT 2000ns OFFSET -1")] == [1, 2, 2, 3]


def test_wrong_positions_are_refused(tmp_path):
    """Any mistyped character in a position is noticed, and so is a position of another catalog."""
    with aggregator.open(tmp_path / "c") as catalog, aggregator.open(tmp_path / "d") as other:
        catalog.write({"a": "1"}, [{"ts": 1}, {"ts": 2}])
        answer = catalog.query("SELECT LIMIT 1")
        assert len(list(answer)) == 1
        text = answer.position
        for place in range(len(text)):
            wrong = text[:place] + ("A" if text[place] != "A" else "B") + text[place + 1 :]
            with pytest.raises(aggregator.InvalidRequestError, match="invalid position"):
                catalog.query(f'SELECT POSITION "{wrong}"')
        for cut in range(1, len(text)):
            with pytest.raises(aggregator.InvalidRequestError, match="invalid position"):
                catalog.query(f'SELECT POSITION "{text[:cut]}"')
        with pytest.raises(aggregator.InvalidRequestError, match="another catalog"):
            other.query(f'SELECT POSITION "{text}"')


def test_what_retention_took_is_told(tmp_path):
    """A position that retention has passed reports how many records are gone, and reading continues after them."""
    with aggregator.open(tmp_path / "c") as catalog:
        for start in (0, 10, 20):
            catalog.write({"a": "1"}, [{"ts": start + i} for i in range(10)])
            catalog.seal()
        answer = catalog.query("SELECT LIMIT 4")
        assert len(list(answer)) == 4
        position = answer.position
        catalog.alter_topic("logs", retention={"segments": 1})
        catalog.retain()
        resumed = catalog.query(f"SELECT POSITION {position}")
        assert resumed.gone == 16
        assert [event.timestamp for event in resumed] == list(range(20, 30))
        catalog.alter_topic("logs", retention={"segments": 0})
        catalog.retain()
        resumed = catalog.query(f"SELECT POSITION {position}")
        assert (resumed.gone, list(resumed)) == (26, [])


def test_positions_grow_with_partitions(tmp_path):
    """A position does not grow with the number of streams."""
    with aggregator.open(tmp_path / "c", durability="none") as catalog:
        for number in range(1000):
            catalog.write({"n": str(number)}, [{"ts": number}])
        answer = catalog.query("SELECT LIMIT 500")
        list(answer)
        assert len(answer.position) < 60


def test_columns_and_indexes(tmp_path):
    """Typed columns compare by type; an indexed column is looked up, with the same answer."""
    with aggregator.open(tmp_path / "c") as catalog:
        schema = pa.schema([("data", pa.binary()), ("status", pa.int64()), ("size", pa.int64())])
        catalog.create_topic("web", schema, indexes=["status"])
        for _ in range(2):
            catalog.write({"a": "1"}, [{"ts": i, "status": i % 5, "size": i % 5} for i in range(100)], "web")
            catalog.seal()
        for text, count in (
            ("status = 3", 40),
            ("status = 3.0", 40),
            ("status > 3", 40),
            ("fields:status = 3", 40),
            ("size = 3", 40),
        ):
            assert catalog.query(f"SELECT WHERE {text}").count() == count, text
        grouped = catalog.query("SELECT COUNT GROUP BY status LIMIT 2")
        assert grouped.to_pylist() == [{"status": 0, "count": 40}, {"status": 1, "count": 40}]
        told = catalog.query("EXPLAIN SELECT WHERE status = 3 AND ts < 0").to_pylist()[0]
        assert (told["segments"], told["pruned"], told["read"], told["indexes"]) == (2, 2, 0, ["status"])
        with pytest.raises(aggregator.InvalidRequestError, match="stat"):
            catalog.query("SELECT WHERE stat = 3")


def test_show_and_describe(tmp_path):
    """SHOW lists streams with their records, largest first, and totals; DESCRIBE lists a stream's segments."""
    with aggregator.open(tmp_path / "c") as catalog:
        catalog.write({"a": "1"}, [{"ts": i, "msg": "x" * 50} for i in range(10)])
        catalog.write({"a": "2"}, [{"ts": i, "msg": "x" * 50} for i in range(100)])
        catalog.seal()
        catalog.write({"a": "1"}, [{"ts": 77}])
        shown = catalog.query("SHOW PARTITIONS")
        assert shown["tags"].to_pylist() == ["{a=2}", "{a=1}"]
        assert shown["records"].to_pylist() == [100, 11]
        assert shown.schema.metadata[b"total records"] == b"111"
        assert catalog.query("SHOW PARTITIONS a = 1 LIMIT 5")["records"].to_pylist() == [11]
        assert catalog.query("SHOW PARTITIONS OFFSET 1 LIMIT 1")["tags"].to_pylist() == ["{a=1}"]
        described = catalog.query("DESCRIBE PARTITION {a=1}").to_pylist()
        assert [(row["records"], row["segment"] is None) for row in described] == [(10, False), (1, True)]
        assert described[0]["last"].timestamp() == pytest.approx(9e-6)
        with pytest.raises(aggregator.InvalidRequestError, match="no partition"):
            catalog.query("DESCRIBE PARTITION {a=3}")
        catalog.topic("logs").erase("{a=2}")
        assert catalog.query("SHOW PARTITIONS")["tags"].to_pylist() == ["{a=1}"]
        catalog.write({"a": "2"}, [{"ts": 1}])
        assert catalog.query("SHOW PARTITIONS")["records"].to_pylist() == [11, 1]


@pytest.mark.parametrize(
    "text",
    [
        "SELEC", "SELECT WHERE", "DELETE PIPE p", "DESCRIBE PIPE p", "TRUNCATE BEFORE never",
        "CREATE PIPE p WHERE ts = x",
        "SELECT POSITION nonsense", "SELECT ORDER BY ts DESC OFFSET -1", "SELECT POSITION TAIL ORDER BY ts DESC",
        "SELECT RANGE 'never'",
    ],
)  # fmt: skip
def test_what_cannot_be_run(tmp_path, text):
    """An invalid statement raises an error."""
    with aggregator.open(tmp_path / "c") as catalog, pytest.raises(aggregator.InvalidRequestError):
        catalog.query(text)


def test_tail_follows(tmp_path):
    """A tail returns records as they are written, also of new streams, each once, and ends on timeout."""
    with aggregator.open(tmp_path / "c") as catalog:
        catalog.write({"app": "web"}, [{"msg": "before"}])
        tail = catalog.tail("SELECT FROM app = web WHERE msg != skip LIMIT 20", timeout_s=60)

        def write():
            for number in range(20):
                catalog.write({"app": "web", "n": str(number)}, [{"msg": str(number)}, {"msg": "skip"}])
                catalog.write({"app": "db"}, [{"msg": "other"}])
                if number == 10:
                    catalog.seal()
                time.sleep(0.002)

        writer = threading.Thread(target=write)
        writer.start()
        assert [event.data for event in tail] == [str(number).encode() for number in range(20)]
        writer.join()
        catalog.write({"app": "web"}, [{"msg": "later"}])
        again = catalog.tail(f"SELECT FROM app = web WHERE msg != skip POSITION {tail.position}", timeout_s=0.1)
        assert [event.data for event in again] == [b"later"]


def test_a_column_that_cannot_be_compared_comes_under_a_tail(tmp_path):
    """A tail and its position survive a column that cannot be compared; a new statement is refused."""
    statement = "SELECT FROM app = web WHERE level = error"
    with aggregator.open(tmp_path / "c") as catalog:
        catalog.write({"app": "web"}, [{"msg": "one", "level": "error"}])
        tail = catalog.tail(f"{statement} POSITION HEAD LIMIT 2", timeout_s=60)
        found = iter(tail)
        assert next(found).data == b"one"
        position = tail.position
        catalog.write({"app": "web"}, pa.table({"msg": ["two"], "level": [7]}))
        catalog.write({"app": "web"}, [{"msg": "three", "level": "error"}])
        assert next(found).data == b"three"
        assert [event.data for event in catalog.query(f"{statement} POSITION {position}")] == [b"three"]
        with pytest.raises(aggregator.InvalidRequestError, match="holds numbers"):
            catalog.query(statement)


def test_an_arrival_wakes_at_once():
    """A waiting thread is woken immediately by an arrival, and otherwise returns after its timeout."""
    arrivals = Arrivals()
    assert not arrivals.wait(arrivals.count, 0.01)
    seen = arrivals.count
    timer = threading.Timer(0.1, arrivals.notify)
    timer.start()
    start = time.monotonic()
    assert arrivals.wait(seen, PATIENCE_S)
    assert time.monotonic() - start < PATIENCE_S / 2


def test_tail_walks_back(tmp_path):
    """A negative offset returns the last records first; LIMIT counts all records."""
    with aggregator.open(tmp_path / "c") as catalog:
        catalog.write({"a": "1"}, [{"ts": i, "msg": str(i)} for i in range(5)])
        assert [event.data for event in catalog.tail("SELECT OFFSET -2", timeout_s=0)] == [b"3", b"4"]
        assert [event.data for event in catalog.tail("SELECT OFFSET -2 LIMIT 1")] == [b"3"]


def test_tail_of_a_reader(tmp_path):
    """A reader in another process can follow a tail, too."""
    with aggregator.open(tmp_path / "c") as catalog, aggregator.open(tmp_path / "c", read_only=True) as reader:
        tail = reader.tail("SELECT", timeout_s=120)
        catalog.write({"a": "1"}, [{"msg": "x"}])
        assert next(iter(tail)).data == b"x"


def test_idle_tails_cost_nothing(tmp_path):
    """A hundred waiting tails take almost no CPU time and end when the catalog closes."""
    catalog = aggregator.open(tmp_path / "c")
    tails = [catalog.tail("SELECT") for _ in range(100)]
    threads = [threading.Thread(target=list, args=(tail,), daemon=True) for tail in tails]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + 60
    spent = 1.0
    while spent >= 0.05:  # a busy machine takes a while until all of them wait
        assert time.monotonic() < deadline
        start = time.process_time()
        time.sleep(1)
        spent = time.process_time() - start
    catalog.close()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
