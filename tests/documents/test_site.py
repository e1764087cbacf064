"""The documentation site: all pages exist, every link among them leads somewhere, and a broken one fails the build."""

from __future__ import annotations

import importlib.util
import inspect
import re
import shutil
import subprocess
import sys
import tomllib
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import click
import pytest
from effort import long

import esformat
from esformat.cli import main

pytestmark = pytest.mark.xdist_group("site")  # the site is built once

ROOT = Path(__file__).parents[2]


def load_site():
    """`docs/site.py`, which is a script outside any package."""
    spec = importlib.util.spec_from_file_location("docs_site", ROOT / "docs" / "site.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def build(directory: Path) -> subprocess.CompletedProcess[str]:
    """Build gathered pages as `make docs` does."""
    program = Path(sys.executable).with_name("zensical")
    command = [program, "build", "--config-file", directory / "build" / "zensical.toml", "--clean", "--strict"]
    return subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=120)


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """A directory with the files gathered for the site."""
    directory = tmp_path_factory.mktemp("docs")
    load_site().gather(directory / "build")
    configuration = directory / "build" / "zensical.toml"
    configuration.write_text(configuration.read_text("utf-8").replace('[".."]', f'["{ROOT.as_posix()}"]'), "utf-8")
    return directory


@pytest.fixture(scope="module")
def site(pages):
    """The built site."""
    run = build(pages)
    assert run.returncode == 0, run.stdout + run.stderr
    return pages / "build" / "site"


class Page(HTMLParser):
    """The targets and anchors of a built page, and its text."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self.targets: list[str] = []
        self.anchors: set[str] = set()
        self.words: list[str] = []
        self.feed(file.read_text("utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        if found.get("id"):
            self.anchors.add(found["id"])
        self.targets += [found[name] for name in ("href", "src") if found.get(name)]

    def handle_data(self, data: str) -> None:
        self.words.append(data)


@long
def test_every_link_leads_somewhere(site):
    """Links to pages, pictures, scripts and anchors work, also those to directories, which the build does not check."""
    known: dict[Path, Page] = {file: Page(file) for file in site.rglob("*.html")}
    assert len(known) > 15
    for file, page in known.items():
        if file.name == "404.html":
            continue  # shown for any address, so its links begin at the root
        for target in page.targets:
            if re.match(r"[a-z]+:|//", target):
                continue
            path, _, fragment = target.partition("#")
            found = (file.parent / unquote(path)).resolve() if path else file
            found = found / "index.html" if found.is_dir() else found
            assert found.exists(), f"{file.relative_to(site)}: {target}"
            if fragment and found in known:
                assert unquote(fragment) in known[found].anchors, f"{file.relative_to(site)}: {target}"


@long
def test_every_page_is_in_the_site(site):
    """Every page of the repository is in the site, under its path."""
    for page in [*(ROOT / "docs").rglob("*.md"), *(ROOT / "spec").glob("*.md"), ROOT / "README.md"]:
        path = page.relative_to(ROOT)
        place = path.parent if path.name == "README.md" else path.with_suffix("")
        assert (site / place / "index.html").exists(), path


def test_navigation_names_every_page(pages):
    """Each navigation entry is a page, and each page of docs/ and spec/ is an entry; the decisions have their index."""
    text = (pages / "build" / "zensical.toml").read_text("utf-8")
    named = set(re.findall(r'"([\w/-]+\.md)"', str(tomllib.loads(text)["project"]["nav"]).replace("'", '"')))
    assert all((pages / "build" / "pages" / page).exists() for page in named)
    folders = [ROOT / "docs", ROOT / "docs" / "tutorials", ROOT / "spec"]
    for page in [page for folder in folders for page in folder.glob("*.md")]:
        assert page.relative_to(ROOT).as_posix() in named


@long
def test_python_reference_has_every_name(site):
    """The Python reference has every name, with the first words of its docstring."""
    page = Page(site / "docs" / "python" / "index.html")
    text = " ".join(" ".join(page.words).split())
    for name in esformat.__all__:
        if not name.startswith("_"):
            assert f"esformat.{name}" in page.anchors
            plain = re.split(r"[`*\[]", inspect.getdoc(getattr(esformat, name)))[0]
            assert " ".join(plain.split()[:6]) in text, name
    assert "esformat.Segment.scan_index" in page.anchors


@long
def test_command_line_reference_has_every_verb(site):
    """The command line reference has every verb with its usage, options and examples."""
    text = "".join(Page(site / "docs" / "command-line" / "index.html").words)
    parts = {part.split()[0]: part for part in text.split("Usage: esdb ")[1:]}
    for verb, command in main.commands.items():
        options = [each for each in command.params if isinstance(each, click.Option) and not each.hidden]
        shown = [spelling for option in options for spelling in option.opts]
        shown += [line.strip() for line in (command.epilog or "").splitlines() if "esdb " in line]
        assert [each for each in shown if each not in parts[verb]] == []


@long
def test_hidden_blocks_stay_hidden(site):
    """Blocks that prepare an example for the tests are not in the site."""
    assert "RunningServer" in (ROOT / "README.md").read_text("utf-8")
    assert "clicks.csv" in "".join(Page(site / "index.html").words)
    assert "RunningServer" not in "".join(Page(site / "index.html").words)


@long
def test_broken_link_fails_the_build(pages, tmp_path):
    """A broken link fails the build."""
    shutil.copytree(pages, tmp_path / "copy", ignore=shutil.ignore_patterns("site", ".cache"))
    page = tmp_path / "copy" / "build" / "pages" / "docs" / "changelog.md"
    page.write_text(page.read_text("utf-8") + "\n[gone](nowhere.md)\n", "utf-8")
    run = build(tmp_path / "copy")
    assert run.returncode != 0
    said = re.sub(r"\x1b\[[\d;]*m", "", run.stdout + run.stderr)
    assert "nowhere.md" in said
