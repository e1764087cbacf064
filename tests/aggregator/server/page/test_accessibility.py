"""Accessibility: labels, roles and contrast in each view, light and dark, on desktop and phone."""

from __future__ import annotations

import pytest
from axe_playwright_python.sync_playwright import Axe
from browsing import PHONE, WIDE
from effort import long, share_of

SHOWN = {
    "overview": ".topic-card",
    "explore?topic=clicks": ".row-details",
    "explore?lql=SELECT+FROM+app%3Dshop": ".row-details",
    "explore?topic=clicks&by=type&cols=%5B%22country%22%2C%22type%22%5D": ".row-details",
    "explore?topic=clicks&space=customer-1": "dialog .days",
    "explore?topic=clicks&last=1h": ".chart-none",
    "explore?topic=odd+%3Cb%3E": ".row-details",
    "explore?lql=SELECT+COUNT+FROM+topic+%3D+clicks+GROUP+BY+type": ".result td",
    "explore?lql=EXPLAIN+SELECT+FROM+topic+%3D+clicks": ".explained",
    "explore?lql=SELECT+FRM+app": "#box-error mark",
    "topic/clicks": ".value-line",
    "segment/clicks%2F1": ".treemap",
}
"""Views, each with an element that shows when it is ready."""
WIDTH = "[...document.querySelectorAll('html, main, .rows')].every((each) => each.scrollWidth <= innerWidth)"
RULES = {"runOnly": ["wcag2a", "wcag2aa", "wcag21aa"], "resultTypes": ["violations"]}


def faults(page):
    """The findings of axe as text."""
    found = Axe().run(page, options=RULES).response["violations"]
    return [f"{each['id']}: {node['html'][:200]} {node.get('failureSummary')}"
            for each in found for node in each["nodes"][:3]]  # fmt: skip


def looked_at(tab, view):
    """A view with an open event, and with the calendar if it is a space's."""
    page = tab.open(view)
    if view.startswith("explore"):
        tab.settled()
        if (head := page.locator(".row-head").first).is_visible():
            head.click()
    if "space=" in view:
        page.locator(".lane").first.wait_for()
        page.get_by_role("button", name="Choose a time").click()
    page.locator(SHOWN[view]).first.wait_for()
    return page


@pytest.mark.parametrize(
    ("scheme", "size"), [("light", WIDE), pytest.param("dark", PHONE, marks=long)], ids=["wide", "phone"]
)
def test_everybody_can_read_it(tab_of, server, scheme, size):
    """In each view nothing is wider than the window, and axe finds no fault in labels, roles and contrast (WCAG AA)."""
    tab = tab_of(server.url, color_scheme=scheme, viewport=size, bypass_csp=True)  # axe is not part of the page
    tab.expected.add(400)
    for view in share_of(list(SHOWN), 1 if scheme == "light" else 2):
        page = looked_at(tab, view)
        assert page.evaluate(WIDTH), view
        told = faults(page)
        assert not told, f"{view}: " + "\n".join(told)


@long
@pytest.mark.parametrize("scheme", share_of(["dark", "light"], 2))
def test_what_opens_over_a_view(tab_of, server, scheme):
    """No menu, word list, help, live tail or confirmation has a fault that axe finds."""
    tab = tab_of(server.url, color_scheme=scheme, bypass_csp=True)
    page = tab.explore(topic="clicks", by="type")
    for name in ("Columns", "Export"):
        page.locator("summary", has_text=name).click()
        assert faults(page) == []
    page.keyboard.press("?")
    page.get_by_role("dialog").wait_for()
    assert faults(page) == []
    page = tab.explore(lql="SELECT")
    page.locator("#box").fill("SELECT FROM a")
    page.locator("#words [role=option]").first.wait_for()
    assert faults(page) == []
    page.get_by_role("button", name="Live").click()
    page.get_by_text("Waiting for events").wait_for()
    assert faults(page) == []
    page = tab.open("topic/clicks")
    page.get_by_role("button", name="Merge segments").click()
    page.get_by_role("dialog").wait_for()
    assert faults(page) == []


HELD = """(() => {
    const { tagName, textContent, ariaLabel } = document.activeElement;
    return `${tagName} ${ariaLabel ?? textContent}`;
})()"""
"""The focused element."""


@long
def test_the_focus_stays_where_it_was(tab, server):
    """Controls used by keyboard keep the focus when redrawn; so do links that the overview redraws."""
    page = tab.explore(topic="clicks")
    page.locator(".chip").nth(1).focus()
    chip = page.evaluate(HELD)
    page.keyboard.press("Enter")
    tab.until("location.hash.includes('value=')")
    tab.settled()
    assert chip.startswith("BUTTON ")
    assert page.evaluate(HELD) == chip
    for label, value in (("Break down by", "type"), ("Bar width", "d")):
        page.get_by_label(label).focus()
        page.get_by_label(label).select_option(value)
        tab.until(f"location.hash.includes('={value}')")
        tab.settled()
        assert page.evaluate(HELD) == f"SELECT {label}"
    page.get_by_role("button", name="Oldest first").press("Enter")
    tab.until("location.hash.includes('order=oldest')")
    tab.settled()
    assert page.evaluate(HELD) == "BUTTON Newest first"
    page = tab.open("overview")
    page.locator(".topic-card h2 a").nth(1).focus()
    link = page.evaluate(HELD)
    before = server.catalog.topic("logs").stats()["rows"]
    server.catalog.write({"app": "focus"}, [{"msg": "x"}] * 3)
    tab.until(f"document.querySelector('[data-topic=logs] dd').textContent === '{before + 3:,}'")
    assert page.evaluate(HELD) == link


def test_menus_close(tab):
    """Menus close on Escape, which returns the focus to their button, and on a click elsewhere; not while in use."""
    page = tab.explore(topic="clicks")
    menu = page.locator(".columns-menu")
    page.locator("summary", has_text="Columns").press("Enter")
    menu.get_by_role("button", name="+ type").press("Enter")
    tab.until("document.querySelector('.row-names').textContent === 'TimeSpacetype'")
    tab.settled()
    assert menu.evaluate("menu => menu.open && menu.contains(document.activeElement)")
    page.keyboard.press("Escape")
    assert not menu.evaluate("menu => menu.open")
    assert page.evaluate(HELD) == "SUMMARY Columns"
    page.locator("summary", has_text="Export").click()
    page.locator("summary", has_text="Columns").click()
    assert page.locator("details[open]").count() == 1
    page.locator(".status").click()
    assert page.locator("details[open]").count() == 0


@long
def test_from_the_question_to_its_events(tab):
    """`/`, a statement, Enter and `j` suffice to reach an event."""
    page = tab.explore(lql="SELECT FROM app = shop")
    page.keyboard.press("/")
    page.keyboard.type("SELECT FROM app = web LIMIT 4")
    page.keyboard.press("Enter")
    tab.until("location.hash.includes('web')")
    tab.settled()
    page.keyboard.press("j")
    assert page.evaluate("document.activeElement.dataset.place") == "0"
    assert page.locator("#box").input_value() == "SELECT FROM app = web LIMIT 4"
