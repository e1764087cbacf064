"""Refuse to import a core that is not compiled, as in a checkout that was never installed."""

from __future__ import annotations

import os
from importlib.machinery import ExtensionFileLoader, PathFinder

_HERE = __file__.rpartition(os.sep)[0]
_found = PathFinder.find_spec("esformat.core.numbers", [_HERE])

if _found is None or not isinstance(_found.loader, ExtensionFileLoader):
    raise ImportError(f"{_HERE} is not compiled: run `make`, or `pip install --editable .` there")
