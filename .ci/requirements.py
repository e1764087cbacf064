"""Print the requirements of the package and of one extra in pyproject.toml, one per line.

`make` runs pip on these while another pip compiles the core; given the package, pip would do one after the other.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

PYPROJECT = Path(__file__).parents[1] / "pyproject.toml"


def requirements(project: dict[str, Any], extra: str) -> set[str]:
    """The requirements of the package, and those of an extra, including the extras that it names in turn."""
    return {*project["dependencies"], *_of(project, extra)}


def _of(project: dict[str, Any], extra: str) -> Iterator[str]:
    for requirement in project["optional-dependencies"][extra]:
        named = re.fullmatch(rf"{project['name']}\[(.+)\]", requirement)
        if named is None:
            yield requirement
        else:
            for other in named[1].split(","):
                yield from _of(project, other.strip())


if __name__ == "__main__":
    found = requirements(tomllib.loads(PYPROJECT.read_text("utf-8"))["project"], sys.argv[1])
    sys.stdout.write("".join(f"{each}\n" for each in sorted(found)))
