"""Every method agrees with a plain list, for any events, written in any way and in blocks of any size."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pyarrow as pa
from effort import examples
from event_model import Model, Question, event_facts, table_records
from event_strategies import Recording, questions, recordings, write_recording
from hypothesis import given, note
from hypothesis import strategies as st
from small_pieces import cut_small

import esformat


def ask(segment: esformat.Segment, model: Model, asked: Question) -> esformat.Scan | None:
    """The scan of a query; None if the segment lacks the space."""
    holder = segment
    if asked.space is not None:
        holder = segment.find(model.shown(asked.space))
        if holder is None:
            return None
    options = {
        "grouping": None if asked.grouping is None else model.shown(asked.grouping),
        "start": asked.start,
        "end": asked.end,
        "reverse": asked.reverse,
        "limit": asked.limit,
        "columns": None if asked.columns is None else list(asked.columns),
    }
    if len(asked.conditions) == 1:
        ((name, value),) = asked.conditions.items()
        return holder.scan_index(name, value, **options)
    if asked.conditions:
        return holder.scan_index(asked.conditions, **options)
    return holder.scan(**options)


def check_answer(segment: esformat.Segment, model: Model, asked: Question) -> None:
    """Check that a scan has the model's rows, in every form and when repeated."""
    rows = model.scan(asked)
    answer = ask(segment, model, asked)
    assert answer is not None
    events = [model.event(row, asked.columns) for row in rows]
    assert [event_facts(event) for event in answer] == events
    table = answer.to_table()
    assert table.schema.equals(answer.schema)
    assert tuple(table.column_names) == (asked.columns or model.names())
    assert table_records(table) == [model.record(row, asked.columns) for row in rows]
    assert answer.count() == len(rows)
    if isinstance(answer, esformat.Scan) and asked.limit is None:
        times = [time for some in answer.times() for time in some.tolist()]
        assert sorted(times) == sorted(row.timestamp for row in rows)
    table.validate(full=True)
    assert pa.RecordBatchReader.from_stream(answer).read_all().equals(table)
    assert all(len(batch) for batch in answer.batches())
    assert [event_facts(event) for event in answer] == events


def check_listings(segment: esformat.Segment, model: Model) -> None:
    """Check facts, keys and index values with their counts."""
    spaces = model.spaces()
    times = [row.timestamp for row in model.rows]
    assert segment.num_events == len(model.rows)
    assert segment.num_spaces == len(segment.spaces()) == len(spaces)
    assert (segment.min_timestamp, segment.max_timestamp) == (min(times, default=None), max(times, default=None))
    assert tuple(segment.schema.names) == model.names()
    assert list(segment.spaces().items()) == list(spaces.items())
    for key in spaces:
        stored = key if isinstance(key, bytes) else key.encode()
        space = segment[key]
        assert (space.key, space.key_bytes, len(space), space.num_events) == (key, stored, spaces[key], spaces[key])
        assert segment.may_contain(key)
        assert key in segment
        assert segment.find(stored).key == key  # keys are found as text and as bytes
        assert segment.spaces()[key] == spaces[key]
        assert list(space.groupings().items()) == list(model.groupings(stored).items())
        assert all(space.groupings()[name] == count for name, count in model.groupings(stored).items())
        for prefix in {stored, stored[:1]}:
            expected = list(model.spaces(prefix).items())
            assert list(segment.spaces(prefix=prefix).items()) == expected
    for name in segment.indexes:
        values = model.index_values(name)
        assert list(segment.index_values(name).items()) == list(values.items())
        assert all(segment.index_values(name)[value] == count for value, count in values.items())


def check_mirrors(segment: esformat.Segment) -> None:
    """Check that every reverse scan has the exact opposite order, including ties."""
    scans = [segment.scan, *(segment[space].scan for space in segment.spaces())]
    for scan in scans:
        forward = [event_facts(event) for event in scan()]
        assert [event_facts(event) for event in scan(reverse=True)] == forward[::-1]


@examples(150)
@given(st.data(), recordings())
def test_every_scan_of_every_file(data: st.DataObject, recording: Recording) -> None:
    """Arbitrary events are read back by every kind of scan, in both directions."""
    model = recording.model
    with tempfile.TemporaryDirectory() as directory, cut_small(recording.pieces):
        path = Path(directory) / "events.esdb"
        write_recording(recording, path)
        with esformat.open(path, cache_bytes=recording.cache_bytes) as segment:
            check_listings(segment, model)
            check_mirrors(segment)
            for asked in data.draw(st.lists(questions(recording), min_size=1, max_size=6)):
                note(repr(recording.rows))
                check_answer(segment, model, asked)
