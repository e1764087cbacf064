"""A newcomer's first steps: named columns, an empty catalog, handwritten addresses, invisible values."""

from __future__ import annotations

import pytest
from browsing import PHONE, WIDE
from effort import long
from served import served

BOX = "node => { const { left, right, width } = node.getBoundingClientRect(); return [left, right, width]; }"


def test_what_the_rows_show_has_names(tab_of, server):
    """Columns have headings above them; on a phone there are none."""
    tab = tab_of(server.url)
    page = tab.explore(topic="clicks")
    names = page.locator(".row-names > *")
    assert names.all_inner_texts() == ["Time", "Space", "Event"]
    assert "customer" in names.nth(1).get_attribute("title")
    for name, part in zip(names.all(), page.locator(".row-head").first.locator("> *").all(), strict=True):
        assert abs(name.evaluate(BOX)[0] - part.evaluate(BOX)[0]) <= 1
    tab.explore(lql="SELECT COUNT FROM topic = clicks GROUP BY type")
    assert page.locator(".row-names").is_hidden()
    tab = tab_of(server.url, viewport=PHONE)
    assert tab.explore(topic="clicks").locator(".row-names").is_hidden()


@pytest.mark.parametrize("size", [WIDE, PHONE], ids=["wide", "phone"])
def test_an_empty_catalog(browser, tab_of, tmp_path, size):
    """An empty catalog shows a complete, working command that sends an event, and no time range hides it."""
    with served(tmp_path / "data") as running:
        tab = tab_of(running.url, viewport=size)
        page = tab.open("overview")
        command = page.locator(".notice pre")
        command.wait_for()
        assert f"curl '{running.url}/v1/streams?tags=app%3Dweb' -H" in command.inner_text()
        assert command.evaluate("node => node.scrollWidth <= node.clientWidth")
        assert command.evaluate(BOX)[2] > 0.75 * min(640, size["width"])
        tab.explore(lql="SELECT")
        assert page.locator(".rows-foot").inner_text() == "No results."
        assert page.locator(".chart-none").inner_text() == "No events."
        tab.explore(lql="SELECT", last="1h")
        assert page.locator(".rows-foot").inner_text() == "No events in this time range."
        tab.leave()


@long
def test_addresses_made_by_hand(tab):
    """A time from the address that is not in the list is added to it; invalid values are ignored."""
    page = tab.explore(topic="clicks", last="2h", bars="hour")
    assert page.get_by_label("Time", exact=True).evaluate("list => list.selectedOptions[0].text") == "Last 2 hours"
    assert page.get_by_label("Bar width").input_value() == ""
    assert page.get_by_label("Bar width").evaluate("list => list.selectedOptions[0]?.text") == "Automatic bar width"
    page = tab.explore(topic="clicks", last="often")
    assert page.get_by_label("Time", exact=True).evaluate("list => list.selectedOptions[0]?.text") == "All time"
    assert len(tab.rows()) > 0


@long
def test_values_that_cannot_be_seen(tab, server):
    """Empty values, blanks and characters without a shape are shown by name and queried unchanged."""
    odd = ["", " \t", "\u2067\u202e", "seen"]
    topic = server.catalog.create_topic("unseen", indexes=["note"])
    topic.append([{"space": "a", "timestamp": n, "note": note} for n, note in enumerate(odd)])
    page = tab.explore(topic="unseen")
    page.locator(".chip").first.wait_for()
    names = {"empty", "U+0020 U+0009", "U+2067 U+202E", "seen"}
    assert {chip.split("\n")[0] for chip in page.locator(".chip").all_inner_texts()} == names
    assert tab.rows()[1].endswith("U+2067 U+202E")
    tab.open("topic/unseen")
    page.locator(".value-line").first.wait_for()
    assert {line.split("\n")[0] for line in page.locator(".value-line").all_inner_texts()} == names
    page.locator(".value-line", has_text="U+2067").click()
    tab.until("location.hash.includes('value=')")
    tab.settled()
    assert page.locator(".status").inner_text().startswith("1 event,")


def test_what_facets_count(tab):
    """If facets count more than the query, that is said; a value can be entered once an index is chosen."""
    page = tab.explore(topic="clicks")
    page.locator(".chip").first.wait_for()
    assert page.get_by_text("Counted over the whole topic.").count() == 0
    assert page.get_by_label("Value of the index").is_hidden()
    tab.explore(topic="clicks", last="365d")
    page.get_by_text("Counted over the whole topic.").wait_for()
    page.get_by_label("Index", exact=True).select_option("type")
    page.get_by_label("Value of the index").fill("page")
    page.keyboard.press("Enter")
    tab.until("location.hash.includes('value=page')")


@long
def test_a_dialog_goes_with_its_view(tab):
    """Back also closes the calendar, without a choice."""
    page = tab.open("overview")
    page.locator(".topic-card").first.wait_for()
    tab.explore(topic="clicks")
    page.get_by_role("button", name="Choose a time").click()
    page.get_by_role("dialog").wait_for()
    page.go_back()
    tab.until("location.hash === '#/overview'")
    page.get_by_role("dialog").wait_for(state="detached")
    page.locator("[data-topic=clicks] h2 a").click()
    page.locator(".segment").first.wait_for()


def test_words_behind_a_keyword(tab):
    """Completions are offered before the first letter; Enter runs the query unless a completion was chosen."""
    page = tab.explore(lql="SELECT")
    box, words = page.locator("#box"), page.locator("#words [role=option]")
    box.fill("SELECT FROM ")
    words.first.wait_for()
    assert "app" in words.all_inner_texts()
    box.fill("SELECT FROM app = shop LIMIT 3 ")
    tab.until("document.querySelector('#words').hidden")
    box.press("Enter")
    tab.until("document.querySelectorAll('.row-head').length === 3")


@long
def test_numbers_of_a_table(tab, server):
    """Counts and sums have thousands separators; group keys have none."""
    topic = server.catalog.create_topic("sums", schema=None)
    topic.append([{"space": "a", "timestamp": n, "number": 1_234_567, "part": 2.5} for n in range(3)])
    page = tab.explore(lql="SELECT COUNT, SUM(number), SUM(part) FROM topic = sums GROUP BY number")
    assert page.locator(".result tbody tr").first.inner_text().split("\t") == ["1234567", "3", "3,703,701", "7.5"]


@long
def test_segments_behind_others(tab, server):
    """If more segments overlap than fit in lines, the number of hidden ones is shown."""
    topic = server.catalog.create_topic("crowd")
    server.catalog._backend.scheduler.stop()
    for n in range(27):
        topic.append([{"space": "a", "timestamp": n}, {"space": "a", "timestamp": 1_000 + n}])
        server.catalog.seal("crowd")
    page = tab.open("topic/clicks")
    page.locator(".segment").first.wait_for()
    assert page.get_by_text("are hidden behind others").count() == 0
    tab.open("topic/crowd")
    page.get_by_text("overlap in time: 3 are hidden behind others").wait_for()
    lines = page.locator(".segment").evaluate_all("all => new Set(all.map((each) => each.getAttribute('y'))).size")
    assert lines == 24
