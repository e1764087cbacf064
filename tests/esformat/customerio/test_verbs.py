"""An open file of the Go ESDB has the same results as the segment that it is converted to."""

from __future__ import annotations

import datetime as dt
import inspect

import pytest
from effort import share_of
from go_files import as_bytes, path_of, shown

import esformat
from esformat import ClosedError, UnknownIndexError, UsageError, customerio
from esformat.convert import convert_file


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    """An archive, and the segment converted from it."""
    path = tmp_path_factory.mktemp("verbs") / "a.esdb"
    convert_file(str(path_of("many_spaces")), str(path))
    with customerio.open(path_of("many_spaces")) as archive, esformat.open(path) as segment:
        yield archive, segment


QUESTIONS = [
    {},
    {"reverse": True},
    {"limit": 0},
    {"limit": 5},
    {"limit": 5, "reverse": True},
    {"start": 1_400_200_000_000_000},
    {"end": dt.datetime(2014, 5, 18, tzinfo=dt.UTC)},
    {"start": 1_400_200_000_000_000, "end": 1_400_500_000_000_000, "reverse": True, "limit": 100},
    {"grouping": "app:ios"},
    {"grouping": "é".encode(), "reverse": True},
    {"grouping": "none"},
    {"columns": ["data"]},
    {"columns": ["type", "timestamp"], "start": 1_400_200_000_000_000, "grouping": ""},
]
CONDITIONS = [("type", "page"), ("country", ""), ("country", "none"), ({"type": "page", "country": "SE"},)]


@pytest.mark.parametrize("question", share_of(QUESTIONS, 5), ids=str)
def test_same_answers(both, question):
    """Scans of the file and of spaces agree with the segment, with and without conditions, in every form."""
    archive, segment = both
    keys = list(segment.spaces())
    assert [as_bytes(key) for key in archive.spaces()] == keys
    pairs = [(archive.scan(**question), segment.scan(**question))]
    pairs += [(archive.scan_index(*c, **question), segment.scan_index(*c, **question)) for c in CONDITIONS]
    for key in share_of(keys[::97], 4):
        pairs.append((archive[key].scan(**question), segment[key].scan(**question)))
        pairs += [
            (archive[key].scan_index(*c, **question), segment[key].scan_index(*c, **question)) for c in CONDITIONS
        ]
    for ours, theirs in pairs:
        assert ours.to_table() == theirs.to_table()
        assert ours.count() == theirs.count()
        assert ours.schema == theirs.schema
    if "columns" not in question:
        assert shown(pairs[0][0]) == shown(pairs[0][1])
        assert pairs[0][0].to_reader().read_all() == pairs[0][1].to_table()


@pytest.mark.parametrize(
    "name", ["scan", "scan_index", "find", "spaces", "index_values", "may_contain", "close", "info"]
)
def test_same_signatures(name):
    """The methods have the same parameters as those of a segment."""
    wanted = _shape(getattr(esformat.Segment, name))
    assert _shape(getattr(customerio.Archive, name)) == wanted
    assert _shape(getattr(customerio.Stream, name)) == wanted


def _shape(verb):
    return [(p.name, p.kind, p.default) for p in inspect.signature(verb).parameters.values()]


def test_scan_has_the_same_names():
    """The public names of a segment's `Scan` exist here, too, except those about blocks."""
    public = {name for name in vars(esformat.Scan) if not name.startswith("_")} | {"__iter__", "__arrow_c_stream__"}
    public -= {"blocks", "in_batches_of", "with_texts", "matching", "candidates", "times"}
    assert {name for name in public if not hasattr(customerio.Scan, name)} == set()


@pytest.mark.parametrize("key", [b"nobody", "nobody", ""])
def test_absent(both, key):
    """An unknown space is not found."""
    archive, _ = both
    assert archive.find(key) is None
    assert key not in archive
    assert not archive.may_contain(key)
    with pytest.raises(KeyError):
        archive[key]


def test_wrong_questions(both):
    """A wrong argument raises immediately, not when the scan is read."""
    archive, _ = both
    for name in ("nothing", "data"):
        with pytest.raises(UnknownIndexError):
            archive.scan_index(name, "x")
    with pytest.raises(UsageError, match="holds text, not 3"):
        archive.scan_index("type", 3)
    for wrong in ({"limit": -1}, {"columns": "data"}, {"columns": []}, {"columns": ["x"]}, {"grouping": 1}):
        with pytest.raises(UsageError):
            archive.scan(**wrong)
    with pytest.raises(UsageError):
        archive.find(3)
    with pytest.raises(esformat.InvalidEventError, match="time zone"):
        archive.scan(start=dt.datetime(2020, 1, 1))


@pytest.mark.parametrize("name", ["small", "stream_closed"])
def test_closed(name):
    """A closed file refuses every query."""
    file = customerio.open(path_of(name))
    scan = file.scan()
    file.close()
    file.close()
    with pytest.raises(ClosedError):
        scan.to_table()
    with pytest.raises(ClosedError):
        file.find("1") if name == "small" else list(file.scan())


def test_stream_is_one_space():
    """A stream is the space "" with the grouping "", at time 0."""
    with customerio.open(path_of("stream_closed")) as stream:
        assert dict(stream.spaces().items()) == {"": 300}
        assert dict(stream.spaces("x").items()) == {}
        assert stream.find("x") is None
        assert stream[""].scan(limit=3, reverse=True).to_table() == stream.scan(limit=3, reverse=True).to_table()
        assert stream[""].scan_index("type", "page").count() == stream.index_values("type")["page"]
        assert stream.scan(start=1).count() == 0
        assert stream.scan(end=1).count() == 300
