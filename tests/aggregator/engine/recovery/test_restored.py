"""A restored copy of a catalog refuses positions from after the copy, because their record indexes are reused."""

from __future__ import annotations

import io
import shutil
from contextlib import closing

import pytest
from effort import examples, pairs_of
from hypothesis import given
from hypothesis import strategies as st
from waiting import until

import aggregator
from aggregator.forward import Forwarder, Sender, forwarder, make_destination
from aggregator.lql import Template
from aggregator.storage.manifest import IncarnationRows, Manifest
from aggregator.storage.manifest.lineage import BEFORE, MAX_INCARNATIONS, Lineage

pytestmark = pytest.mark.usefixtures("quiet")

REFUSED = "from after the state that this catalog was restored from"


def write(catalog, *messages, first=1):
    catalog.write({"app": "a"}, [{"msg": message, "ts": n} for n, message in enumerate(messages, first)])


def read(catalog, position):
    answer = catalog.query(f"SELECT POSITION {position}")
    return [event.data.decode() for event in answer], answer.gone


def position_of(catalog):
    answer = catalog.query("SELECT")
    list(answer)
    return answer.position


def restore(root, copy):
    shutil.rmtree(root)
    shutil.copytree(copy, root)


@pytest.fixture
def root(tmp_path):
    return tmp_path / "data"


@pytest.fixture
def copy(tmp_path):
    return tmp_path / "copy"


@pytest.mark.parametrize(("copied", "sealed", "idle"), pairs_of(["while open", "when closed"], [True, False], [0, 2]))
def test_positions(root, copy, copied, sealed, idle):
    """Positions from before the copy stay valid; those from after it are refused, whatever the indexes, also if the
    catalog was opened in between.
    """
    live = copied == "while open"
    catalog = aggregator.open(root)
    write(catalog, "1", "2")
    early = position_of(catalog)
    write(catalog, "3")
    if sealed:
        catalog.seal()
    at_copy = position_of(catalog)
    if not live:
        catalog.close()
    shutil.copytree(root, copy)
    if not live:
        catalog = aggregator.open(root)
    assert read(catalog, at_copy) == ([], 0)
    lost = []
    for n in range(5):
        write(catalog, f"lost {n}")
        lost.append(position_of(catalog))
    page = catalog.query("SELECT LIMIT 1")
    list(page)
    in_a_round = page.position
    assert read(catalog, lost[1])[0] == ["lost 2", "lost 3", "lost 4"]
    catalog.close()
    restore(root, copy)
    for _ in range(idle):
        aggregator.open(root).close()
    new = []
    for _ in range(3):
        with aggregator.open(root) as catalog:
            new += ["new 1", "new 2", "new 3"]
            write(catalog, "new 1", "new 2", "new 3")
            for position in (*lost, in_a_round):
                with pytest.raises(aggregator.InvalidRequestError, match=REFUSED):
                    catalog.query(f"SELECT POSITION {position}")
                with pytest.raises(aggregator.InvalidRequestError, match=REFUSED):
                    catalog.tail(f"SELECT POSITION {position}")
            assert sorted(read(catalog, early)[0]) == sorted(["3", *new])
            assert sorted(read(catalog, at_copy)[0]) == sorted(new)
            assert read(catalog, position_of(catalog)) == ([], 0)


def test_a_reader_of_a_restored_copy(root, copy):
    """A reader refuses later positions, too, even if no writer has opened the copy."""
    with aggregator.open(root) as catalog:
        write(catalog, "1", "2")
        kept = position_of(catalog)
        shutil.copytree(root, copy)
        write(catalog, "lost")
        lost = position_of(catalog)
        with aggregator.open(root, read_only=True) as reader:
            assert read(reader, lost) == ([], 0)
            write(catalog, "4")
            assert read(reader, lost) == (["4"], 0)
            assert read(reader, position_of(catalog)) == ([], 0)
    with aggregator.open(copy, read_only=True) as reader:
        assert read(reader, kept) == ([], 0)
        with pytest.raises(aggregator.InvalidRequestError, match=REFUSED):
            read(reader, lost)
        with aggregator.open(copy) as writer:
            write(writer, "new", "new")
            assert read(reader, kept) == (["new", "new"], 0)
            assert read(writer, position_of(reader)) == ([], 0)
            with pytest.raises(aggregator.InvalidRequestError, match=REFUSED):
                read(reader, lost)


def test_a_forwarder(root, copy, tmp_path, monkeypatch):
    """A forwarder's notes from after the copy are refused; earlier notes continue with new records."""
    monkeypatch.setattr(forwarder, "NOTE_S", 0.05)

    def forward(notes):
        sent = io.BytesIO()
        to = make_destination("stdout", Template.compile("{msg}"), sent, sender=Sender(host="h"), headers={}, ca=None)
        with aggregator.open(root) as catalog:
            write(catalog, "next")
            Forwarder(catalog, "SELECT POSITION HEAD", to, tmp_path / notes, once=True).run()
        return sent.getvalue().split()

    with aggregator.open(root) as catalog:
        write(catalog, "1", "2")
    forward("notes")
    shutil.copy(tmp_path / "notes", tmp_path / "early")
    shutil.copytree(root, copy)
    forward("notes")
    restore(root, copy)
    with pytest.raises(aggregator.InvalidRequestError, match=REFUSED):
        forward("notes")
    assert forward("early") == [b"next", b"next"]


def test_pipes_and_copies(root, copy):
    """In a restored copy, a pipe continues exactly where the copy's pipe was."""
    with aggregator.open(root) as catalog:
        catalog.query("CREATE PIPE p FROM app = a")
        write(catalog, "1", "2")
        tail = catalog.tail("SELECT FROM logrange.pipe = p POSITION HEAD LIMIT 2", timeout_s=120)
        assert len(list(tail)) == 2
    shutil.copytree(root, copy)
    with aggregator.open(root) as catalog:
        write(catalog, "lost")
        assert len(list(catalog.tail("SELECT FROM logrange.pipe = p POSITION HEAD LIMIT 3", timeout_s=120))) == 3
    restore(root, copy)
    with aggregator.open(root) as catalog:
        write(catalog, "new", "newer", first=3)  # what the pipe copied before the tail began arrives by time
        tail = catalog.tail("SELECT FROM logrange.pipe = p POSITION HEAD LIMIT 4", timeout_s=120)
        assert [event.data for event in tail] == [b"1", b"2", b"new", b"newer"]
        until(lambda: [(pipe["copied"], pipe["gone"]) for pipe in catalog.stats()["pipes"]] == [(4, 0)])


def test_a_manifest_that_is_an_old_copy_alone(root, copy):
    """If only the manifest is an old copy, segments prove that later records exist, and their positions stay valid."""
    with aggregator.open(root) as catalog:
        write(catalog, "1")
    copy.mkdir()
    shutil.copy(root / "manifest.sqlite", copy)
    with aggregator.open(root) as catalog:
        write(catalog, "2")
        catalog.seal()
        later = position_of(catalog)
    shutil.copy(copy / "manifest.sqlite", root)
    with aggregator.open(root) as catalog:
        assert {problem.action for problem in catalog.problems()} == {"taken in"}
        write(catalog, "3")
        assert read(catalog, later) == (["3"], 0)


# ------------------------------------------------------------ the past itself


def test_the_past_is_bounded(tmp_path):
    """Only the newest openings are kept apart; of earlier ones only the end is known."""
    with closing(Manifest(tmp_path / "manifest.sqlite")) as manifest:
        with manifest.writing() as db:
            db.execute("INSERT INTO topics VALUES (1, 't', 'text', '[]', '{}', '{}', 0, 0)")
            db.execute("INSERT INTO partitions VALUES (1, 1, '0', 0, 0), (2, 1, '1', 0, 0)")
        rows = IncarnationRows(manifest)
        for n in range(MAX_INCARNATIONS + 20):
            rows.begin({1: 10 * n, 2: 5}, known=True)
        for _ in range(5):
            rows.begin({1: 10 * n, 2: 5}, known=True)  # which appended nothing
        past = rows.lineage()
        assert (len(past.names), past.names[0], rows.newest()) == (MAX_INCARNATIONS + 1, BEFORE, past.names[-1])
        assert [past.start(at, 1) for at in (0, 1, 2, MAX_INCARNATIONS)] == [0, 200, 210, 10 * n]
        assert [past.start(at, 2) for at in (0, 1, 2)] == [0, 5, 5]
        assert past.has(b"old?", {1: 200, 2: 5}, {})
        assert not past.has(b"old?", {1: 201}, {})
        with manifest.reading() as db:
            assert db.execute("SELECT count(*) FROM incarnation_starts").fetchone()[0] < MAX_INCARNATIONS + 5


@examples(300)
@given(st.data())
def test_histories_that_part(data):
    """A position is accepted exactly if both branches share all records before it, however often either was opened and
    wherever the position was issued. The original may continue without being reopened.
    """

    def extended(starts, least, most):
        more = data.draw(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=least, max_size=most))
        for each in more:
            starts = [*starts, (starts[-1][0] + each[0], starts[-1][1] + each[1])]
        return starts

    def past(starts, common, tag):
        named = [(n, (b"c" if n <= common else tag) + b"%03d" % n) for n in range(1, len(starts))]
        firsts = [(n, p, starts[n - 1][p]) for n, _ in named for p in (0, 1)]
        return Lineage.of(b"x", [(0, BEFORE), *named], firsts), dict(enumerate(starts[-1]))

    *begun, parted = extended([(0, 0)], 1, 4)
    original = extended([parted], 1, 3)[data.draw(st.integers(0, 1)) :]
    branches = [past([*begun, *original], len(begun), b"a")]
    branches.append(past([*begun, *extended([parted], 1, 3)], len(begun), b"b"))
    (mine, my_ends), (other, other_ends) = data.draw(st.permutations(branches))
    ends = {p: data.draw(st.integers(0, my_ends[p])) for p in (0, 1)}
    name = mine.name_of(ends)
    assert mine.has(name, ends, my_ends)
    assert other.has(name, ends, other_ends) == all(ends[p] <= parted[p] for p in (0, 1))
