"""For everybody: labels, roles and contrast in each view, light and dark, on a desktop and on a phone."""

from __future__ import annotations

import pytest
from axe_playwright_python.sync_playwright import Axe
from browsing import PHONE, WIDE
from effort import share_of

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
"""Views, and what is there when they are."""
WIDTH = "[...document.querySelectorAll('html, main, .rows')].every((each) => each.scrollWidth <= innerWidth)"
RULES = {"runOnly": ["wcag2a", "wcag2aa", "wcag21aa"], "resultTypes": ["violations"]}


def faults(page):
    """What axe finds, in words."""
    found = Axe().run(page, options=RULES).response["violations"]
    return [f"{each['id']}: {node['html'][:200]} {node.get('failureSummary')}"
            for each in found for node in each["nodes"][:3]]  # fmt: skip


def looked_at(tab, view):
    """A view, with an event of it opened, and the calendar over that of a space."""
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


@pytest.mark.parametrize(("scheme", "size"), [("light", WIDE), ("dark", PHONE)], ids=["wide", "phone"])
def test_everybody_can_read_it(tab_of, server, scheme, size):
    """Nothing is wider than the window, and axe finds nothing: labels, roles, contrast (WCAG AA), in each view."""
    tab = tab_of(server.url, color_scheme=scheme, viewport=size, bypass_csp=True)  # axe is no part of the page
    tab.expected.add(400)
    for view in share_of(list(SHOWN), 1 if scheme == "light" else 2):
        page = looked_at(tab, view)
        assert page.evaluate(WIDTH), view
        told = faults(page)
        assert not told, f"{view}: " + "\n".join(told)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_what_opens_over_a_view(tab_of, server, scheme):
    """Menus, the list of words, help, a live tail, and what is asked before something is done."""
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
    page.get_by_role("button", name="Merge its segments").click()
    page.get_by_role("dialog").wait_for()
    assert faults(page) == []
