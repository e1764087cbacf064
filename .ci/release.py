"""`python .ci/release.py URL`: write the commit, as published at URL, to build/release, to build the packages from.

A package index shows README.md outside the repository, so its links are made absolute, to the tag of the version;
`[project.urls]` names the repository. Nothing else differs from the commit.
"""

from __future__ import annotations

import io
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
RELATIVE_LINK = re.compile(r"(?<=\]\()(?!#|[a-z]+:)")


def at_address(readme: str, address: str, version: str) -> str:
    """Return README's text, with links to files of the repository changed to `address`."""
    return RELATIVE_LINK.sub(f"{address}/blob/v{version}/", readme)


def with_urls(pyproject: str, address: str, version: str) -> str:
    """Return the text of pyproject.toml with `[project.urls]` inserted before `[project.optional-dependencies]`."""
    before, table, after = pyproject.partition("\n[project.optional-dependencies]")
    changelog = f"{address}/blob/v{version}/docs/changelog.md"
    urls = f'\n[project.urls]\nRepository = "{address}"\nIssues = "{address}/issues"\nChangelog = "{changelog}"\n'
    return before + urls + table + after


def prepare(address: str, folder: Path) -> None:
    """Write the last commit, with its public address, to `folder`, deleting any previous contents."""
    if not re.fullmatch(r"https://[^\s/]+(/[^\s/]+)+", address):
        sys.exit(f"{address!r} is no address of a repository: give it as https://HOST/OWNER/NAME")
    shutil.rmtree(folder, ignore_errors=True)
    commit = subprocess.run(["git", "archive", "HEAD"], cwd=ROOT, capture_output=True, check=True).stdout
    with tarfile.open(fileobj=io.BytesIO(commit)) as archive:
        archive.extractall(folder, filter="data")
    pyproject, readme = folder / "pyproject.toml", folder / "README.md"
    version = tomllib.loads(pyproject.read_text())["project"]["version"]
    pyproject.write_text(with_urls(pyproject.read_text(), address, version))
    readme.write_text(at_address(readme.read_text(), address, version))


if __name__ == "__main__":
    prepare(sys.argv[1].rstrip("/") if len(sys.argv) == 2 else "", ROOT / "build/release")
