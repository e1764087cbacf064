"""Explore in a real browser shows what the API answers, whatever events contain, and follows its address."""

from __future__ import annotations

import json
import re
from collections import Counter
from datetime import UTC, datetime

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from breaking_proxy import BreakingProxy, Fate
from browsing import saved
from effort import ALL, long, share_of

from aggregator.lql.run import counting
from examples.demo.clickstream import generate
from tests.aggregator.server.page.conftest import HOSTILE, TIED

FITS = "['html', 'main', '.rows'].every((name) => document.querySelector(name).scrollWidth <= innerWidth)"
LQL = "SELECT FROM {app=shop,zone=eu}"
HOUR, DAY = 3_600_000_000, 86_400_000_000


def events(web, topic="clicks", **params):
    """The API's events, newest first."""
    answer = web.get(f"/v1/topics/{topic}/events", params={"reverse": "true", **params})
    return [json.loads(line) for line in answer.text.splitlines()]


def records(web, query, **more):
    answer = web.post("/v1/query", json={"query": query, **more})
    return [json.loads(line) for line in answer.text.splitlines()]


def shown_time(event):
    return event["timestamp"].replace("T", " ").rstrip("Z").removesuffix("000").removesuffix(".000")


def spread(server):
    """A topic over three days with 48, 72 and 96 events. Returns the first day."""
    first = int(datetime(2026, 3, 2, tzinfo=UTC).timestamp()) * 1_000_000
    if "spread" not in server.catalog.topics():
        times = [first + day * DAY + n * (HOUR // (day + 2)) for day in range(3) for n in range(24 * (day + 2))]
        server.catalog.create_topic("spread").append(pa.table({"space": ["a"] * len(times), "timestamp": times}))
    return first


QUESTIONS = [{}, {"space": "customer-1"}, {"index": "type", "value": "purchase"}, {"order": "oldest"}]


def test_rows_of_a_topic(tab, web):
    """Rows, their number and bars equal the API's: for all events, a space, a value, in either order."""
    for params in QUESTIONS:
        page = tab.explore(topic="clicks", **params)
        path = f"/v1/topics/clicks/{'index/type' if 'index' in params else 'events'}"
        asked = {name: value for name, value in params.items() if name in ("space", "value")}
        asked["reverse"] = str("order" not in params).lower()
        expected = [json.loads(line) for line in web.get(path, params=asked).text.splitlines()]
        assert page.locator(".status").inner_text().startswith(f"{len(expected):,} events")
        for row, event in zip(tab.rows(), expected, strict=False):
            assert shown_time(event) in " ".join(row.split("\n"))
            assert event["space"] in row
            assert event["type"] in row
        counted = {name: value for name, value in params.items() if name != "order"} | {"buckets": 80}
        bars = web.get("/v1/topics/clicks/histogram", params=counted).json()["counts"]
        assert page.locator(".chart .bar").count() == len(bars)
        assert page.locator(".chart .bar:not([height='0.00'])").count() == sum(map(bool, bars))


STACKED = [({"topic": "clicks"}, "SELECT FROM topic = clicks", "type"), ({"lql": LQL}, LQL, "level")]


@pytest.mark.parametrize(("asked", "query", "by"), share_of(STACKED, 2))
def test_bars_in_colours(tab, web, asked, query, by):
    """Bars are stacked by index or field as the API counts each value; clicking a legend entry queries that value."""
    page = tab.explore(**asked)
    page.get_by_label("Break down by").select_option(f"By {by}")
    tab.until("location.hash.includes('by=')")
    tab.settled()
    found = web.post("/v1/histogram", json={"query": query, "buckets": 80, "by": by}).json()
    for n, series in enumerate(found["series"]):
        assert page.locator(f".chart .s{n}").count() == sum(map(bool, series["counts"]))
    bars = page.locator(".chart .bar").evaluate_all(
        "bars => bars.map(({ x, y, height }) => [x, y, height].map((each) => each.baseVal.value))"
    )
    most = max(found["counts"])
    stacks = {x: [(y, high) for left, y, high in bars if left == x] for x, _, _ in bars}
    highest = max(84 - min(y for y, _ in stack) for stack in stacks.values())
    assert highest == pytest.approx(68, abs=3)  # of all there is in the fullest span
    for stack in stacks.values():
        assert 84 - min(y for y, _ in stack) == pytest.approx(sum(high for _, high in stack), abs=0.1)
    assert sum(high for _, _, high in bars) == pytest.approx(68 * sum(found["counts"]) / most, rel=0.05)
    legend = [text.split("\n") for text in page.locator(".legend-entry").all_inner_texts()]
    assert legend == [[each["value"], f"{each['events']:,}"] for each in found["series"]]
    page.locator(".chart").hover()
    assert ": " in page.locator(".chart-told").inner_text() or page.locator(".chart-told").inner_text().startswith("0 ")
    second = found["series"][1]
    page.locator("button.legend-entry").nth(1).click()
    tab.until("document.querySelector('#box')?.value.includes('WHERE')")
    tab.settled()
    assert page.locator(".status").inner_text().startswith(f"{second['events']:,} events")
    assert page.get_by_label("Break down by").input_value() == by


def test_bars_that_cannot_be_drawn(tab, monkeypatch):
    """With too many values for bars, a message replaces them, and the rows are shown."""
    monkeypatch.setattr(counting, "MAX_GROUPS", 100)
    tab.expected.add(400)
    page = tab.explore(topic="many", by="n")
    assert "creates more than" in page.locator(".chart-box .error").inner_text()
    assert tab.rows()
    page.get_by_label("Break down by").select_option("")
    tab.until("document.querySelectorAll('.chart .bar').length > 0")


def test_columns_are_chosen_and_ordered(tab, web):
    """Rows show the columns chosen in the menu, in its order, with the API's values; the address keeps them."""
    page = tab.explore(topic="clicks")
    page.locator(".columns-menu summary").click()
    for name in ("type", "country"):
        page.locator(".columns-menu").get_by_role("button", name=f"+ {name}").click()
        tab.until(f"document.querySelector('.row-names').textContent.includes('{name}')")
    page.get_by_role("button", name="Move country before type").click()
    tab.until("document.querySelector('.row-names').textContent === 'TimeSpacecountrytype'")
    tab.settled()
    shown = page.locator(".row-head .cells").evaluate_all(
        "rows => rows.map((row) => [...row.querySelectorAll('bdi')].map((cell) => cell.textContent))"
    )
    assert shown
    for row, event in zip(shown, events(web, limit=len(shown)), strict=True):
        assert row == [event["country"] or "", event["type"]]
    page.reload()
    tab.settled()
    assert page.locator(".row-names").inner_text().split() == ["Time", "Space", "country", "type"]
    page.get_by_label("Remove country").evaluate("button => button.click()")
    tab.until("document.querySelector('.row-names').textContent === 'TimeSpacetype'")
    tab.explore(lql=LQL, cols='["zone","level","none"]')
    tab.until("document.querySelector('.row-head .cells')?.querySelectorAll('bdi').length === 3")
    cells = page.locator(".row-head .cells").first.locator("bdi").all_inner_texts()
    assert cells == ["eu", records(web, LQL, reverse=True, limit=1)[0]["fields"]["level"], ""]
    tab.explore(topic="clicks", cols='{"a": 1}')
    assert page.locator(".row-names").inner_text().split() == ["Time", "Space", "Event"]


def test_what_is_read_as_a_picture(tab, web):
    """EXPLAIN shows for each topic how many segments and blocks are read, as the API reports."""
    page = tab.explore(topic="clicks", index="type", value="purchase")
    page.get_by_role("button", name="Explain").click()
    page.locator(".explained").wait_for()
    tab.settled()
    (row,) = records(web, 'EXPLAIN SELECT FROM topic = clicks WHERE type = "purchase"')
    meters = page.locator(".explained [role=meter]")
    found = [(meter.get_attribute("aria-valuenow"), meter.get_attribute("aria-valuemax")) for meter in meters.all()]
    expected = [(row["read"], row["segments"]), (row["blocks read"], row["blocks"])]
    assert found == [(str(part), str(whole)) for part, whole in expected]
    assert "Found by the index type." in page.locator(".explained").inner_text()
    page = tab.explore(lql="EXPLAIN SELECT FROM topic = clicks", to="1")
    assert "0 of 4 read" in page.locator(".explained").inner_text()


def test_words_that_may_come_next(tab, web):
    """Tags, their values, fields of rows and functions are offered while typing, and chosen by keys or a click."""
    page = tab.explore(lql=LQL)
    box, words = page.locator("#box"), page.locator("#words [role=option]")
    box.fill("SELECT FROM ap")
    words.first.wait_for()
    assert words.all_inner_texts() == ["app"]
    box.press("Tab")
    box.press_sequentially(" = ")
    tab.until("document.querySelector('#words').textContent.includes('shop')")
    values = web.post("/v1/completions", json={"before": "SELECT FROM app = "}).json()["completions"]
    assert words.all_inner_texts() == [each["text"] for each in values]
    box.press("ArrowDown")
    assert box.get_attribute("aria-activedescendant") == "word-0"
    box.press("Enter")
    assert box.input_value() == f"SELECT FROM app = {values[0]['text']}"
    box.fill("SELECT COUNT GROUP BY lev")
    page.locator("#words").get_by_text("level", exact=True).click()
    assert box.input_value() == "SELECT COUNT GROUP BY level"
    box.fill("SELECT PERC")
    tab.until("document.querySelector('#words').textContent === 'PERCENTILE('")
    box.press("Escape")
    assert page.locator("#words").is_hidden()
    assert page.evaluate("document.activeElement.id") == "box"
    box.fill(f"{LQL} LIMIT 3")
    box.press("Enter")
    tab.until("document.querySelectorAll('.row-head').length === 3")


def test_rows_of_a_statement(tab, web):
    """Rows of LQL statements are shown, too, with the stream's tags."""
    page = tab.explore(lql=LQL)
    expected = records(web, LQL, reverse=True, limit=20)
    assert page.locator(".status").inner_text().startswith("500 events")
    for row, event in zip(tab.rows(), expected, strict=False):
        assert event["data"] in row
        assert "app=shop,zone=eu" in row


@pytest.mark.parametrize("order", ["", pytest.param("oldest", marks=long)])
def test_every_event_is_scrolled_past_once(tab_of, server, order):
    """Pages join where 375 events have the same time; no row is missing or repeated, and elements stay few."""
    tab = tab_of(server.url, viewport={"width": 1280, "height": 4_000})
    page = tab.explore(topic="many", **({"order": order} if order else {}))
    seen = page.evaluate(
        """async () => {
            const list = document.querySelector(".rows"), seen = new Map();
            let most = 0;
            for (const end = performance.now() + 30_000; performance.now() < end; ) {
                for (const head of list.querySelectorAll(".row-head")) {
                    const found = head.textContent.match(/n(\\d+)$/);
                    if (found) seen.set(Number(head.dataset.place), Number(found[1]));
                }
                most = Math.max(most, list.querySelectorAll("*").length);
                const before = list.scrollTop;
                const low = before + list.clientHeight >= list.scrollHeight - 1;
                if (low && list.textContent.includes("End of results.")) break;
                list.scrollTop += list.clientHeight;
                list.dispatchEvent(new Event("scroll"));  // sooner than the browser's own, which wait for a picture
                await new Promise((resolve) => setTimeout(resolve));
            }
            return { places: [...seen.keys()], numbers: [...seen.values()], most };
        }"""
    )
    count = 12 * TIED
    numbers = [n for _, n in sorted(zip(seen["places"], seen["numbers"], strict=True))]
    assert numbers == (list(range(count)) if order else list(range(count))[::-1])
    assert seen["most"] < 2_500  # of 4,500 rows with ten elements each
    page.locator(".rows").evaluate("list => { list.scrollTop = 0; }")  # its page was dropped meanwhile
    tab.until(f"document.querySelector('.row-head')?.textContent.endsWith('n{0 if order else count - 1}')")


def test_what_is_wrong_with_a_statement_stands_at_the_box(tab):
    """A mistake in a statement is explained at the box with its place; once corrected, it is answered."""
    tab.expected.add(400)
    page = tab.explore(lql="SELECT FROM app=web WHERE msg CONTAIN x")
    error = page.locator("#box-error")
    assert "was not expected here" in error.inner_text()
    assert "Did you mean CONTAINS?" in error.inner_text()
    assert error.locator("mark").inner_text() == "CONTAIN"
    assert page.locator("#box").get_attribute("aria-invalid") == "true"
    assert not tab.rows()
    page.locator("#box").fill("SELECT FROM app=web")
    page.locator("#box").press("Enter")
    page.locator(".row-head").first.wait_for()
    tab.settled()  # the first rows are there before the last
    assert page.locator(".status").inner_text().startswith("50 events")
    assert error.text_content() == ""
    page.go_back()
    tab.until("document.querySelector('#box').value.includes('CONTAIN ')")
    page.locator("#box-error mark").wait_for()


def test_groups_and_lists_are_tables(tab, web):
    """Groups and lists are tables with the API's values; a statement that would change something is not run."""
    query = "SELECT COUNT FROM app = shop GROUP BY level"
    page = tab.explore(lql=query)
    assert [row.split("\t") for row in page.locator(".result tbody tr").all_inner_texts()] == [
        [str(value) for value in row.values()] for row in records(web, query)
    ]
    page = tab.explore(lql="TRUNCATE {app=web} MAXSIZE 1")
    assert "this page only reads" in page.get_by_role("alert").inner_text()
    assert records(web, "SELECT COUNT FROM {app=web}") == [{"count": 50}]


def test_a_row_opens_and_its_values_narrow(tab, web):
    """An opened row shows all fields; a value can be added to the query or excluded, and Back undoes it."""
    page = tab.explore(lql=LQL)
    first = page.locator(".row").first
    first.locator(".row-head").click()
    user = records(web, LQL, reverse=True, limit=1)[0]
    names = first.locator("dt").all_inner_texts()
    assert names == ["app", "zone", "timestamp", "data", "level"]
    assert json.loads("".join(first.locator(".json").all_text_contents()).replace("=≠", "")) == json.loads(user["data"])
    first.get_by_role("button", name="Only with this value: msg.user.id").click()
    tab.until("document.querySelector('#box').value.includes('WHERE')")
    tab.settled()
    assert page.locator("#box").input_value() == "SELECT FROM {app=shop,zone=eu} WHERE msg.user.id = 0"
    assert page.locator(".status").inner_text().startswith("100 events")
    page.locator(".row-head").first.click()
    page.get_by_role("button", name="Without this value: level").click()
    tab.until("document.querySelector('#box').value.includes('NOT')")
    tab.settled()
    assert page.locator(".status").inner_text().startswith("50 events")
    page.go_back()
    page.go_back()
    tab.until("!document.querySelector('#box').value.includes('WHERE')")


@long
def test_values_of_a_topic_narrow_as_lql(tab, web):
    """Choosing a value of a topic's event turns the query into a statement with the same answer as the API's index."""
    page = tab.explore(topic="clicks", space="customer-1")
    page.locator(".row-head").first.click()
    kind = events(web, space="customer-1", limit=1)[0]["type"]
    page.get_by_role("button", name=f"Only with this value: type {kind}").click()
    page.locator("#box").wait_for()
    tab.settled()
    found = web.get("/v1/topics/clicks/index/type", params={"value": kind, "space": "customer-1"}).text.splitlines()
    assert page.locator(".status").inner_text().startswith(f"{len(found):,} event")


def test_history_of_a_space(tab, web):
    """Any event leads to the history of its space, forward and backward."""
    page = tab.explore(topic="clicks")
    page.locator(".row-head").first.click()
    space = events(web, limit=1)[0]["space"]
    page.get_by_role("button", name="History of this space").click()
    tab.until("document.querySelector('[aria-label=Space]').value !== ''")
    tab.settled()
    assert page.locator("[aria-label=Space]").input_value() == space
    assert page.locator(".status").inner_text().startswith(f"{len(events(web, space=space)):,} event")
    page.get_by_role("button", name="Oldest first").click()
    page.get_by_role("button", name="Newest first").wait_for()
    tab.settled()
    oldest = json.loads(web.get("/v1/topics/clicks/events", params={"space": space, "limit": 1}).text)
    assert shown_time(oldest) in tab.rows()[0].replace("\n", " ")
    tab.explore(lql="SELECT FROM topic = clicks")
    page.locator(".row-head").first.click()
    page.get_by_role("button", name="History of this space").click()
    tab.until("location.hash.includes('topic=clicks&space=')")
    tab.settled()
    assert page.locator(".status").inner_text().startswith(f"{len(events(web, space=space)):,} event")


@long
def test_groupings_of_a_space_over_time(tab, server, web):
    """Each grouping has a lane from its first event to its last, newest on top; choosing one queries it alone."""
    page = tab.explore(topic="clicks", space="customer-1")
    found = {}
    for event in events(web, space="customer-1"):
        found.setdefault(event["grouping"], []).append(event)
    lanes = page.locator(".lane")
    names = lanes.locator(".lane-name").evaluate_all("names => names.map((name) => name.textContent)")
    newest = sorted(found, key=lambda name: found[name][0]["timestamp"], reverse=True)
    assert names == [f"{name or 'no grouping'}  {len(found[name])}" for name in newest]
    bars = lanes.locator(".lane-bar").evaluate_all(
        "bars => bars.map(({ x, width }) => x.baseVal.value + width.baseVal.value)"
    )
    assert bars == sorted(bars, reverse=True)
    place = names.index(f"web  {len(found['web'])}")
    lanes.nth(place).focus()
    page.keyboard.press("Enter")
    tab.until("location.hash.includes('grouping=web')")
    tab.settled()
    assert page.locator(".status").inner_text().startswith(f"{len(found['web']):,} event")
    assert page.locator(".lane.current").count() == 1
    assert lanes.count() == len(found)
    page.locator(".lane.current").click()
    tab.until("!location.hash.includes('grouping=')")
    tab.settled()
    tab.explore(topic="clicks", space="customer-1", order="oldest", **{"from": "0"})
    firsts = page.locator(".lane-bar").evaluate_all("bars => bars.map(({ x }) => x.baseVal.value)")
    assert firsts == sorted(firsts)
    tab.explore(topic="many", space="s")  # which has no groupings
    assert page.locator(".lanes").is_hidden()


@long
def test_history_of_a_binary_space(tab, server, web):
    """Binary keys are queried unchanged; actions that need LQL are not offered."""
    topic = server.catalog.create_topic("binary", keys="binary", exist_ok=True)
    topic.append([{"space": b"\xff\x00", "timestamp": n} for n in range(3)] + [{"space": b"a", "timestamp": 9}])
    page = tab.explore(topic="binary")
    assert page.locator(".status").inner_text().startswith("4 events")
    page.locator(".row-head").last.click()
    assert page.locator(".narrow, .live").count() == 0
    page.get_by_role("button", name="History of this space").click()
    tab.until("location.hash.includes('space64=')")
    tab.settled()
    assert page.locator(".status").inner_text().startswith("3 events")


def test_hostile_contents_are_text(tab, web):
    """Markup, right-to-left text, NUL, invalid text and a line of a megabyte show as text in their own row."""
    page = tab.explore(topic="odd <b>")
    assert page.locator(".row-head").count() == len(HOSTILE)
    assert page.evaluate(FITS)
    heights = page.locator(".row-head").evaluate_all("heads => heads.map(head => head.offsetHeight)")
    assert len(set(heights)) == 1
    for place, (space, data, note) in enumerate(reversed(HOSTILE)):
        head = page.locator(f"[data-place='{place}']")
        assert head.locator(".who bdi").first.evaluate("node => node.textContent") == space
        head.click()
        field = page.locator(".row", has=head).locator(".field")
        assert field.nth(0).locator(".value").evaluate("node => node.textContent") == space
        shown = field.last.locator(".value").evaluate("node => node.firstChild?.textContent ?? ''")
        assert shown == note[:20_000]
        if data == b"x" * 1_000_000:
            page.get_by_role("button", name="Show all 1,000,000 characters").click()
            shown = field.nth(2).locator(".value").evaluate("node => node.textContent.length")
            assert shown == 1_000_000
        head.click()
    page.locator("[data-place='0']").click()
    json_text = page.locator(".json").inner_text()
    assert '"n": 9007199254740993' in json_text
    assert '"f": 1.0' in json_text
    assert page.evaluate("[window.pwned, document.querySelectorAll('main img, main script, main b').length]") == [
        None,
        0,
    ]


def test_values_that_look_like_others(tab, server):
    """A field named like the encoding of bytes, and a space that looks like a stream's tags, are shown unchanged."""
    parts = [{"base64": "no bytes!"}, {"base64": "YWJj"}]
    server.catalog.create_topic("parts").append(
        pa.table({"space": ["a", '{a="\\Uffffffff"}'], "timestamp": [1, 2], "part": parts})
    )
    tab.explore(topic="parts")
    assert [row.split("\n")[-1] for row in tab.rows()] == ["partabc", 'part{"base64":"no bytes!"}']


@long
def test_questions_of_a_new_user(tab, server):
    """A new user can find who did most yesterday, what she did last, refunds per hour, and what retention has left."""
    midnight = int(datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0).timestamp()) * 1_000_000
    shop = server.catalog.create_topic("shop", indexes=["type", "country"], retention={"bytes": "8 MiB"})
    table = generate(10_000)
    table = table.set_column(1, "timestamp", pa.array(midnight - (np.arange(10_000) - 1_000) * 20_000_000))
    shop.append(table)
    server.catalog.seal("shop")
    yesterday = table.filter((pc.field("timestamp") < midnight) & (pc.field("timestamp") >= midnight - DAY))
    (most, count), *_ = Counter(yesterday["space"].to_pylist()).most_common(1)
    page = tab.open("overview")
    left = (8 << 20) - shop.stats()["sealed_bytes"]
    page.get_by_text(re.compile(rf"of 8.0 MiB, {left / (1 << 20):.1f} MiB left")).wait_for()
    page.locator("[data-topic=shop]").get_by_role("link", name="Explore").click()
    page.get_by_label("Time", exact=True).select_option(label="Yesterday")
    tab.until("location.hash.includes('yesterday')")
    tab.settled()
    page.get_by_label("Break down by").select_option(label="By space")
    tab.until("location.hash.includes('by=space')")
    tab.settled()
    assert page.locator(".legend-entry").first.inner_text().split("\n") == [most, f"{count}"]
    page.locator("button.legend-entry").first.click()
    tab.until("location.hash.includes('space=customer')")
    tab.settled()
    hers = yesterday.filter(pc.field("space") == most).sort_by([("timestamp", "descending")]).slice(0, 1).to_pylist()[0]
    assert json.loads(hers["data"])["session"] in tab.rows()[0]
    page.go_back()
    tab.until("document.querySelector('[aria-label=Space]').value === ''")
    page.locator(".chip", has_text="refund").click()
    tab.until("location.hash.includes('value=refund')")
    tab.settled()
    page.get_by_label("Bar width").select_option(label="One bar per hour")
    tab.until("location.hash.includes('bars=h')")
    tab.settled()
    refunds = yesterday.filter(pc.field("type") == "refund")["timestamp"].to_numpy()
    hours = Counter((refunds // HOUR).tolist())
    assert page.locator(".chart-most").inner_text().startswith(f"at most {max(hours.values())} in 1 hour")
    assert page.locator(".status").inner_text().startswith(f"{len(refunds)} event")


@long
def test_ten_thousand_columns(tab, server, web):
    """A row of ten thousand fields, or a topic's maximum, is as high as others, shows some, and opens to all."""
    columns, fields = (4_000, 10_000) if ALL else (800, 1_000)
    names = [f"c{n}" for n in range(fields)]
    wide = server.catalog.create_topic("wide", exist_ok=True)
    wide.append(pa.table({"space": ["a"], "timestamp": [1], **{name: [7] for name in names[:columns]}}))
    server.catalog.write({"app": "wide"}, [{"msg": "m", **dict.fromkeys(names, "7")}])
    for count, asked in ((columns, {"topic": "wide"}), (fields, {"lql": "SELECT FROM {app=wide}"})):
        page = tab.explore(**asked)
        assert page.locator(".row-head").evaluate_all("heads => heads.map(head => head.offsetHeight)") == [30]
        assert page.locator(".row-head *").count() < 120
        assert page.evaluate(FITS)
        page.locator(".row-head").click()
        assert page.locator(".row-details dt").count() == 300
        page.get_by_role("button", name=re.compile(r"Show [\d,]+ more fields")).click()
        tab.until(f"document.querySelectorAll('.row-details dt').length > {count}")
        page.locator(".row-head").click()
        page.locator(".row-details").wait_for(state="detached")


def test_live(tab, server):
    """New events appear without an action; none is lost during a pause."""
    page = tab.explore(lql="SELECT FROM {app=live}")
    with page.expect_response("**/v1/tail**"):
        page.get_by_role("button", name="Live").click()
    tab.until("document.querySelector('.status').textContent.startsWith('Live')")
    server.catalog.write({"app": "live"}, [{"msg": "first"}])
    page.get_by_text("first", exact=True).wait_for()
    page.get_by_role("button", name="Pause").click()
    server.catalog.write({"app": "live"}, [{"msg": "second"}, {"msg": "third"}])
    tab.until("document.querySelector('.status').textContent.includes('2 waiting')")
    assert len(tab.rows()) == 1
    page.get_by_role("button", name="Resume").click()
    page.get_by_text("third", exact=True).wait_for()
    assert [row.split("\n")[-1] for row in tab.rows()] == ["third", "second", "first"]


@long
def test_export(tab, web):
    """The saved file equals the API's answer in each of its formats."""
    page = tab.explore(topic="clicks", index="type", value="cart")
    accept = {
        "JSON lines": "application/x-ndjson", "CSV": "text/csv", "Arrow": "application/vnd.apache.arrow.stream",
        "Parquet": "application/vnd.apache.parquet", ".esdb": "application/vnd.esdb",
    }  # fmt: skip
    for name, media in accept.items():
        page.locator("summary", has_text="Export").click()
        with page.expect_download() as download:
            page.get_by_role("button", name=name, exact=True).click()
        params = {"value": "cart", "reverse": "true"}
        answer = web.get("/v1/topics/clicks/index/type", params=params, headers={"accept": media})
        assert saved(download.value) == answer.content
        assert len(answer.content) > 5_000


def test_time_is_chosen_on_the_chart(tab, web):
    """Dragging over bars selects their time, in the address as well; a quick range replaces it."""
    page = tab.explore(topic="clicks")
    box = page.locator(".chart").bounding_box()
    page.mouse.move(box["x"] + box["width"] * 0.3, box["y"] + 40)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.5, box["y"] + 40, steps=4)
    told = page.locator(".chart-told").inner_text()
    page.mouse.up()
    tab.until("location.hash.includes('from=')")
    tab.settled()
    count = told.split(" ")[0]
    tab.until(f"document.querySelector('.status').textContent.startsWith('{count} events')")
    params = page.evaluate("Object.fromEntries(new URLSearchParams(location.hash.split('?')[1]))")
    between = {"start": params["from"], "end": params["to"], "time_unit": "us"}
    assert len(events(web, **between)) == int(count.replace(",", ""))
    page.locator("[aria-label=Time]").select_option("1h")
    tab.until("location.hash.includes('last=1h')")
    page.get_by_text("No events in this time range.").wait_for()


@long
def test_time_is_chosen_in_a_calendar(tab_of, server):
    """A day, several, or times to the second can be chosen, in the selected zone; days show their number of events."""
    tab = tab_of(server.url, timezone_id="America/New_York")
    first = spread(server) + 2 * DAY
    page = tab.explore(topic="spread")
    page.get_by_role("button", name="Choose a time").click()
    page.get_by_role("button", name="2026-03-04, 96 events").click()
    assert page.get_by_label("From", exact=True).input_value() == "2026-03-04T00:00"
    page.get_by_role("button", name="Show").click()
    tab.until(f"location.hash.includes('from={first}')")
    tab.settled()
    assert page.locator(".status").inner_text().startswith("96 events")
    page.get_by_role("button", name="Choose a time").click()
    assert page.locator(".days [aria-pressed=true]").count() == 1
    page.locator(f"[data-at='{first - DAY}']").click()
    page.locator(f"[data-at='{first - DAY}']").press("ArrowRight")
    page.keyboard.press("Enter")
    assert page.locator(".days [aria-pressed=true]").count() == 2
    page.get_by_role("button", name="Show").click()
    tab.until(f"location.hash.includes('from={first - DAY}')")
    tab.settled()
    assert page.locator(".status").inner_text().startswith("168 events")
    page.get_by_role("button", name="Times are in UTC").click()
    page.get_by_role("button", name="Choose a time").click()
    page.get_by_label("From", exact=True).fill("2026-03-04T00:00:01")
    page.get_by_label("To (excluded)").fill("")
    page.get_by_role("button", name="Show").click()
    tab.until(f"location.hash.includes('from={first + 5 * HOUR + 1_000_000}')")
    tab.until("!location.hash.includes('to=')")
    page.get_by_role("button", name="Choose a time").click()
    page.get_by_role("button", name="Previous month").click()
    assert page.locator(".month strong").inner_text() == "February 2026"
    page.keyboard.press("Escape")
    assert page.get_by_role("dialog").count() == 0


@long
def test_days_by_name(tab, server, web):
    """Yesterday and today begin and end at midnight."""
    topic = server.catalog.create_topic("days", exist_ok=True)
    midnight = int(datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0).timestamp()) * 1_000_000
    topic.append([{"space": "a", "timestamp": midnight + n} for n in (-DAY - 1, -DAY, -1, 0)])
    for last, count in (("today", 1), ("yesterday", 2), ("24h", 2)):
        page = tab.explore(topic="days", last=last)
        assert page.locator(".status").inner_text().startswith(f"{count} event")
        assert page.locator("[aria-label=Time]").input_value() == last


@long
def test_bars_as_wide_as_was_asked_for(tab, server):
    """Bars have the chosen width, also in colours and over all time; wider ones if there would be too many."""
    first = spread(server)
    page = tab.explore(topic="spread", **{"from": str(first + 2 * DAY), "to": str(first + 3 * DAY)})
    page.get_by_label("Bar width").select_option("h")
    tab.until("location.hash.includes('bars=h')")
    tab.settled()
    assert page.locator(".chart-most").inner_text() == "at most 4 in 1 hour, 4 on average"
    assert page.locator(".chart .bar").count() == 24
    page = tab.explore(topic="spread", bars="d", by="space")
    assert page.locator(".chart-most").inner_text() == "at most 96 in 1 day, 72 on average"
    assert page.locator(".chart .s0").count() == 3
    assert page.get_by_label("Bar width").input_value() == "d"
    page = tab.explore(topic="spread", bars="m")
    assert "in 5 minutes," in page.locator(".chart-most").inner_text()
    assert page.locator(".chart .bar").count() <= 1_000


def test_facets(tab, web):
    """Index values are shown with their counts; pressing one queries it, pressing again removes it."""
    page = tab.explore(topic="clicks")
    values = web.get("/v1/topics/clicks/values/type").json()["values"]
    chips = page.locator(".chip")
    chips.first.wait_for()
    assert [text.replace("\n", " ") for text in chips.all_inner_texts()] == [
        f"{each['value']} {each['events']:,}" for each in values
    ]
    chips.nth(1).click()
    tab.until("location.hash.includes('value=')")
    page.locator(".chip[aria-pressed=true]").wait_for()
    tab.settled()
    assert page.locator(".status").inner_text().startswith(f"{values[1]['events']:,} events")
    page.locator(".chip[aria-pressed=true]").click()
    tab.until("!location.hash.includes('value=')")


def test_keys(tab):
    """`/` goes to the query, `j` and `k` move between events, Enter opens, `?` helps, Escape leaves."""
    page = tab.explore(topic="clicks")
    page.keyboard.press("j")
    page.keyboard.press("j")
    page.keyboard.press("k")
    assert page.evaluate("document.activeElement.dataset.place") == "0"
    page.keyboard.press("Enter")
    page.locator(".row-details").wait_for()
    assert page.locator(".row-head").first.get_attribute("aria-expanded") == "true"
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.getAttribute('aria-label')") == "Space"
    page.keyboard.press("Escape")
    page.keyboard.press("?")
    page.get_by_role("dialog").get_by_text("next event").wait_for()
    page.keyboard.press("g")  # of the page behind it
    page.keyboard.press("?")
    assert page.get_by_role("dialog").count() == 1
    page.keyboard.press("Escape")
    assert page.get_by_role("dialog").count() == 0
    assert "explore" in page.evaluate("location.hash")


def test_an_answer_that_breaks_off(tab_of, server):
    """A broken answer says that the server is unreachable; repeated later, the same query is answered."""
    fates = [Fate()]
    with BreakingProxy(server.url, lambda _: fates[-1]) as proxy:

        def breaking(fate):
            fates.append(fate)
            proxy.cut()

        tab = tab_of(proxy.url)
        tab.expected |= {0, 404}
        page = tab.explore(topic="clicks", space="nobody")
        breaking(Fate(down_bytes=1_500))  # less than 200 rows
        tab.explore(topic="clicks")
        page.get_by_text("The server cannot be reached.").wait_for()
        breaking(Fate())
        page.get_by_role("button", name="Search").click()
        page.locator(".row-head").first.wait_for()
        breaking(Fate(down_bytes=0))
        tab.open("topic/%zz")
        page.get_by_text("The server cannot be reached.").wait_for()
        breaking(Fate())
        page.get_by_role("button", name="Try again").click()
        page.get_by_text("no topic").wait_for()
        tab.leave()
