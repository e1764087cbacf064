"""`aggregator serve --follow`, `follow` and `promote` as processes, with tokens, and their output."""

from __future__ import annotations

import json
import subprocess
import sys

import httpx
import pytest
from effort import long
from ports import free_port
from served import Spawned, served
from waiting import until

import aggregator
from aggregator import ReadOnlyError
from aggregator.cli import run as run_here
from aggregator.cli.server import follow as follow_command
from aggregator.client import AccessDeniedError, Client, UnavailableError
from aggregator.client.following import Follower
from aggregator.server.control.tokens import FILE, create


def run(*arguments):
    return subprocess.run([sys.executable, "-m", "aggregator", *arguments], capture_output=True, text=True, timeout=120)


def test_a_copy_is_served_while_it_follows_and_promoted_when_the_server_is_gone(tmp_path):
    """A served copy shows new events within moments and reports its lag; once promoted, it takes appends."""
    copy, token = tmp_path / "copy", tmp_path / "token"
    with served(tmp_path / "data") as server:
        token.write_text(create(tmp_path / "data" / FILE, "follower", ["admin"]))
        server.catalog.create_topic("t").append([{"space": "a", "timestamp": 1}])
        with Spawned(copy, "--follow", server.url, "--set", f"follow.token_file={token}") as following:
            with Client(following.url) as client:
                assert client.topic("t").scan().count() == 1
                server.catalog.topic("t").append([{"space": "a", "timestamp": 2}])
                until(lambda: client.topic("t").scan().count() == 2)
                tail = client.page("SELECT", "tail")
                server.catalog.write({"app": "web"}, [{"msg": "new"}])
                found = client.page("SELECT", tail.position, wait_s=30)
                assert found.table["data"].to_pylist() == [b"new"]
                with pytest.raises(ReadOnlyError):
                    client.topic("t").append([{"space": "a", "timestamp": 3}])
                until(lambda: client.stats()["follows"]["lag_seconds"] == 0)
            figures = httpx.get(f"{following.url}/metrics").text
            assert "aggregator_follow_lag_bytes 0.0" in figures
            assert "aggregator_follow_trouble 0.0" in figures
            locked = run("promote", str(copy))
            assert locked.returncode == 1, locked.stderr
            assert "open for writing by process" in locked.stderr
            assert following.stop() == 0
    told = run("stats", str(copy))
    assert "follows" in told.stdout
    assert "0 bytes behind" in told.stdout
    assert json.loads(run("promote", str(copy), "--json").stdout)["lag_bytes"] == 0
    with aggregator.open(copy) as catalog:
        assert catalog.topic("t").append([{"space": "a", "timestamp": 4}]).first > 2
        assert catalog.stats()["follows"] is None


def test_followers_need_the_scope_admin(tmp_path):
    """Following needs the scope admin: read access to topics does not cover all of a catalog's bytes."""
    with served(tmp_path / "data") as server:
        token = create(tmp_path / "data" / FILE, "reader", ["read", "write"])
        until(lambda: httpx.get(f"{server.url}/v1/topics").status_code == 401)
        with Follower(server.url, tmp_path / "copy", token=token) as follower, pytest.raises(AccessDeniedError):
            follower.wait(60)
        assert follower.lag["trouble"] is not None


def test_a_server_that_is_not_there(tmp_path, monkeypatch, capfd):
    """`wait_until_caught_up` and `aggregator follow --once` give up after a while if the server is unreachable."""
    url = f"http://127.0.0.1:{free_port()}"
    with Follower(url, tmp_path / "copy") as follower, pytest.raises(UnavailableError, match="cannot be reached"):
        follower.wait_until_caught_up(0.3)
    monkeypatch.setattr(follow_command, "ONCE_PATIENCE_S", 0.3)
    assert run_here(["follow", url, str(tmp_path / "copy"), "--once"]) == 1
    assert "cannot be reached" in capfd.readouterr().err


@long
def test_a_copy_is_made_once_by_a_command(tmp_path):
    """`follow --once` makes a copy; the next run updates it."""
    with served(tmp_path / "data") as server:
        for time in range(2):
            server.catalog.create_topic("t", exist_ok=True).append([{"space": "a", "timestamp": time}])
            done = run("follow", server.url, str(tmp_path / "copy"), "--once")
            assert (done.returncode, done.stderr) == (0, "")
            assert "0 bytes behind" in done.stdout
            with aggregator.open(tmp_path / "copy", read_only=True) as copy:
                assert copy.topic("t").scan().count() == time + 1
    assert run("follow", str(tmp_path / "data"), str(tmp_path / "copy")).returncode == 2
