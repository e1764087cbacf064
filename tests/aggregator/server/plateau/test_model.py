"""Pages of plateau's routes compared with a model: random histories and random requests."""

from __future__ import annotations

import random
import re

import pyarrow as pa
import pytest
from effort import ALL, share_of

from tests.aggregator.server.plateau.test_plateau import partition, records, send, topic

SCHEMAS = {
    "n": {},
    "text": {"s": ["x"]},
    "nested": {"x": [{"a": 1, "b": "c"}]},
}  # what each record has besides its time and number
NAMES = ["a", "b", "c", "d-1", "d-2", "ü"]
FILTERS = [["a"], ["b", "regex:^d-"], ["regex:[ac]$"], ["nobody"], ["regex:("]]


class Model:
    """Partitions as lists of (schema name, seconds); the seconds are also the records' numbers."""

    def __init__(self):
        """No partitions."""
        self.partitions = {}

    def page(self, name, begin, size, *, newest_first=False, seconds=(0, 1 << 60)):
        """Record indexes of one schema forward or backward from `begin`, and how the page ends."""
        found = self.partitions.get(name, [])
        indexes = range(min(begin, len(found)) - 1, -1, -1) if newest_first else range(begin, len(found))
        meant = [index for index in indexes if seconds[0] <= found[index][1] <= seconds[1]]
        same = [index for index in meant if found[index][0] == found[meant[0]][0]]
        run = next((place for place, index in enumerate(meant) if index not in same), len(meant))
        given = meant[: min(run, size)]
        if len(given) < run:
            return given, "RecordLimited"
        return given, "All" if run == len(meant) else "SchemaChange"

    def topic_page(self, position, size, *, newest_first, seconds, filters):
        """The records of a page over all partitions, its status, and the next position."""
        names = [name for name in self.partitions if filters is None or any(_finds(each, name) for each in filters)]
        if newest_first and position:
            names = [name for name in names if name in position]
        ends = {name: len(self.partitions[name]) if newest_first else 0 for name in names}
        next_ = {**ends, **position}
        rows, status, schema, passed_over = [], "All", None, False
        for name in sorted(names, key=lambda name: (next_[name], name), reverse=newest_first):
            left = size - len(rows)
            given, how = self.page(name, next_[name], max(left, 1), newest_first=newest_first, seconds=seconds)
            if not given:
                continue
            if not left:
                status = "RecordLimited"
                break
            kind = self.partitions[name][given[0]][0]
            if schema not in (None, kind):
                passed_over = True
                continue
            schema, status = kind, how
            rows += [self.partitions[name][index][1] for index in given]
            next_[name] = given[-1] if newest_first else given[-1] + 1
            if how == "SchemaChange":
                passed_over = True
            elif how != "All":
                break
        return rows, "SchemaChange" if passed_over else status, next_


def _finds(given, name):
    if not given.startswith("regex:"):
        return given == name
    try:
        return re.search(given.removeprefix("regex:"), name) is not None
    except re.error:
        return False


def _append(web, model, chance):
    name, schema, count = chance.choice(NAMES), chance.choice([*SCHEMAS, "n", "n"]), chance.choice([1, 2, 5])
    found = model.partitions.setdefault(name, [])
    more = {column: pa.array(values * count) for column, values in SCHEMAS[schema].items()}
    span = send(web, records(count, len(found), **more), partition=name)
    assert span == {"start": len(found), "end": len(found) + count}
    found += [(schema, len(found) + place) for place in range(count)]


def _seconds(chance):
    """A time range and its parameters."""
    if chance.random() < 0.6:
        return (0, 1 << 60), {}
    first, last = sorted(chance.choices(range(20), k=2))
    return (first, last), {f"time.{end}": f"1970-01-01T00:00:{at:02}Z" for end, at in (("start", first), ("end", last))}


def _ask_partition(web, model, chance):
    name, begin, size = chance.choice(list(model.partitions)), chance.randrange(25), chance.choice([1, 2, 3, 7, 1000])
    seconds, times = _seconds(chance)
    given, status = model.page(name, begin, size, seconds=seconds)
    table, told, span = partition(web, begin, partition=name, page_size=size, **times)
    told_rows = table["n"].to_pylist() if given else []
    wanted = {"start": given[0], "end": given[-1] + 1} if given else None
    assert (told_rows, told, span) == ([model.partitions[name][index][1] for index in given], status, wanted)


def _ask_topic(web, model, chance):
    size, newest_first = chance.choice([1, 2, 3, 7, 20, 1000]), chance.random() < 0.4
    position = {name: chance.randrange(25) for name in chance.sample([*NAMES, "gone"], chance.choice([0, 0, 1, 3, 5]))}
    filters = chance.choice(FILTERS) if chance.random() < 0.3 else None
    seconds, times = _seconds(chance)
    query = {"page_size": size, "order": "desc" if newest_first else "asc", **times}
    query |= {f"partition_filter[{place}]": text for place, text in enumerate(filters or ())}
    if chance.random() < 0.5:
        query["dataset[0]"] = "n"  # of the page's records: skipped partitions need not have it
    rows, status, next_ = model.topic_page(position, size, newest_first=newest_first, seconds=seconds, filters=filters)
    table, told = topic(web, position, **query)
    assert (table["n"].to_pylist() if rows else table.num_rows or [], told) == (rows, {"status": status, "next": next_})


@pytest.mark.parametrize("seed", share_of([1, 2], 2))
def test_random_histories(server, web, seed):
    """For any appends, sealed or not, and any requests, records, status and next position equal the model's."""
    chance, model = random.Random(seed), Model()
    _append(web, model, chance)
    steps = 180 if ALL else 90
    for step in range(steps):
        do = chance.choices([_append, _ask_partition, _ask_topic], [2, 3, 5])[0]
        do(web, model, chance)
        if step == steps * 2 // 3:
            server.catalog.seal()
