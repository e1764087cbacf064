"""The page's files: complete, from this server alone, under a policy that prevents scripts from text."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from effort import share_of

import aggregator.server

FOLDER = Path(aggregator.server.__file__).parent / "page"
FILES = sorted(path.name for path in FOLDER.iterdir())
MARKUP = re.compile(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function")
BROWSER = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"


def test_who_gets_the_page(web):
    """Browsers get the page; Elasticsearch clients, curl and others get JSON as before."""
    page = web.get("/", headers={"accept": BROWSER})
    assert page.headers["content-type"].startswith("text/html")
    assert page.content == (FOLDER / "index.html").read_bytes()
    for accept in ("*/*", "application/json", "application/vnd.elasticsearch+json;compatible-with=8"):
        assert web.get("/", headers={"accept": accept}).json()["name"] == "aggregator"
    assert web.head("/").status_code == 200


@pytest.mark.parametrize("name", ["/", *(f"/page/{name}" for name in share_of(FILES, 3))])
def test_policy(web, name):
    """Scripts, styles and requests are allowed from this server only, none inline; no frames, no markup from text."""
    answer = web.get(name, headers={"accept": BROWSER})
    assert answer.status_code == 200
    policy = dict(part.strip().split(" ", 1) for part in answer.headers["content-security-policy"].split(";"))
    assert policy["default-src"] == "'none'"
    assert {policy[name] for name in ("script-src", "style-src", "connect-src", "img-src")} == {"'self'"}
    assert policy["frame-ancestors"] == policy["base-uri"] == policy["form-action"] == "'none'"
    assert policy["require-trusted-types-for"] == "'script'"
    assert answer.headers["x-content-type-options"] == "nosniff"


def test_known_files_are_not_sent_again(web):
    """A browser that has a file gets a short 304; a new version has another tag."""
    first = web.get("/page/app.js")
    again = web.get("/page/app.js", headers={"if-none-match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    assert web.get("/page/app.js", headers={"if-none-match": '"other"'}).content == first.content
    assert first.headers["cache-control"] == "no-cache"


@pytest.mark.parametrize("name", ["nothing.js", "..%2Fdocs.html", "%2e%2e%2fapp.py", "index.htm"])
def test_no_other_files(web, name):
    """Other files are not found, whatever the path."""
    assert web.get(f"/page/{name}").status_code == 404


def test_scripts_make_no_markup():
    """No script can turn text into markup or code, and no file names another host."""
    for name in FILES:
        text = (FOLDER / name).read_text("utf-8")
        assert not MARKUP.search(text), name
        addresses = set(re.findall(r"https?://[^\s\"'`)]+", text)) - {"http://www.w3.org/2000/svg"}
        assert not addresses, name


def test_modules_are_there():
    """Every imported module is a file of the page, and every module is imported, or named by the page."""
    imported = {"app.js"}
    for name in FILES:
        if name.endswith(".js"):
            imported |= set(re.findall(r"from \"\./([\w.]+)\"", (FOLDER / name).read_text("utf-8")))
    assert imported == {name for name in FILES if name.endswith(".js")}


def test_modules_are_fetched_at_once():
    """The page names all modules, so that they are fetched in parallel instead of one after the other."""
    named = re.findall(r'rel="modulepreload" href="page/([\w.]+)"', (FOLDER / "index.html").read_text("utf-8"))
    assert sorted(named) == sorted({name for name in FILES if name.endswith(".js")} - {"app.js"})
