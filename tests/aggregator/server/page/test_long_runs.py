"""The page over time: a million rows scrolled, and a server that stops and comes back."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest
from effort import long
from ports import free_port
from served import served

import aggregator
from aggregator.server import RunningServer, Settings

SCROLL = """async (end) => {
    const list = document.querySelector(".rows");
    let most = 0;
    for (const until = performance.now() + 900_000; performance.now() < until; ) {
        list.scrollTop = list.scrollHeight;
        list.dispatchEvent(new Event("scroll"));  // sooner than the browser's own, which wait for a picture
        most = Math.max(most, list.querySelectorAll("*").length);
        const last = Number([...list.querySelectorAll(".row-head")].at(-1)?.dataset.place ?? -1);
        if (last >= end || list.textContent.includes("End of results.")) return { last, most };
        await new Promise((resolve) => setTimeout(resolve));
    }
}"""


def heap_bytes(tab):
    """The page's JavaScript memory after garbage collection."""
    session = tab.context.new_cdp_session(tab.page)
    session.send("HeapProfiler.collectGarbage")
    return session.send("Runtime.getHeapUsage")["usedSize"]


@pytest.mark.parametrize("count", [7_000, pytest.param(1_000_000, marks=long)])
def test_rows_are_scrolled_and_the_page_does_not_grow(browser, tab_of, tmp_path, count):
    """The last row is the oldest event, elements stay few, and memory is the same as near the top."""
    with served(tmp_path / "data") as running:
        topic = running.catalog.create_topic("many", schema=pa.schema([("url", pa.string()), ("n", pa.int64())]))
        for first in range(0, count, 100_000):
            rows = range(first, min(count, first + 100_000))
            columns = {"timestamp": [1_000 * n for n in rows], "url": [f"/{n:0200}" for n in rows], "n": rows}
            topic.append(pa.table({"space": ["s"] * len(rows), **columns}))
        running.catalog.seal("many")
        tab = tab_of(running.url)
        page = tab.explore(topic="many")
        page.evaluate(SCROLL, 4_500)  # more than are kept
        before = heap_bytes(tab)
        found = page.evaluate(SCROLL, count)
        assert found["last"] == count - 1
        assert found["most"] < 1_000
        assert page.locator(".row-head").last.inner_text().endswith("n0")
        assert heap_bytes(tab) - before < (2 << 20 if count < 100_000 else 8 << 20)
        page.locator(".rows").evaluate("list => { list.scrollTop = 0; }")
        tab.until(f"document.querySelector('.row-head').textContent.endsWith('n{count - 1}')")
        tab.leave()


@long
def test_a_server_that_stops_and_comes_back(browser, tab_of, tmp_path):
    """The overview reports that the server stopped until it is back; Live then continues without a gap."""
    settings = replace(Settings(), http=replace(Settings().http, bind=f"127.0.0.1:{free_port()}", drain_s=1.0))
    tabs = []
    path = tmp_path / "data"
    with aggregator.open(path) as catalog, RunningServer(catalog, settings) as running:
        catalog.write({"app": "web"}, [{"msg": "before"}])
        for _ in range(2):
            tab = tab_of(running.url)
            tab.expected |= {0, 503}
            tabs.append(tab)
        overview, live = tabs
        overview.open("overview").locator(".topic-card").wait_for()
        page = live.explore(lql="SELECT FROM app = web")
        with page.expect_response("**/v1/tail**"):
            page.get_by_role("button", name="Live").click()
        live.until("document.querySelector('.status').textContent.includes('0 arrived')")
    overview.page.get_by_text("The server cannot be reached.").wait_for()
    live.page.get_by_text("connection lost").wait_for()
    with aggregator.open(path) as catalog:
        catalog.write({"app": "web"}, [{"msg": "first"}])
    with aggregator.open(path) as catalog, RunningServer(catalog, settings):
        live.page.get_by_text("first", exact=True).wait_for()
        catalog.write({"app": "web"}, [{"msg": "second"}])
        live.page.get_by_text("second", exact=True).wait_for()
        catalog.write({"app": "web"}, [{"msg": "third"}])
        live.page.get_by_text("third", exact=True).wait_for()
        assert [row.split("\n")[-1] for row in live.rows()] == ["third", "second", "first"]
        overview.page.get_by_text("The server cannot be reached.").wait_for(state="detached")
        overview.until("document.querySelector('[data-topic=logs] dd').textContent === '4'")
        for tab in tabs:
            tab.leave()
