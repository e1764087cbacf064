"""Refuses a core that was not compiled: a checkout that nobody installed."""

from __future__ import annotations

import os
from importlib.machinery import ExtensionFileLoader, PathFinder

_HERE = __file__.rpartition(os.sep)[0]
_found = PathFinder.find_spec("esformat.core.numbers", [_HERE])

if _found is None or not isinstance(_found.loader, ExtensionFileLoader):
    raise ImportError(f"{_HERE} is not compiled: run `make`, or `pip install --editable .` there")
