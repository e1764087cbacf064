"""Defer costly imports to first use, in the process of a command: it starts in half the time.

Nothing else changes: modules, classes and methods behave as usual once they are used.

- In Python 3.11 and 3.12 a dataclass compiles each of its methods separately, six for a frozen one. A server has about
  a thousand of them at startup, few of which are ever called.
- The modules in `_SLOW` are loaded when one of their names is first used. `pyarrow.compute` creates a Python function
  for each Arrow function. Two NumPy modules add docstrings to its compiled functions, which no program reads.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.machinery import ModuleSpec
from threading import RLock
from types import ModuleType
from typing import Any

_SLOW = (
    "difflib",
    "html",
    "http.client",
    "logging.config",
    "numpy._core._add_newdocs",
    "numpy._core._add_newdocs_scalars",
    "pyarrow.compute",
    "tomllib",
)


def import_late(more: Sequence[str] = ()) -> None:
    """From now on, compile methods of dataclasses when they are first called, and load slow modules when first used.

    more: further modules to load on first use, besides those in `_SLOW`.
    """
    _compile_late()
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder({*_SLOW, *more}))


# ------------------------------------------------------------ methods


def _compile_late() -> None:
    """Defer compiling methods of dataclasses. Does nothing in Python 3.13 and later, which compile them together."""
    module = vars(dataclasses)
    compiled = module.get("_create_fn")
    if compiled is not None and compiled.__module__ == dataclasses.__name__:
        module["_create_fn"] = lambda name, *given, **named: _method(name, lambda: compiled(name, *given, **named))


def _method(name: str, compiled: Callable[[], Callable[..., Any]]) -> Callable[..., Any]:
    """A stand-in for a method: its first call replaces it with the compiled method."""

    def method(self: Any, *given: Any, **named: Any) -> Any:
        made = compiled()
        made.__qualname__ = method.__qualname__  # errors show this name
        for each in type(self).__mro__:
            if vars(each).get(name) is method:
                setattr(each, name, made)
        return made(self, *given, **named)

    method.__name__ = name
    return method


# ------------------------------------------------------------ modules


class _Finder:
    """An import finder that returns placeholders for some modules; each loads its module on first use."""

    def __init__(self, names: set[str]) -> None:
        self.names = names
        self.lock = RLock()

    def find_spec(self, name: str, _path: object = None, _target: object = None) -> ModuleSpec | None:
        # A loader by duck typing: importing the module of the base class takes milliseconds.
        return ModuleSpec(name, self) if name in self.names else None  # type: ignore[arg-type]

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _Late(spec.name, self)

    def exec_module(self, module: ModuleType) -> None:
        """Do nothing: `load` runs the module."""

    def load(self, late: ModuleType) -> ModuleType:
        """Import the module that a placeholder stands for."""
        with self.lock:
            self.names.discard(late.__name__)
            if sys.modules.get(late.__name__) is late:
                del sys.modules[late.__name__]
            return import_module(late.__name__)


class _Late(ModuleType):
    def __init__(self, name: str, finder: _Finder) -> None:
        super().__init__(name)
        self.__finder = finder

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name != "__all__":  # Python looks these up in every module
            raise AttributeError(name)
        found = getattr(self.__finder.load(self), name)
        setattr(self, name, found)
        return found
