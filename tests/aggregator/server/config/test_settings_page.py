"""The operators' documentation lists every setting."""

from __future__ import annotations

import re
from pathlib import Path

from aggregator.server.config.sources import KEYS, read_file, settings_of

PAGE = (Path(__file__).parents[4] / "docs" / "server.md").read_text("utf-8")


def test_every_key_is_listed():
    """The table lists exactly the keys of the settings."""
    table = PAGE.split("## Settings")[1].split("## ")[0]
    rows = [line for line in table.splitlines() if line.startswith("| `")]
    listed = [name for row in rows for name in re.findall(r"`([^`]+)`", row.split("|")[1])]
    assert sorted(listed) == sorted(KEYS)


def test_the_unit_and_its_file_fit(tmp_path):
    """The file that the systemd unit names can be read."""
    text = re.search(r"```toml\n# /etc/aggregator.toml\n(.*?)```", PAGE, re.DOTALL)[1]
    (tmp_path / "a.toml").write_text(text)
    settings = settings_of(read_file(tmp_path / "a.toml"))
    assert str(settings.data_path) == "/var/lib/aggregator/data"
    assert settings.catalog.limits.max_bytes == 200 << 30
