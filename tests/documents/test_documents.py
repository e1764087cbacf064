"""The contents of the documents work: code runs, links lead somewhere, commands exist.

Each fenced block of README.md, CONTRIBUTING.md and docs/ is handled by its language:

    python     runs; the blocks of one page run in order, in one namespace and one temporary directory
    console    each line after `$ ` runs in that directory; the lines below it are its output, `…` for any text
    sh         each command exists: a target of the Makefile, a module, a verb of a command; nothing runs
    others     shown only

A block inside an HTML comment runs like any other but is not shown: it prepares an example.
"""

from __future__ import annotations

import importlib.util
import io
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from effort import ALL

from aggregator.cli import run as aggregator_command
from esformat.cli import run as esdb

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
FENCE = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
ELLIPSIS = "…"
PLAIN = re.compile(r"(esdb|aggregator) [^|&;<>()$`\\\\*?\[\]#~{}!\n]*")  # a command that needs no shell
QUOTED = re.compile(r"""'[^']*'|"[^"$`\\!]*\"""")  # text that a shell does not change, whatever it contains
FOREIGN = ("cmp", "curl")  # programs that pages use and machines may lack


@dataclass(frozen=True)
class Block:
    """A fenced block and where it begins, for messages."""

    page: Path
    line: int
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def blocks(page: Path, language: str | None = None) -> list[Block]:
    """Return the fenced blocks of a page, all or those of one language."""
    text = page.read_text("utf-8")
    found = [Block(page, text.count("\n", 0, m.start()) + 1, m[1], m[2]) for m in FENCE.finditer(text)]
    return [block for block in found if language in (None, block.language)]


def names(pages):
    return [page.relative_to(ROOT).as_posix() for page in pages]


def pages_with(*languages):
    return [page for page in PAGES if any(block.language in languages for block in blocks(page))]


def dialogues(block: Block) -> list[tuple[str, str]]:
    """Split a console block into commands and their expected output."""
    parts = re.split(r"^\$ ", block.text, flags=re.MULTILINE)
    assert not parts[0].strip(), f"{block}: a console block begins with `$ `"
    return [(command, printed) for command, _, printed in (part.partition("\n") for part in parts[1:])]


def matches(shown: str, printed: str) -> bool:
    """Whether `printed` is what the page shows, in which `…` stands for any text."""
    pattern = ".*".join(re.escape(piece) for piece in shown.strip().split(ELLIPSIS))
    return re.fullmatch(pattern, printed.strip(), re.DOTALL) is not None


def run_console(block: Block, directory: Path, here: Callable[[str, list[str]], tuple[int, str, str]]) -> None:
    """Run each command: with `here`, in this process, which has imported everything, those that need no shell."""
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    python = shlex.quote(sys.executable)  # this checkout's commands, even if others are installed
    commands = f'esdb() {{ {python} -m esformat "$@"; }}\naggregator() {{ {python} -m aggregator "$@"; }}\n'
    for command, shown in dialogues(block):
        if missing := [program for program in FOREIGN if program in command.split() and shutil.which(program) is None]:
            pytest.skip(f"{block}: {command} needs {missing[0]}, which this machine lacks")
        if PLAIN.fullmatch(QUOTED.sub("quoted", command.replace(" $AGGREGATOR ", " server "))):
            program, *arguments = (
                os.environ["AGGREGATOR"] if word == "$AGGREGATOR" else word for word in shlex.split(command)
            )
            status, out, err = here(program, arguments)
        else:
            run = subprocess.run(
                ["bash", "-euo", "pipefail", "-c", commands + command],
                cwd=directory, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300,
            )  # fmt: skip
            status, out, err = run.returncode, run.stdout, run.stderr
        assert status == 0, f"{block}: {command}\n{err}"
        assert not shown.strip() or matches(shown, out), f"{block}: {command}\nprinted:\n{out}"


@pytest.fixture
def here(capfdbinary, monkeypatch):
    """Run `esdb` or `aggregator` with some arguments in this process; return the status, output and errors."""
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setenv("NO_COLOR", "1")

    def run(program, arguments):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO()))
        capfdbinary.readouterr()
        status = {"esdb": esdb, "aggregator": aggregator_command}[program](arguments)
        captured = capfdbinary.readouterr()
        return status, captured.out.decode(), captured.err.decode()

    return run


@pytest.mark.parametrize("page", pages_with("python", "console"), ids=names(pages_with("python", "console")))
def test_code_runs(page, tmp_path, monkeypatch, here):
    """The code of a page runs from top to bottom and prints what it says; the README's sometimes runs twice."""
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, object] = {"__name__": "__main__"}
    for block in blocks(page) * (2 if ALL and page == ROOT / "README.md" else 1):
        if block.language == "python":
            source = "\n" * block.line + block.text  # so that errors name the line of the page
            exec(compile(source, str(page), "exec"), namespace)
        elif block.language == "console":
            run_console(block, tmp_path, here)


def make_targets() -> set[str]:
    return set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))


def verbs(program: str) -> set[str]:
    from aggregator.cli import main as aggregator
    from esformat.cli import main as esdb

    return set({"esdb": esdb, "aggregator": aggregator}[program].commands)


def check_command(block: Block, line: str) -> None:
    words = shlex.split(line, comments=True)
    if not words:
        return
    program, arguments = words[0], [word for word in words[1:] if not word.startswith("-") and "=" not in word]
    if program == "make":
        assert set(arguments) <= make_targets(), f"{block}: {line}"
    elif program in ("esdb", "aggregator"):
        assert arguments[0] in verbs(program), f"{block}: {line}"
    elif program.startswith("python") and "-m" in words:
        assert importlib.util.find_spec(words[words.index("-m") + 1]) is not None, f"{block}: {line}"
    elif program.startswith("python"):
        assert (ROOT / arguments[0]).exists(), f"{block}: {line}"
    else:
        assert program in {"git", "cd", "pip"} or (ROOT / program).exists(), f"{block}: {line}"


@pytest.mark.parametrize("page", pages_with("sh"), ids=names(pages_with("sh")))
def test_commands_exist(page):
    """Every command that a page tells people to type exists."""
    for block in blocks(page, "sh"):
        for line in block.text.replace("\\\n", " ").splitlines():
            check_command(block, line)


@pytest.mark.parametrize("page", PAGES, ids=names(PAGES))
def test_links_lead_somewhere(page):
    """A relative link leads to a file of the repository, and its fragment to a heading in it."""
    for target in LINK.findall(FENCE.sub("", page.read_text("utf-8"))):
        if re.match(r"[a-z]+:", target):
            continue  # other sites are not checked
        path, _, fragment = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        assert file.exists(), f"{page.name}: {target}"
        assert not fragment or fragment in anchors(file), f"{page.name}: {target}"


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as links write them."""
    headings = re.findall(r"^#+ (.+)$", FENCE.sub("", page.read_text("utf-8")), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_every_page_is_listed():
    """Every page of docs/ is linked from its index, and every decision from the index of decisions."""
    for folder, pages in (
        (ROOT / "docs", "[!d]*/*.md"),
        (ROOT / "docs", "*.md"),
        (ROOT / "docs" / "decisions", "*.md"),
    ):
        index = (folder / "README.md").read_text("utf-8")
        listed = {target.partition("#")[0] for target in LINK.findall(index)}
        for page in folder.glob(pages):
            name = page.relative_to(folder).as_posix()
            assert name in listed | {"README.md"}, f"{name} is missing in {folder.name}/README.md"


def test_ci_runs_the_readme_test_command():
    """CI provides a browser, runs `make check` and then the test command of README.md."""
    (readme_command,) = re.findall(
        r"^(make test\b[^#\n]*?) *(?:#.*)?$", (ROOT / "README.md").read_text("utf-8"), re.MULTILINE
    )
    script = (ROOT / ".ci" / "run").read_text("utf-8")
    commands = [line for line in script.splitlines() if line and not line.startswith(("#", "set ", "cd "))]
    assert commands == [".ci/browser", "make --jobs 2 check compiled", readme_command]
    assert all(os.access(ROOT / ".ci" / name, os.X_OK) for name in ("run", "browser"))


def test_pages_name_no_place_of_one_machine():
    """No page contains an absolute path of the machine that it was written on."""
    for page in PAGES:
        found = re.search(r"(?<![\w.])/(home|root|work|Users)/", page.read_text("utf-8"))
        assert found is None, f"{page.name}: {found}"


@pytest.mark.parametrize(
    ("shown", "printed", "expected"),
    [
        ("3 events", "3 events\n", True),
        ("3 events", "4 events\n", False),
        ("… events", "12 events", True),
        ("first\n…\nlast", "first\na\nb\nlast\n", True),
        ("a.b", "axb", False),
    ],
)
def test_shown_output_is_compared(shown, printed, expected):
    """The comparison of shown and printed text can fail, and `…` is its only wildcard."""
    assert matches(shown, printed) is expected


def test_console_blocks_are_split():
    """A command ends with its line; the lines until the next command are its output."""
    block = Block(ROOT / "README.md", 1, "console", "$ one\na\nb\n$ two\n")
    assert dialogues(block) == [("one", "a\nb\n"), ("two", "")]


def test_failing_command_is_reported(tmp_path, here):
    """A console block fails if its command fails or prints something else."""
    for text in ("$ false\n", "$ echo a\nb\n", "$ esdb stat absent.esdb\n", "$ esdb --version\nesdb 0.0\n"):
        with pytest.raises(AssertionError):
            run_console(Block(ROOT / "README.md", 1, "console", text), tmp_path, here)
    for text in (f"$ {shlex.quote(sys.executable)} -c 'print(1)'\n1\n", "$ aggregator --version\naggregator …\n"):
        run_console(Block(ROOT / "README.md", 1, "console", text), tmp_path, here)


def test_what_the_readme_links_to_is_distributed():
    """The source distribution has the files that README.md links to, because an index shows README.md without them."""
    rules = [line.split() for line in (ROOT / "MANIFEST.in").read_text("utf-8").splitlines() if line[:1] not in "#"]
    sent = {rule[1] for rule in rules if rule[0] in ("graft", "include")} | {"LICENSE"}
    targets = LINK.findall(FENCE.sub("", (ROOT / "README.md").read_text("utf-8")))
    assert {target.partition("/")[0] for target in targets if "://" not in target} <= sent
