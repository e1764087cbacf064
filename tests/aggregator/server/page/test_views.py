"""The whole page in a real browser: first load, overview, topics, tokens."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta

import httpx
from browsing import Tab, saved
from effort import long
from served import served
from waiting import until

from aggregator.server.control.tokens import FILE, create


def number(text):
    return int(re.search(r"[\d,]+", text)[0].replace(",", ""))


def test_first_load_is_small(browser, server):
    """The first view loads less than 300 KB, all from this server."""
    tab = Tab(browser).at(server.url)
    finished: list = []
    tab.page.on("requestfinished", lambda request: finished.append(request))
    page = tab.open()
    page.locator(".topic-card").first.wait_for()
    page.wait_for_load_state("networkidle")
    assert page.title() == "Overview · aggregator"
    assert len([request for request in finished if "/page/" in request.url]) > 10
    sizes = [request.sizes() for request in finished]
    assert sum(each["responseBodySize"] + each["responseHeadersSize"] for each in sizes) < 300_000
    tab.leave()
    tab.context.close()


def test_what_breaks_the_policy_is_seen(browser, server, tab_of):
    """Inline scripts, requests to other hosts and errors make these tests fail."""
    tab = tab_of(server.url)
    page = tab.open()
    page.evaluate(
        """() => {
            const script = document.createElement("script");
            document.body.append(script);
            try { script.textContent = "window.pwned = 1"; } catch (error) { console.error(String(error)); }
            try { document.body.innerHTML = "<b>x</b>"; } catch (error) { console.error(String(error)); }
            fetch("http://127.0.0.2:1/").catch(() => {});
            setTimeout(() => { throw new Error("thrown"); });
        }"""
    )
    tab.until("!window.pwned")
    page.wait_for_timeout(200)
    found = "\n".join(tab.wrong)
    for sign in ("TrustedHTML", "Content Security Policy", "error: thrown"):
        assert sign in found
    tab.wrong.clear()


def test_overview(tab, server, web):
    """Each topic has a card with the API's figures; new events show without an action."""
    page = tab.open("overview")
    page.locator(".topic-card").first.wait_for()
    stats = web.get("/v1/stats").json()["topics"]
    assert page.locator(".topic-card h2").all_inner_texts() == list(stats)
    for name, mine in stats.items():
        card = page.locator(f"[data-topic='{name}']")
        shown = dict(zip(card.locator("dt").all_inner_texts(), card.locator("dd").all_inner_texts(), strict=True))
        assert number(shown["Events"]) == mine["rows"]
        assert number(shown["Segments"]) == mine["segments"]
    meters = page.locator("[data-topic='clicks'] [role=meter]")
    assert meters.count() == 2
    assert 0 <= int(meters.first.get_attribute("aria-valuenow")) <= 100
    assert page.locator(".alert").count() == 0
    before = stats["logs"]["rows"]
    server.catalog.write({"app": "new"}, [{"msg": "x"}] * 7)
    tab.until(f"document.querySelector('[data-topic=logs] dd').textContent === '{before + 7:,}'")


@long
def test_groups_of_streams(browser, tab_of, tmp_path):
    """Streams are grouped by the most distinctive tag, with the API's record counts and a link to them."""
    with served(tmp_path / "data") as running:
        streams = {"a": 5, "b": 7, "<i>": 2}
        for name, records in streams.items():
            for host in range(2):
                for more in ({}, {"zone": "eu"}):
                    running.catalog.write({"app": name, "host": f"h{name}{host}", **more}, [{"msg": "x"}] * records)
        tab = tab_of(running.url)
        page = tab.open("overview")
        page.locator(".streams tbody tr").first.wait_for()
        cells = [row.split("\t") for row in page.locator(".streams tbody tr").all_inner_texts()]
        assert [row[:3] for row in cells] == [["b", "4", "28"], ["a", "4", "20"], ["<i>", "4", "8"]]
        listed = httpx.post(
            f"{running.url}/v1/query", content="SHOW PARTITIONS", headers={"content-type": "text/plain"}
        )
        assert sum(json.loads(line)["records"] for line in listed.text.splitlines()) == 56
        running.catalog.write({"app": "a", "host": "ha0"}, [{"msg": "y"}] * 100)
        tab.until("document.querySelector('.streams tbody tr').innerText.startsWith('a\\t4\\t120')")
        page.get_by_role("link", name="<i>", exact=True).click()
        tab.settled()
        assert page.locator(".status").inner_text().startswith("8 events")
        tab.leave()


def test_trouble_is_told_in_words(browser, tab_of, tmp_path):
    """Trouble of the catalog is shown on top, and so is an unreachable server until it is back."""
    with served(tmp_path / "data") as running:
        running.catalog.create_topic("t").append([{"space": "a", "timestamp": 1, "data": b"x" * 100}])
        running.catalog.seal("t")
        (path,) = (running.catalog.path / "segments").rglob("*.esdb")
        path.write_bytes(path.read_bytes()[:-10] + bytes(10))
        running.catalog.verify()
        tab = tab_of(running.url)
        tab.expected.add(0)
        page = tab.open("overview")
        page.locator(".alert").first.wait_for()
        assert "damaged" in page.locator(".alert").first.inner_text()
        tab.context.set_offline(True)
        page.get_by_text("The server cannot be reached.").wait_for()
        tab.context.set_offline(False)
        page.get_by_text("The server cannot be reached.").wait_for(state="detached")
        tab.leave()


def test_topic(tab, web):
    """A topic shows its segments as bars, its values with counts, and what retention would remove."""
    page = tab.open("topic/clicks")
    page.locator(".segment").first.wait_for()
    segments = web.get("/v1/topics/clicks/segments").json()["segments"]
    unsealed = web.get("/v1/topics/clicks").json()["unsealed_rows"] > 0
    assert page.locator(".segment").count() == len(segments) + unsealed
    page.locator(".segment").first.hover()
    assert f"{segments[0]['rows']:,} events" in page.locator(".timeline-told").inner_text()
    lines = page.locator(".value-line")
    lines.first.wait_for()
    values = web.get("/v1/topics/clicks/values/type").json()["values"]
    assert [number(text.split("\n")[-1]) for text in lines.all_inner_texts()] == [each["events"] for each in values]
    page.get_by_role("button", name="Preview").click()
    page.get_by_text("Nothing would be removed: everything is within the limits.").wait_for()
    lines.first.click()
    tab.settled()
    assert page.locator(".status").inner_text().startswith(f"{values[0]['events']:,} events")


def test_retention_is_changed_after_a_dry_run(browser, tab_of, tmp_path):
    """A dry run shows what another limit would remove, and removes nothing; then the limit is set, and others stay."""
    with served(tmp_path / "data") as running:
        topic = running.catalog.create_topic(
            "old", retention={"age": "30000d", "bytes": "2 GiB", "partition_segments": 9}
        )
        topic.append([{"space": "a", "timestamp": n} for n in range(5)])
        running.catalog.seal("old")
        running.catalog._backend.scheduler.stop()
        tab = tab_of(running.url)
        page = tab.open("topic/old")
        age = page.get_by_label("Keep at most, by age")
        assert age.input_value() == "30000 d"
        assert page.get_by_label("Keep at most, by size").input_value() == "2 GiB"
        age.fill("1d")
        page.get_by_role("button", name="Preview").click()
        page.get_by_text("1 segments with 5 events").wait_for()
        assert "by age" in page.locator(".removal li").inner_text()
        assert topic.retention.age_us == 30_000 * 86_400_000_000
        page.get_by_role("button", name="Set this retention").click()
        page.get_by_text("The retention is changed.").wait_for()
        expected = {"age_us": 86_400_000_000, "bytes": 2 << 30, "segments": None, "partition_bytes": None}
        assert topic.retention.to_json() == {**expected, "partition_segments": 9}
        tab.expected.add(400)
        page.get_by_label("Keep at most, by size").fill("much")
        page.get_by_role("button", name="Preview").click()
        page.locator(".removal .error").wait_for()
        tab.leave()


@long
def test_limits_of_segments_are_changed(browser, tab_of, tmp_path):
    """Segment limits are changed after a confirmation; omitted ones become the default, and frames stay."""
    with served(tmp_path / "data") as running:
        topic = running.catalog.create_topic("t", roll={"rows": 7_000, "frame_bytes": 65_536})
        tab = tab_of(running.url)
        page = tab.open("topic/t")
        assert page.get_by_label("Events per segment").input_value() == "7000"
        page.get_by_label("Events per segment").fill("9000")
        page.get_by_label("Age of unsealed events").fill("2m")
        page.get_by_label("Bytes per segment").fill("")
        page.get_by_role("button", name="Change …").click()
        page.get_by_role("button", name="Cancel").click()
        assert topic.roll.rows == 7_000
        page.get_by_role("button", name="Change …").click()
        page.get_by_role("button", name="Change", exact=True).click()
        page.get_by_text("The limits for sealing are changed.").wait_for()
        expected = {"rows": 9_000, "bytes": 64 << 20, "age_us": 120_000_000, "frame_bytes": 65_536}
        assert topic.roll.to_json() == expected
        tab.leave()


def test_a_topic_is_exported(tab, web):
    """All events of a topic are saved as a file after a confirmation."""
    page = tab.open("topic/clicks")
    page.locator("summary", has_text="Export").click()
    page.get_by_role("button", name="CSV").click()
    page.get_by_role("button", name="Cancel").click()
    page.get_by_role("button", name="CSV").click()
    with page.expect_download() as download:
        page.get_by_role("dialog").get_by_role("button", name="Export").click()
    accept = {"accept": "text/csv"}
    assert saved(download.value) == web.get("/v1/topics/clicks/events", headers=accept).content


@long
def test_what_goes_next(browser, tab_of, tmp_path):
    """Size limits mark the segment that expires first, of all or per partition; without limits none is marked."""
    with served(tmp_path / "data") as running:
        topic = running.catalog.create_topic("t", indexes=["n"])
        for n in range(4):
            topic.append([{"space": "a", "timestamp": (4 - n) * 1_000_000, "n": n}], str(n % 2))
            running.catalog.seal("t")
        tab = tab_of(running.url)
        page = tab.open("topic/t")
        page.locator(".segment").first.wait_for()
        for policy, expected in (({}, []), ({"bytes": "1 GiB"}, [0]), ({"partition_segments": 9}, [0, 1])):
            topic.set_policy(retention=policy)
            page.reload()
            page.locator(".segment").first.wait_for()
            titles = page.locator(".segment.next title").evaluate_all("all => all.map((each) => each.textContent)")
            assert sorted(int(re.search("record indexes (\\d)", title)[1]) for title in titles) == [0] * len(expected)
            assert all("indexes on n, removed next" in title for title in titles)
            assert [f"Segment {n + 1}:" in " ".join(titles) for n in expected] == [True] * len(expected)
        running.catalog._backend.scheduler.stop()
        topic.erase("a")
        page.reload()
        page.locator(".segment").first.wait_for()
        assert page.locator(".segment.erasing").count() == 4
        assert "May contain erased events" in page.locator(".timeline .legend").inner_text()
        tab.leave()


def test_upkeep_is_confirmed(browser, tab_of, tmp_path):
    """Segments are merged and a space erased only after a confirmation."""
    with served(tmp_path / "data") as running:
        topic = running.catalog.create_topic("t")
        for n in range(3):
            topic.append([{"space": f"customer-{m}", "timestamp": 10 * n + m} for m in range(4)])
            running.catalog.seal("t")
        tab = tab_of(running.url)
        page = tab.open("topic/t")
        page.get_by_role("button", name="Merge segments").click()
        page.get_by_role("button", name="Cancel").click()
        assert len(topic.segments()) == 3
        page.get_by_label("Space to erase").fill("customer-9")
        page.get_by_role("button", name="Erase …").click()
        page.get_by_text("No event has this space.").wait_for()
        page.get_by_label("Space to erase").fill("customer-1")
        page.get_by_role("button", name="Erase …").click()
        page.get_by_role("dialog").get_by_text("Erase all 3 events of this space?").wait_for()
        page.keyboard.press("Escape")
        assert topic.scan(space="customer-1").count() == 3
        page.get_by_role("button", name="Erase …").click()
        page.get_by_role("button", name="Erase 3 events").click()
        page.get_by_text("3 events were erased.").wait_for()
        assert topic.scan(space="customer-1").count() == 0
        page.get_by_role("button", name="Merge segments").click()
        page.get_by_role("button", name="Merge", exact=True).click()
        page.get_by_text("3 segments were merged into 1.").wait_for()
        assert len(topic.segments()) == 1
        assert page.locator(".segment").count() == 1
        tab.leave()


def test_what_a_token_may_not_is_not_offered(browser, tab_of, tmp_path):
    """Upkeep is offered only to an administrator of the topic."""
    with served(tmp_path / "data") as running:
        file = running.catalog.path / FILE
        secrets = [
            create(file, "a", ["admin"], ["t*"]),
            create(file, "b", ["admin", "read"], ["u.*"]),
            create(file, "c", ["read"]),
        ]
        for name in ("tt", "u."):
            running.catalog.create_topic(name).append([{"space": "a", "timestamp": 1}])
        running.context.authority._reload()
        for secret, name, offered in zip(secrets, ("tt", "u.", "tt"), (True, True, False), strict=True):
            tab = tab_of(running.url)
            tab.expected |= {401, 403}
            page = tab.page
            page.goto(f"{running.url}/#token={secret}")
            page.locator(".topic-card").first.wait_for()
            tab.open(f"topic/{name}")
            page.locator(".column-list").wait_for()
            assert page.get_by_label("Space to erase").count() == offered
            tab.leave()


def test_tokens(browser, tab_of, tmp_path):
    """A server with tokens asks for one and keeps it for the session only; a token for one topic shows that topic."""
    with served(tmp_path / "data") as running:
        for name in ("mine", "other"):
            running.catalog.create_topic(name).append([{"space": "a", "timestamp": 1}])
        secret = create(running.catalog.path / FILE, "page", ["read"], ["mine"])
        until(lambda: httpx.get(f"{running.url}/v1/stats").status_code == 401)  # it checks for tokens from time to time
        tab = tab_of(running.url)
        tab.expected |= {401, 403}
        page = tab.open("overview")
        field = page.locator("#token")
        field.fill("agg_wrong")
        page.get_by_role("button", name="Use token").click()
        page.get_by_text("This token is not accepted").wait_for()
        field.fill(secret)
        page.get_by_role("button", name="Use token").click()
        page.locator(".topic-card").wait_for()
        assert page.locator(".topic-card h2").all_inner_texts() == ["mine"]
        assert secret not in page.evaluate("JSON.stringify(localStorage) + document.cookie + location.href")
        tab.explore(topic="mine")
        assert len(tab.rows()) == 1
        page.locator(".row-head").click()
        assert page.locator(".live, .explain, .narrow, [aria-label='Break down by']").count() == 0  # they are LQL
        tab.explore(lql="SELECT")
        assert "covers only some topics" in page.locator("#box-error").inner_text()
        page.reload()
        tab.settled()
        assert page.get_by_role("dialog").count() == 0
        other = tab_of(running.url)
        other.expected |= {401}
        other.open("overview")
        other.page.get_by_text("This server requires a token").wait_for()
        for each in (tab, other):
            each.leave()


@long
def test_a_token_that_expires(browser, tab_of, tmp_path):
    """With an expired token, overview and live tail say so and ask for another; earlier data is no longer shown."""
    with served(tmp_path / "data") as running:
        running.catalog.write({"app": "web"}, [{"msg": "secret"}])
        file = running.catalog.path / FILE
        ends = datetime.now(UTC).replace(microsecond=0) + timedelta(hours=1)
        short, long = create(file, "short", ["read"], expires=ends), create(file, "long", ["read"])
        until(lambda: httpx.get(f"{running.url}/v1/stats").status_code == 401)
        overview, live = tab_of(running.url), tab_of(running.url)
        for tab in (overview, live):
            tab.expected |= {401}
            tab.page.goto(f"{running.url}/#token={short}")
            tab.page.locator(".topic-card").wait_for()
        page = live.explore(lql="SELECT FROM app = web")
        page.get_by_role("button", name="Live").click()
        over = datetime.now(UTC).replace(microsecond=0) - timedelta(seconds=1)
        file.write_text(file.read_text().replace(ends.isoformat(), over.isoformat()))
        for tab in (overview, live):
            tab.page.get_by_text("This token is not accepted").wait_for()
        overview.page.locator("#token").fill(long)
        overview.page.get_by_role("button", name="Use token").click()
        overview.page.locator(".topic-card").wait_for()
        assert "secret" not in live.page.locator("main").inner_text()
        for tab in (overview, live):
            tab.leave()


def test_zone(tab_of, server):
    """Times are in UTC until the local zone is chosen, which the browser remembers."""
    tab = tab_of(server.url, timezone_id="America/New_York")
    tab.explore(topic="clicks")
    utc = tab.rows()[0].split("\n")[1]
    tab.page.get_by_role("button", name="Times are in UTC").click()
    tab.until(
        f"document.querySelector('.row-head time') && !document.querySelector('.row-head').innerText.includes('{utc}')"
    )
    local = tab.rows()[0].split("\n")[1]
    assert (int(utc[:2]) - int(local[:2])) % 24 == 4
    assert utc[2:] == local[2:]
