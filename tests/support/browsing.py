"""A real, headless browser: the machine's Chromium, and the errors that it finds in a page."""

from __future__ import annotations

import contextlib
import re
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlencode

import pytest

_NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
"""The first one installed is used: the one without windows needs half the processor time."""
_ARGUMENTS = (
    "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--no-first-run",
)  # fmt: skip
_AWAY = (
    "ERR_INTERNET_DISCONNECTED", "ERR_CONNECTION_REFUSED", "ERR_CONNECTION_RESET", "ERR_INCOMPLETE_CHUNKED_ENCODING",
    "ERR_EMPTY_RESPONSE", "ERR_CONNECTION_CLOSED", "ERR_CONTENT_LENGTH_MISMATCH",
)  # fmt: skip
"""The console's messages while a server is down."""
_NOWHERE = "about:blank"
_WAITING = """new Promise((done, failed) => {
    const end = performance.now() + 1000;
    const look = () => {
        try {
            const holds = !!(CONDITION);
            if (holds || performance.now() > end) done(holds);
            else setTimeout(look, 20);
        } catch (error) { failed(error); }
    };
    look();
})"""
"""Whether the condition becomes true within a second. An error in it is the test's fault."""
WIDE = {"width": 1280, "height": 800}
PHONE = {"width": 390, "height": 844}
PATIENCE_MS = 60_000


@contextlib.contextmanager
def browsing() -> Iterator[Any]:
    """A browser. Skips the test if the machine has none."""
    found = next((path for name in _NAMES if (path := shutil.which(name))), None)
    if found is None:
        pytest.skip("needs Chromium: apt-get install chromium")
    sync_api = pytest.importorskip("playwright.sync_api", reason="needs playwright, which the extra `dev` brings")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=list(_ARGUMENTS))
        yield browser
        browser.close()


class Tab:
    """A separate page in the browser, and all errors that occur in it."""

    def __init__(self, browser: Any, **options: Any) -> None:
        """options: those of the browser's context."""
        self.context = browser.new_context(**{"viewport": WIDE, "timezone_id": "UTC", **options})
        self.page = self.context.new_page()
        self.page.set_default_timeout(PATIENCE_MS)
        self.wrong: list[str] = []
        self.expected: set[int] = set()
        """Error statuses that responses to this page may have. 0: the server may be down."""
        self.page.on("console", self._console)
        self.page.on("pageerror", lambda error: self.wrong.append(f"error: {error}"))
        self.page.on("dialog", lambda dialog: (self.wrong.append(f"dialog: {dialog.message}"), dialog.dismiss()))
        self.page.on("request", self._request)

    def at(self, url: str) -> Self:
        """Begin to use a server, with no errors recorded so far."""
        self.url = url
        self.wrong.clear()
        self.expected.clear()
        return self

    def _console(self, message: Any) -> None:
        status = re.search(r"the server responded with a status of (\d+)", message.text)
        offline = 0 in self.expected and any(sign in message.text for sign in _AWAY)
        if message.type in ("error", "warning") and not offline and not (status and int(status[1]) in self.expected):
            self.wrong.append(f"console: {message.text}")

    def _request(self, request: Any) -> None:
        if not request.url.startswith((self.url, "blob:", "data:")):
            self.wrong.append(f"request to another host: {request.url}")

    def open(self, view: str = "", **params: str) -> Any:
        """Open a view by its address; return the page."""
        query = f"?{urlencode(params)}" if params else ""
        self.page.goto(f"{self.url}/#/{view}{query}")
        return self.page

    def explore(self, **params: str) -> Any:
        """Open Explore, and wait until its result is shown."""
        page = self.open("explore", **params)
        self.settled()
        return page

    def settled(self) -> None:
        """Wait until Explore shows its result or an error."""
        self.until("document.querySelector('.explore')?.dataset.answers === location.hash")

    def until(self, condition: str) -> None:
        """Wait until a JavaScript expression is true. (Playwright's own waiting needs `eval`, which the page's
        policy forbids.) The page itself repeats the check: a request from here for each check is expensive for three
        processes.
        """
        end = time.monotonic() + PATIENCE_MS / 1000
        while not self.page.evaluate(_WAITING.replace("CONDITION", condition)):
            assert time.monotonic() < end, f"still not: {condition}\n{self.page.inner_text('body')[:2000]}"

    def rows(self) -> list[str]:
        """The text of each visible row."""
        return [text.strip() for text in self.page.locator(".row-head").all_inner_texts()]

    def leave(self) -> None:
        """Clear everything of the server's page except its files. Raises AssertionError if an error occurred in it."""
        if self.page.url != _NOWHERE:
            self.page.evaluate("localStorage.clear(); sessionStorage.clear()")
            self.page.goto(_NOWHERE)
        assert not self.wrong, "\n".join(self.wrong)


def saved(download: Any) -> bytes:
    """The contents of the downloaded file."""
    return Path(download.path()).read_bytes()
