"""A directory that follows a server: what it contains and when, after crashes of either side, and promotion."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import threading
import time
from pathlib import Path

import pytest
from effort import long
from served import served
from still import files_of
from waiting import PATIENCE_S, until

import aggregator
from aggregator import CatalogLockedError, InvalidRequestError
from aggregator.client.following import Follower
from aggregator.client.following import follower as follower_module
from aggregator.engine.writer import now_us
from aggregator.server.routes import copies
from aggregator.storage.log.copying import LogCopy, log_range


def rows(*times, space="a"):
    return [{"space": space, "timestamp": time, "data": f"{space}{time}".encode()} for time in times]


@contextlib.contextmanager
def following(url, path):
    with Follower(url, path) as follower:
        until(lambda: follower.wait_until_whole(1))  # it may only notice now that it must start over
        yield follower


def caught_up(follower, catalog):
    """Wait until the follower has everything that the catalog has now."""
    end, change = catalog._backend.log.end, catalog._backend.manifest.change()

    def reached():
        follower.check()
        return follower._note.position >= end and follower._note.change >= change

    until(reached)


def contents(catalog):
    """What a reader sees of a catalog, including record indexes."""
    found = {}
    for name in catalog.topics():
        topic = catalog.topic(name)
        for partition in topic.stats()["partitions"]:
            found[name, partition] = topic.read(partition).to_table().to_pylist()
    return found


def test_a_follower_has_topics_events_and_what_becomes_of_them(tmp_path):
    """A follower has all events with their record indexes, and follows policies, renames, deletions and erasures."""
    with served(tmp_path / "primary") as server, following(server.url, tmp_path / "copy") as follower:
        catalog = server.catalog
        topic = catalog.create_topic("t", indexes=["type"], roll={"rows": 1000})
        topic.append(rows(1, 2, 3))
        catalog.seal()
        topic.append(rows(4, 5), "other")
        caught_up(follower, catalog)
        with aggregator.open(tmp_path / "copy", read_only=True) as copy:
            assert contents(copy) == contents(catalog)
            catalog.create_topic("gone").append(rows(1))
            catalog.rename_topic("t", "renamed")
            catalog.topic("renamed").set_policy(retention={"bytes": "1 GiB"})
            caught_up(follower, catalog)
            assert copy.topics() == ("renamed", "gone")
            catalog.delete_topic("gone")
            topic = catalog.topic("renamed")
            topic.append(rows(6, space="b"))
            topic.erase("a")
            catalog.compact()
            caught_up(follower, catalog)
            assert copy.topics() == ("renamed",)
            assert contents(copy) == contents(catalog)
            assert [event["space"] for event in contents(copy)["renamed", "0"]] == ["b"]
            assert copy.topic("renamed").stats()["retention"]["bytes"] == 1 << 30
            until(lambda: copy.stats()["follows"]["lag_bytes"] == 0)  # it notes its progress from time to time


def test_erased_events_leave_the_disk_of_a_follower(tmp_path):
    """Bytes of erased events are in no file of the follower once the server's own files are gone."""
    with served(tmp_path / "primary") as server, following(server.url, tmp_path / "copy") as follower:
        topic = server.catalog.create_topic("t")
        topic.append([{"space": "secret", "timestamp": 1, "data": b"wanted by nobody"}])
        topic.append(rows(2))
        caught_up(follower, server.catalog)
        topic.erase("secret")
        server.catalog.compact()
        caught_up(follower, server.catalog)

        def holds():
            with contextlib.suppress(FileNotFoundError):  # one was deleted meanwhile
                return [path for path in files_of(tmp_path / "copy") if b"wanted by nobody" in path.read_bytes()]
            return True

        until(lambda: not holds())


def test_only_a_promoted_directory_is_written_to_and_no_index_is_given_twice(tmp_path):
    """A copy takes appends only once promoted, and reuses no record index, even of events it never received."""
    copy = tmp_path / "copy"
    with served(tmp_path / "primary") as server:
        topic = server.catalog.create_topic("t")
        with following(server.url, copy) as follower:
            topic.append(rows(1, 2), producer="p", sequence=1)
            caught_up(follower, server.catalog)
            with pytest.raises(CatalogLockedError):
                aggregator.promote(copy)
        lost = topic.append(rows(3, 4))
        with pytest.raises(CatalogLockedError, match="follows http"):
            aggregator.open(copy)
        with aggregator.open(copy, read_only=True) as reader, pytest.raises(aggregator.ReadOnlyError) as refused:
            reader.topic("t").append(rows(5))
        assert refused.value.hint == f"it follows {server.url}: write to that server"
    assert aggregator.promote(copy)["lag_bytes"] == 0
    with pytest.raises(InvalidRequestError, match="not the copy of a follower"):
        aggregator.promote(copy)
    with aggregator.open(copy) as catalog:
        topic = catalog.topic("t")
        again = topic.append(rows(1, 2), producer="p", sequence=1)
        assert (again.first, again.last, again.duplicate) == (0, 1, True)
        assert topic.append(rows(5)).first > lost.last
        assert topic.read().to_table()["timestamp"].cast("int64").to_pylist() == [1, 2, 5]
        assert catalog.problems() == []


def test_who_is_told_that_it_caught_up_may_look_at_once(tmp_path, monkeypatch):
    """After `wait_until_caught_up` an open reader sees all changes, however slowly they are marked as acknowledged."""
    acknowledge = LogCopy.acknowledge

    def slowly(copy, change):
        time.sleep(0.2)
        acknowledge(copy, change)

    monkeypatch.setattr(LogCopy, "acknowledge", slowly)
    with served(tmp_path / "primary") as server, following(server.url, tmp_path / "copy") as follower:
        server.catalog.create_topic("t").append(rows(1))
        caught_up(follower, server.catalog)
        with aggregator.open(tmp_path / "copy", read_only=True) as reader:
            server.catalog.rename_topic("t", "renamed")
            caught_up(follower, server.catalog)
            assert contents(reader) == contents(server.catalog)


def test_what_was_missed_of_the_log_is_in_segments(tmp_path):
    """A follower that was away while the server's log lost its oldest files gets everything, from segments."""
    copy = tmp_path / "copy"
    with served(tmp_path / "primary") as server:
        catalog, topic = server.catalog, server.catalog.create_topic("t")
        topic.append(rows(1))
        with following(server.url, copy) as follower:
            caught_up(follower, catalog)
        for time_ in range(2, 6):
            topic.append(rows(time_))
            catalog._backend.log.roll()
            catalog.seal()
        assert catalog._backend.log.start > follower._note.position
        topic.append(rows(6))
        with aggregator.open(copy, read_only=True) as reader, following(server.url, copy) as follower:
            caught_up(follower, catalog)
            assert contents(reader) == contents(catalog)
            with aggregator.open(copy, read_only=True) as fresh:
                assert contents(fresh) == contents(catalog)
                assert fresh.problems() == []


def test_a_file_of_the_log_goes_as_it_is_read(tmp_path, monkeypatch):
    """If a log file is deleted while it is read, the follower asks again: its events are in segments by then."""
    with served(tmp_path / "primary", log_bytes="1 MiB") as server:
        topic, gone = server.catalog.create_topic("t"), []

        def sealing(directory, position, most):
            piece = log_range(directory, position, most)
            if not gone:
                server.catalog.seal()
                gone.append(not piece.path.exists())
            return piece

        for n in range(3):
            topic.append([{"space": "a", "timestamp": n, "data": os.urandom(200_000)}])
        monkeypatch.setattr(copies, "log_range", sealing)
        with following(server.url, tmp_path / "copy") as follower:
            caught_up(follower, server.catalog)
            with aggregator.open(tmp_path / "copy", read_only=True) as copy:
                assert contents(copy) == contents(server.catalog)
        assert gone == [True]


def test_positions_of_a_copy_hold_when_the_server_was_restarted(tmp_path, monkeypatch):
    """Positions of a copy survive a server restart: records of the new run are shown only with that run's manifest."""
    primary, copy, text = tmp_path / "primary", tmp_path / "copy", "SELECT FROM app = web LIMIT 100"
    released, fetch = threading.Event(), Follower._fetch

    def late(follower, named):
        assert released.wait(60)
        fetch(follower, named)

    with served(primary) as server:
        server.catalog.write({"app": "web"}, [{"ts": 1, "msg": "before"}])
        with following(server.url, copy) as follower:
            caught_up(follower, server.catalog)
    monkeypatch.setattr(Follower, "_fetch", late)
    with served(primary) as server, Follower(server.url, copy) as follower:
        server.catalog.write({"app": "web"}, [{"ts": 2, "msg": "after"}])
        until(lambda: follower._note.position >= server.catalog._backend.log.end)
        with aggregator.open(copy, read_only=True) as reader:
            found = reader.query(text)
            seen = len(list(found))
            assert len(list(server.catalog.query(f"{text} POSITION {found.position}"))) == 2 - seen
            released.set()
            until(lambda: len(list(reader.query(text))) == 2)


@long
def test_a_follower_outlasts_restarts_of_the_server(tmp_path):
    """A follower continues where it was when another process serves the catalog."""
    copy = tmp_path / "copy"
    with served(tmp_path / "primary") as server:
        server.catalog.create_topic("t").append(rows(1))
        with following(server.url, copy) as follower:
            caught_up(follower, server.catalog)
    for number in range(2, 5):
        with served(tmp_path / "primary") as server, following(server.url, copy) as follower:
            server.catalog.topic("t").append(rows(number))
            caught_up(follower, server.catalog)
            with aggregator.open(copy, read_only=True) as reader:
                assert contents(reader) == contents(server.catalog)


def test_a_clock_that_is_set_back_holds_up_nobody(tmp_path, monkeypatch):
    """A clock that is set back does not delay `wait_until_caught_up`."""
    ahead_us, wait, ended = [3_600_000_000], Follower.wait, threading.Event()

    def waits(follower, timeout_s=None):
        ahead_us[0] = 0  # it has started waiting
        return wait(follower, timeout_s)

    def wait_for_all(follower):
        follower.wait_until_caught_up()
        ended.set()

    monkeypatch.setattr(follower_module, "now_us", lambda: now_us() + ahead_us[0])
    monkeypatch.setattr(Follower, "wait", waits)
    with served(tmp_path / "primary") as server, Follower(server.url, tmp_path / "copy") as follower:
        threading.Thread(target=wait_for_all, args=(follower,), daemon=True).start()
        assert ended.wait(PATIENCE_S)


def test_another_catalog_is_not_followed_into_the_same_directory(tmp_path):
    """A follower refuses a directory that follows another catalog or contains a separate one."""
    with served(tmp_path / "first") as server, following(server.url, tmp_path / "copy") as follower:
        caught_up(follower, server.catalog)
    with served(tmp_path / "second") as server:
        with (
            Follower(server.url, tmp_path / "copy") as follower,
            pytest.raises(InvalidRequestError, match="a different catalog"),
        ):
            follower.wait(PATIENCE_S)
        with pytest.raises(InvalidRequestError, match="already contains a catalog"):
            Follower(server.url, tmp_path / "first")


def test_a_server_that_lost_its_end_is_not_followed(tmp_path):
    """A server that lost the end of its log, as in a power cut without syncs, is refused: the user must decide."""
    copy, primary = tmp_path / "copy", tmp_path / "primary"
    with served(primary) as server:
        topic = server.catalog.create_topic("t")
        topic.append(rows(1))
        with following(server.url, copy) as follower:
            topic.append(rows(2))
            caught_up(follower, server.catalog)
        size = server.catalog._backend.log.end - server.catalog._backend.log.newest
    newest = max((primary / "log").glob("*.log"))
    assert newest.stat().st_size == size
    with newest.open("r+b") as file:
        file.truncate(size - 100)
    (primary / "log" / "acknowledged").unlink()
    with served(primary) as server:
        server.catalog.topic("t").append(rows(3, 4, 5))
        with Follower(server.url, copy) as follower, pytest.raises(InvalidRequestError, match="another history"):
            follower.wait(PATIENCE_S)


def write_on(path, count, space):
    """Append batches to a server and seal them, so that its log files are deleted."""
    with served(path) as server:
        topic = server.catalog.topic("t")
        for time in range(count):
            topic.append(rows(time, space=space))
            server.catalog.seal()


@pytest.mark.parametrize(("before", "after"), [(3, 3), (3, 30), (30, 31)])
def test_a_server_that_goes_on_from_an_older_copy_is_not_followed(tmp_path, before, after):
    """A server restored from an older copy is refused, however long its log is; the follower keeps the lost records."""
    copy, primary, backup = tmp_path / "copy", tmp_path / "primary", tmp_path / "backup"
    with aggregator.open(primary) as catalog:
        catalog.create_topic("t").append(rows(1))
    shutil.copytree(primary, backup)
    write_on(primary, before, "lost")
    with served(primary) as server, following(server.url, copy) as follower:
        caught_up(follower, server.catalog)
    shutil.rmtree(primary)
    backup.rename(primary)
    write_on(primary, after, "new")
    with (
        served(primary) as server,
        Follower(server.url, copy) as follower,
        pytest.raises(InvalidRequestError, match="promote"),
    ):
        follower.wait(PATIENCE_S)
    assert aggregator.promote(copy)["whole"]
    with aggregator.open(copy) as catalog:
        assert (catalog.problems(), catalog.topic("t").scan(space="lost").count()) == ([], before)
        assert catalog.topic("t").scan().count() == 1 + before


def test_trouble_with_files_is_told_as_long_as_it_lasts(tmp_path, monkeypatch, caplog):
    """Trouble with files is reported while it lasts, although the log continues; the program's log gets one line."""
    primary, copy, full = tmp_path / "primary", tmp_path / "copy", OSError(errno.ENOSPC, "No space left on device")
    failures = []

    def fails(follower, named):
        failures.append(named)
        raise full

    with served(primary) as server, following(server.url, copy) as follower:
        topic = server.catalog.create_topic("t")
        fetch = Follower._fetch
        monkeypatch.setattr(Follower, "_fetch", fails)
        topic.append(rows(1))
        server.catalog.seal()
        until(lambda: failures and follower.lag["trouble"])

        def lasts():
            """The log is requested every second, and the file again after a while."""
            assert "No space left" in (follower.lag["trouble"] or "it was forgotten")
            return len(failures) > 2

        until(lasts)
        assert [record.message.count("No space left") for record in caplog.records] == [1]
        monkeypatch.setattr(Follower, "_fetch", fetch)
        caught_up(follower, server.catalog)
        until(lambda: follower.lag["trouble"] is None)


def test_a_follower_that_lacks_what_another_has_is_not_followed(tmp_path):
    """A follower refuses a promoted follower that was behind it: it would lose records that only it has."""
    primary, behind, ahead = tmp_path / "primary", tmp_path / "behind", tmp_path / "ahead"
    with served(primary) as server:
        topic = server.catalog.create_topic("t")
        topic.append(rows(1))
        with following(server.url, behind) as follower:
            caught_up(follower, server.catalog)
        shutil.copytree(behind, ahead)
        topic.append(rows(2, 3, space="seen"))
        with following(server.url, ahead) as follower:
            caught_up(follower, server.catalog)
    aggregator.promote(behind)
    for _ in range(3):
        write_on(behind, 5, "new")
    with (
        served(behind) as server,
        Follower(server.url, ahead) as follower,
        pytest.raises(InvalidRequestError, match="promote"),
    ):
        follower.wait(PATIENCE_S)
    with aggregator.open(ahead, read_only=True) as catalog:
        assert catalog.topic("t").scan(space="seen").count() == 2


@long
def test_lag_is_told(tmp_path):
    """A follower's lag is in `lag` and in `stats`, also after the follower stopped."""
    copy = tmp_path / "copy"
    with served(tmp_path / "primary") as server, following(server.url, copy) as follower:
        server.catalog.create_topic("t").append(rows(1))
        caught_up(follower, server.catalog)
        until(lambda: follower.lag["lag_seconds"] == 0)
    with aggregator.open(copy, read_only=True) as reader:
        told = reader.stats()["follows"]
        assert told["url"] == server.url
        assert told["whole"]
        assert told["lag_bytes"] == 0


@long
def test_a_follower_can_be_followed(tmp_path):
    """A server over a copy can be followed itself."""
    from aggregator.server import RunningServer, Settings
    from aggregator.server.config.settings import Http

    with served(tmp_path / "primary") as server, following(server.url, tmp_path / "copy") as first:
        topic = server.catalog.create_topic("t")
        topic.append(rows(1))
        caught_up(first, server.catalog)
        settings = Settings(http=Http(bind="127.0.0.1:0"))
        with (
            aggregator.open(tmp_path / "copy", read_only=True) as copy,
            RunningServer(copy, settings) as second,
            following(second.url, tmp_path / "third") as last,
        ):
            topic.append(rows(2))
            server.catalog.seal()
            topic.append(rows(3))
            caught_up(last, server.catalog)
            with aggregator.open(tmp_path / "third", read_only=True) as reader:
                assert contents(reader) == contents(server.catalog)


def test_a_directory_that_is_copied_to_is_left_to_its_owner(tmp_path: Path):
    """A second follower of the same directory is refused."""
    with (
        served(tmp_path / "primary") as server,
        following(server.url, tmp_path / "copy"),
        pytest.raises(CatalogLockedError),
    ):
        Follower(server.url, tmp_path / "copy")


def test_a_catalog_with_a_store_is_followed_and_not_promoted(tmp_path):
    """Segments that are only in the store are read there. A catalog with a store is not promoted."""
    store = (tmp_path / "store").as_uri()
    aggregator.open(tmp_path / "primary", store=store).close()
    with served(tmp_path / "primary") as server:
        catalog = server.catalog
        topic = catalog.create_topic("t")
        topic.append(rows(1, 2, 3))
        catalog.seal()
        catalog.store.push()
        assert len(catalog.store.evict(keep_local={"bytes": 0})) == 1
        topic.append(rows(4, 5))
        catalog.seal()
        topic.append(rows(6))
        with following(server.url, tmp_path / "copy") as follower:
            caught_up(follower, catalog)
            with aggregator.open(tmp_path / "copy", read_only=True) as copy:
                assert contents(copy) == contents(catalog)
            assert len(list((tmp_path / "copy" / "segments").glob("*/*.esdb"))) == 1
    with pytest.raises(InvalidRequestError, match="has a store"):
        aggregator.promote(tmp_path / "copy")
