"""Bearer tokens: stored as hashes, limited to scopes and topics, revocable while the server runs (R19)."""

from __future__ import annotations

import base64
import datetime as dt
import json
import logging
import stat

import httpx
import pytest

from aggregator import InvalidRequestError
from aggregator.server.bodies.shared.problems import ProblemError
from aggregator.server.control.access import Access
from aggregator.server.control.operation import operation_of
from aggregator.server.control.tokens import Authority, create, read_tokens, revoke
from aggregator.server.metrics.logs import JsonFormatter, TextFormatter


def bearer(token):
    return {"authorization": f"Bearer {token}"}


def test_at_rest(tmp_path):
    """The file contains no secret, and only its owner can read it."""
    path = tmp_path / "tokens.json"
    token = create(path, "web", ["write"], ["clicks"])
    assert token.split("_", 2)[2] not in path.read_text()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    (kept,) = read_tokens(path)
    assert (kept.name, kept.scopes, kept.topics, kept.expires) == ("web", ("write",), ("clicks",), None)
    assert token.startswith(f"agg_{kept.id}_")
    with pytest.raises(InvalidRequestError):
        revoke(path, "other")
    with pytest.raises(InvalidRequestError):
        create(path, "web", ["all"])
    assert revoke(path, "web") == [kept]
    assert read_tokens(path) == []


def test_names_are_unique(tmp_path):
    """A name or id identifies one token; revoking it frees the name."""
    path = tmp_path / "tokens.json"
    create(path, "web", ["read"])
    (made,) = read_tokens(path)
    for name in ("web", made.id):
        with pytest.raises(InvalidRequestError, match=f"a token '{name}' already exists"):
            create(path, name, ["admin"])
    assert read_tokens(path) == [made]
    revoke(path, "web")
    create(path, "web", ["write"])


def test_authority(tmp_path):
    """Without a file everybody has access; with a file only its current tokens; if the file is removed, nobody."""
    path = tmp_path / "tokens.json"
    authority = Authority(path)
    assert authority.access(None).allows("admin", "any")
    token = create(path, "web", ["read"], ["web-*"])
    old = create(path, "old", ["read"], None, dt.datetime.now(dt.UTC) - dt.timedelta(seconds=1))
    authority._looked = 0.0
    access = authority.access(f"bearer {token}")
    assert access == Access(frozenset({"read"}), ("web-*",), "web")
    wrong = [
        None, "", "Basic x", "Bearer", "Bearer x", f"Bearer {token}x", f"Bearer x{token}", f"Bearer {old}",
        f"Bearer {token[:-1]}", "Bearer agg_000000000000_x", "Bearer agg__", f"Bearer {token.upper()}",
    ]  # fmt: skip
    for header in wrong:
        with pytest.raises(ProblemError) as refused:
            authority.access(header)
        assert refused.value.problem.status == 401
    path.unlink()
    authority._looked = 0.0
    with pytest.raises(ProblemError):
        authority.access(f"Bearer {token}")


def encoded(text):
    return base64.b64encode(text.encode()).decode()


def test_other_schemes(tmp_path):
    """The same tokens work as password or API key, with the same rights."""
    authority = Authority(path := tmp_path / "tokens.json")
    token, other = create(path, "web", ["write"], ["logs"]), create(path, "other", ["read"])
    authority._looked = 0.0
    _, id_, secret = token.split("_", 2)
    right = [
        f"Basic {encoded('elastic:' + token)}", f"basic  {encoded(':' + token)}", f"ApiKey {token}",
        f"ApiKey {encoded('any:' + token)}", f"apikey {encoded(id_ + ':' + secret)}",
    ]  # fmt: skip
    for header in right:
        assert authority.access(header) == authority.access(f"Bearer {token}"), header
    swapped = f"agg_{id_}_{other.split('_', 2)[2]}"
    wrong = [
        f"Basic {token}", f"Basic {encoded(token)}", f"Basic {encoded(token + ':')}",
        f"Basic {encoded('a:' + swapped)}", f"Basic {encoded(id_ + ':' + secret)}", f"ApiKey {encoded(id_ + ':x')}",
        f"ApiKey {encoded('a:' + swapped)}", f"ApiKey {encoded(token)}", "Basic", "ApiKey ", "Basic \xff",
        "Basic ====", f"ApiKey {encoded('a:agg__')}", f"Digest {token}",
        f"Basic {base64.b64encode(bytes([255, 58])).decode()}", f"Bearer {encoded('a:' + token)}",
    ]  # fmt: skip
    for header in wrong:
        with pytest.raises(ProblemError) as refused:
            authority.access(header)
        assert refused.value.problem.status == 401, header


def test_a_file_that_cannot_be_read(tmp_path, server, web, caplog):
    """An unreadable file is logged once and changes nothing for callers; an open server refuses all requests."""
    path = tmp_path / "tokens.json"
    token = create(path, "web", ["read"])
    authority = Authority(path)
    good = path.read_text()
    path.write_text("{")
    for _ in range(2):
        authority._looked = 0.0
        assert authority.access(f"Bearer {token}").name == "web"
    assert [entry.levelname for entry in caplog.records] == ["ERROR"]
    assert token not in caplog.text
    path.write_text(good.replace('"web"', '"shop"'))
    authority._looked = 0.0
    assert authority.access(f"Bearer {token}").name == "shop"

    assert web.get("/v1/topics").status_code == 200
    (server.catalog.path / "tokens.json").write_text("{")
    server.context.authority._looked = 0.0
    refused = web.get("/v1/topics")
    assert refused.status_code == 401
    assert "`Authorization: Bearer agg_" in refused.json()["hint"]


def test_scopes():
    """The scope admin allows everything; a limited token sees only its topics, and nothing without a topic."""
    writer = Access(frozenset({"write"}), ("clicks",))
    writer.require("write", "clicks")
    for scope, topic in [("read", "clicks"), ("admin", None), ("write", "other")]:
        with pytest.raises(ProblemError):
            writer.require(scope, topic)
    with pytest.raises(ProblemError):
        writer.require_all_topics("write")
    Access(frozenset({"admin"})).require_all_topics("read")
    odd = Access(frozenset({"read"}), ("a[1]?", "b*c"))
    seen = [topic for topic in ("a[1]?", "a1x", "a[1]x", "bc", "b*c", "bxyc", "bcd") if odd.allows("read", topic)]
    assert seen == ["a[1]?", "bc", "b*c", "bxyc"]


def test_every_route(server, caplog):
    """Every route allows exactly the tokens with its scope, among none, a wrong one, and tokens to read, to write and
    for another topic; no token is logged.
    """
    path = server.catalog.path / "tokens.json"
    tokens = {
        **{scope: create(path, scope, [scope]) for scope in ("read", "write", "admin")},
        "other": create(path, "o", ["read", "write"], ["elsewhere"]),
    }  # fmt: skip
    server.context.authority._looked = 0.0
    asked = 0
    with caplog.at_level(logging.DEBUG), httpx.Client(base_url=server.url, timeout=120) as web:
        for route in server.routes:
            scope = operation_of(route.endpoint).scope
            url = route.path.replace("{", "none-").replace("}", "")
            for method in route.methods - {"HEAD"}:

                def status(headers, method=method, url=url):
                    answer = web.request(method, url, headers=headers, content=b"", timeout=120)
                    return answer.status_code

                if scope == "open":
                    assert status({}) not in (401, 403)
                    continue
                asked += 1
                assert status({}) == status(bearer("agg_0_wrong")) == 401, url
                for name in ("read", "write"):
                    refused = status(bearer(tokens[name])) == 403
                    assert refused == (name != scope), (method, url, name)
                if "{topic}" in route.path or not operation_of(route.endpoint).checks_topics:
                    assert status(bearer(tokens["other"])) == 403, (method, url)
    assert asked > 8
    secrets = [token.split("_", 2)[2] for token in tokens.values()]
    told = "\n".join(record.getMessage() for record in caplog.records)
    assert not any(secret in told for secret in secrets)


def test_topics_that_a_token_may_see(server, web):
    """A list of topics has only those of the token."""
    for name in ("clicks", "orders"):
        server.catalog.create_topic(name)
    token = create(server.catalog.path / "tokens.json", "r", ["read"], ["cl*"])
    server.context.authority._looked = 0.0
    assert web.get("/topics").status_code == 401
    assert web.get("/topics").headers["www-authenticate"].startswith("Bearer")
    assert web.get("/topics", headers=bearer(token)).json() == {"topics": [{"name": "clicks"}]}
    assert web.get("/topic/clicks", headers=bearer(token)).status_code == 200
    assert web.get("/topic/orders", headers=bearer(token)).status_code == 403
    assert web.get("/topic/cl%6Fcks", headers=bearer(token)).json()["partitions"] == {}


@pytest.mark.parametrize("formatter", [TextFormatter(), JsonFormatter()])
def test_logs_hide_tokens(formatter):
    """Tokens are masked in log messages."""
    text = "GET /x authorization: Bearer agg_0123456789ab_sEcrEt-1 and agg_0123456789ab_sEcrEt-2"
    record = logging.LogRecord("aggregator", logging.INFO, "x", 1, "%s", (text,), None)
    record.header, record.other, record.third = "Bearer sEcrEt-3", "Basic sEcrEt4==", "ApiKey sEcrEt5/+="
    line = formatter.format(record)
    assert "sEcrEt" not in line
    assert "GET /x" in line
    if isinstance(formatter, JsonFormatter):
        assert json.loads(line)["level"] == "info"
