"""Names of a package that are imported when somebody asks for the first of them (PEP 562).

Commands start in a fraction of the time that pyarrow alone takes to load, and a program that needs one name of a
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

    homes: by module the names that it holds, with spaces between; "name=original" where the package calls it otherwise.
    No name may be that of a module of the package: an import of that module would take its place.
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
        setattr(sys.modules[package], name, found)  # the next time it is there, without this call
        return found

    def names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *places})

    return get, names
