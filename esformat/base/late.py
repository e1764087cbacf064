"""What imports leave to a first use, in a process that a command has to itself: it starts in half the time.

Nothing else changes: modules, classes and methods do what they do without this, once somebody uses them.

- A dataclass of Python 3.11 and 3.12 compiles each of its methods by itself, six for a frozen one. Of the thousand
  that a server has at its start, few are ever called.
- A module of `_SLOW` is loaded when somebody asks for the first of its names. `pyarrow.compute` makes a Python function
  for each of Arrow's. Two of NumPy give its compiled functions their docstrings; no program asks for those.
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
    """From now on, compile the methods of dataclasses when they are called, and load slow modules when they are used.

    more: modules that are loaded so besides those of `_SLOW`.
    """
    _compile_late()
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder({*_SLOW, *more}))


# ------------------------------------------------------------ methods


def _compile_late() -> None:
    """Python 3.13 and later compile all methods of a class at once, with functions of other names: left alone."""
    module = vars(dataclasses)
    compiled = module.get("_create_fn")
    if compiled is not None and compiled.__module__ == dataclasses.__name__:
        module["_create_fn"] = lambda name, *given, **named: _method(name, lambda: compiled(name, *given, **named))


def _method(name: str, compiled: Callable[[], Callable[..., Any]]) -> Callable[..., Any]:
    """A method that puts the compiled one in its own place when it is called first."""

    def method(self: Any, *given: Any, **named: Any) -> Any:
        made = compiled()
        made.__qualname__ = method.__qualname__  # which errors name
        for each in type(self).__mro__:
            if vars(each).get(name) is method:
                setattr(each, name, made)
        return made(self, *given, **named)

    method.__name__ = name
    return method


# ------------------------------------------------------------ modules


class _Finder:
    """Finds modules that stand for those of some names, each until it is used."""

    def __init__(self, names: set[str]) -> None:
        self.names = names
        self.lock = RLock()

    def find_spec(self, name: str, _path: object = None, _target: object = None) -> ModuleSpec | None:
        # A loader by what it does: the base class is in a module that takes milliseconds.
        return ModuleSpec(name, self) if name in self.names else None  # type: ignore[arg-type]

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _Late(spec.name, self)

    def exec_module(self, module: ModuleType) -> None:
        """Nothing yet."""

    def load(self, late: ModuleType) -> ModuleType:
        """The module that another stands for."""
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
        if name.startswith("__") and name != "__all__":  # what is looked for in every module that there is
            raise AttributeError(name)
        found = getattr(self.__finder.load(self), name)
        setattr(self, name, found)
        return found
