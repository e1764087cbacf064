"""`.ci/release.py`: the published commit contains the address at which it is published."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ADDRESS = "https://code.example/events/esformat"
sys.path.insert(0, str(ROOT / ".ci"))
import release  # noqa: E402


def test_links_of_readme_lead_to_files_of_the_tag():
    """Links in README.md lead to files of the tag, because a package index shows it without the other files."""
    readme = (ROOT / "README.md").read_text()
    published = release.at_address(readme, ADDRESS, "1.2.3")
    links = re.findall(r"\]\(([^)\s]+)\)", published)
    assert links
    assert all(re.match("https://|#", link) for link in links)
    own = [link.removeprefix(f"{ADDRESS}/blob/v1.2.3/") for link in links if link.startswith(ADDRESS)]
    assert "docs/http.md" in own
    assert all((ROOT / link.partition("#")[0]).exists() for link in own)
    assert published.replace(f"{ADDRESS}/blob/v1.2.3/", "") == readme


def test_urls_are_the_only_change_of_the_project():
    text = (ROOT / "pyproject.toml").read_text()
    published = tomllib.loads(release.with_urls(text, ADDRESS, "1.2.3"))
    assert published["project"].pop("urls") == {
        "Repository": ADDRESS,
        "Issues": f"{ADDRESS}/issues",
        "Changelog": f"{ADDRESS}/blob/v1.2.3/docs/changelog.md",
    }
    assert published == tomllib.loads(text)


@pytest.mark.parametrize("address", ["", "code.example/events", "https://code.example", "https://a b/c"])
def test_an_address_that_is_none_is_refused(address):
    script = [sys.executable, ROOT / ".ci/release.py", address]
    refused = subprocess.run(script, capture_output=True, text=True, check=False)
    assert refused.returncode == 1
    assert "give it as https://HOST/OWNER/NAME" in refused.stderr
