"""`aggregator token`: create, list, revoke."""

from __future__ import annotations

import json

from aggregator.cli import run
from aggregator.server.control.tokens import Authority


def test_life_of_a_token(tmp_path, capsys):
    """The output of `create` opens the server; the list shows no secret; `revoke` ends access; errors are reported."""
    catalog = str(tmp_path)
    arguments = ["token", "create", catalog, "web", "--scope", "write", "--topic", "clicks", "--expires", "1d"]
    assert run(arguments) == 0
    token = capsys.readouterr().out.strip()
    access = Authority(tmp_path / "tokens.json").access(f"Bearer {token}")
    assert access.allows("write", "clicks")
    assert not access.allows("read", "clicks")
    assert run(["token", "list", catalog, "--json"]) == 0
    out = capsys.readouterr().out
    (listed,) = json.loads(out)
    assert (listed["name"], listed["topics"]) == ("web", ["clicks"])
    assert token.split("_", 2)[2] not in out
    assert "digest" not in listed
    assert run(["token", "list", catalog]) == 0
    assert f"{listed['id']}  web: write on clicks, until" in capsys.readouterr().out
    assert run(["token", "revoke", catalog, listed["id"]]) == 0
    assert run(["token", "revoke", catalog, "web"]) == 2
    assert "no token 'web'" in capsys.readouterr().err
    assert run(["token", "list", catalog]) == 0
    assert "no tokens" in capsys.readouterr().out
    assert run(["token", "create", catalog, "web"]) == 2
    capsys.readouterr()
    assert run(["token", "create", catalog, "app", "--scope", "read", "--json"]) == 0
    made = json.loads(capsys.readouterr().out)
    assert Authority(tmp_path / "tokens.json").access(f"Bearer {made['token']}").allows("read", "clicks")
    assert run(["token", "revoke", catalog, "app", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["revoked"][0]["name"] == "app"


def test_a_token_for_no_catalog(tmp_path, capsys):
    """A token may be created before the catalog, with a warning: a mistyped path leaves the real server open to all."""
    place = str(tmp_path / "dat")
    assert run(["token", "create", place, "web", "--scope", "read"]) == 0
    assert f"{place}: no catalog found here; only a server of this directory" in capsys.readouterr().err
    assert run(["init", place]) == 0
    capsys.readouterr()
    assert run(["token", "create", place, "app", "--scope", "read"]) == 0
    assert capsys.readouterr().err == ""
