"""`esdb view`: the page over files, in a real browser and as a command."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tomllib
from pathlib import Path

import httpx
import pytest
from clicks import click_table, write_clicks
from waiting import until

import esformat
from aggregator.server.viewing import viewing
from esformat import UsageError
from esformat.cli.view import named_files
from esformat.parts import anatomy

ROOT = Path(__file__).parents[4]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A file and a directory of two."""
    folder = tmp_path_factory.mktemp("files")
    write_clicks(folder / "clicks.esdb", click_table(2_000))
    (folder / "parts").mkdir()
    for n in range(2):
        write_clicks(folder / "parts" / f"{n}.esdb", click_table(500, seed=n))
    return folder


@pytest.fixture(scope="module")
def address(browser, files):
    with viewing(named_files([str(files / "clicks.esdb"), str(files / "parts")])) as found:
        yield found


def test_files_in_the_browser(tab_of, address, files):
    """The address opens the page with the files' events; the token does not stay in the address."""
    url, token = address.split("/#token=")
    tab = tab_of(url)
    tab.page.goto(address)
    tab.page.locator(".topic-card").first.wait_for()
    assert tab.page.locator(".topic-card h2").all_inner_texts() == ["clicks", "parts"]
    assert tab.page.title() == "Files · esdb view"
    assert token not in tab.page.evaluate("location.href + JSON.stringify(localStorage) + document.cookie")
    assert tab.page.locator(".meter, .rate").count() == 0
    page = tab.explore(topic="clicks", index="type", value="purchase")
    with esformat.open(files / "clicks.esdb") as segment:
        expected = list(segment.scan_index("type", "purchase"))
    assert page.locator(".status").inner_text().startswith(f"{len(expected):,} events")
    shown = page.locator(".row-head .who bdi").all_inner_texts()
    newest = sorted(expected, key=lambda event: -event.timestamp)[: len(shown)]
    assert sorted(shown) == sorted(event.space for event in newest)
    assert page.locator(".live").count() == 0
    page = tab.explore(lql="SELECT FROM topic = parts")
    assert page.locator(".status").inner_text().startswith("1,000 events")


def test_anatomy_of_a_file(tab_of, address, files):
    """The areas of a file are its columns and parts, explained on hover or by keys; a button verifies all of it."""
    url, _ = address.split("/#token=")
    tab = tab_of(url)
    tab.page.goto(address)
    tab.page.locator(".topic-card h2 a").first.click()
    tab.page.locator(".timeline a").first.focus()
    tab.page.keyboard.press("Enter")
    page = tab.page
    page.locator(".treemap .area").first.wait_for()
    path = files / "clicks.esdb"
    found = anatomy(path)
    assert page.locator("h1").inner_text() == "clicks.esdb"
    assert f"{path.stat().st_size / 1024:.1f} KiB" in page.locator(".figures").inner_text()
    sizes = [each.bytes for each in found.columns] + [part.bytes for part in found.parts if part.kind != "data"]
    boxes = page.locator(".treemap g.area rect").evaluate_all(
        "rects => rects.map((rect) => (rect.width.baseVal.value + 1.5) * (rect.height.baseVal.value + 1.5))"
    )
    largest = sorted(filter(None, sizes), reverse=True)
    assert len(boxes) == len(largest)
    assert boxes[0] / sum(boxes) == pytest.approx(largest[0] / sum(sizes), rel=0.05)
    page.locator(".treemap g.area").first.hover()
    assert "Data of data (binary)" in page.locator(".area-told").first.inner_text()
    page.locator(".treemap g.area").first.focus()
    page.keyboard.press("ArrowRight")
    assert page.locator(".area-told").first.inner_text() == page.locator(".treemap g.area title").nth(1).text_content()
    assert page.locator("rect.area").count() == sum(part.kind == "data" for part in found.parts)
    page.locator(".held tbody tr").first.wait_for()
    with esformat.open(path) as segment:
        expected = {name: f"{len(segment.index_values(name))}" for name in segment.indexes}
    cells = [row.split("\t") for row in page.locator(".held tbody tr").all_inner_texts()]
    assert {cell[0]: cell[3] for cell in cells if cell[0] in expected} == expected
    page.get_by_role("button", name="Verify").click()
    page.get_by_text("blocks with 2,000 events are valid").wait_for()


def test_only_this_token_and_only_reading(address):
    """Other requests are refused, and so are changes."""
    url, token = address.split("/#token=")
    assert httpx.get(f"{url}/v1/topics").status_code == 401
    with httpx.Client(base_url=url, headers={"Authorization": f"Bearer {token}"}) as web:
        assert web.get("/v1/access").json() == {"scopes": ["read"], "topics": None, "read_only": True, "fixed": True}
        assert web.post("/v1/topics/clicks/compact").status_code == 403
        assert web.post("/v1/topics/clicks/events", json=[{"space": "a", "timestamp": 1}]).status_code == 403


def test_names_of_files(files, tmp_path):
    """Files are named after themselves; two with the same name by the given path."""
    (tmp_path / "clicks.esdb").write_bytes((files / "clicks.esdb").read_bytes())
    given = [str(files / "clicks.esdb"), str(tmp_path / "clicks.esdb"), str(files / "parts" / "*.esdb")]
    assert list(named_files(given)) == ["clicks", given[1], "*"]
    with pytest.raises(UsageError, match=r"no \.esdb file"):
        named_files([str(tmp_path / "none*.esdb")])


def test_the_command(files, tmp_path):
    """The command prints the address, opens the browser, and leaves nothing behind when interrupted."""
    entries = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]
    told = "\n".join(
        f"[{name}]\n" + "\n".join(f"{k} = {v}" for k, v in group.items()) for name, group in entries.items()
    )
    info = tmp_path / "esformat_view-1.dist-info"  # as in an installation of this tree
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: esformat-view\nVersion: 1\n")
    (info / "entry_points.txt").write_text(told)
    (tmp_path / "tmp").mkdir()
    environment = os.environ | {"PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}", "TMPDIR": str(tmp_path / "tmp")}
    browser = tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\necho "$1" > {tmp_path}/opened\n')
    browser.chmod(0o700)
    environment["BROWSER"] = f"{browser} %s"
    process = subprocess.Popen(
        [sys.executable, "-m", "esformat", "view", "--open", str(files / "clicks.esdb")], env=environment, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    address = process.stdout.readline().strip()
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/#token=agg_\w+_[\w-]+", address), process.stderr.read()
    assert 'href="#/overview"' in httpx.get(address.split("#")[0], headers={"Accept": "text/html"}).text
    until(lambda: (tmp_path / "opened").exists() and (tmp_path / "opened").read_text().strip() == address)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (0, "1 file; press Ctrl-C to stop\n")
    assert not list((tmp_path / "tmp").iterdir())
