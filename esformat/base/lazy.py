"""Import the names of a package on first use (PEP 562).

Commands start in a fraction of the time that pyarrow alone takes to load, and a program that uses one name of a
package does not load the rest.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from esformat.base.extras import advice


def lazily(package: str, homes: Mapping[str, str]) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """The `__getattr__` and `__dir__` of a package whose names are imported on first use.

    homes: for each module its names, separated by spaces; "name=original" if the package uses another name.
    No name may equal a module of the package, because importing that module would replace the name.
    """
    places: dict[str, tuple[str, str]] = {}
    for module, words in homes.items():
        for word in words.split():
            name, _, original = word.partition("=")
            places[name] = module, original or name

    def get(name: str) -> Any:
        if name not in places:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module, original = places[name]
        try:
            found = getattr(import_module(module), original)
        except ModuleNotFoundError as error:
            missing = advice(error, f"{package}.{name}")
            if missing is None:
                raise
            raise ModuleNotFoundError(missing, name=error.name) from None
        setattr(sys.modules[package], name, found)  # later lookups do not call this function
        return found

    def names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *places})

    return get, names
