"""A catalog whose files change only by calls of a test, and a guard for tests that read the files of other catalogs."""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any
from unittest import mock

import aggregator
from aggregator.engine.upkeep.scheduler import Scheduler

_TESTS = str(Path(__file__).parents[1])
_LIBRARY = str(Path(os.__file__).parent)


def still(catalog: aggregator.Catalog) -> aggregator.Catalog:
    """Stop a catalog's background work: seals, merges, copies of the manifest. Explicit calls still do them."""
    catalog._backend.scheduler.stop()
    return catalog


@contextlib.contextmanager
def no_background() -> Iterator[None]:
    """Catalogs that are opened within this context do no background work at all."""
    begin = Scheduler.__init__

    def begin_and_end(self: Scheduler, *given: Any, **named: Any) -> None:
        begin(self, *given, **named)
        self.stop()

    with mock.patch.multiple(Scheduler, _run=mock.Mock(), __init__=begin_and_end):
        yield


def files_of(root: Path) -> dict[Path, os.stat_result]:
    """The files below a directory, even while it changes: files that disappear meanwhile are left out."""
    found = {}
    for folder, _, names in os.walk(root):
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                found[Path(folder, name)] = Path(folder, name).stat()
    return found


def guard_walks() -> None:
    """Refuse, from now on, that a test copies or walks all files of a catalog that is open and not `still`.

    The background work renames files at any time: such a test fails once in a thousand runs, so it should always fail.
    A walk for certain names, such as `*.esdb`, is allowed. Audit hooks are not used: with one in Python, CPython 3.11
    refuses a trace function while another thread sets one, and under coverage threads end before they begin.
    """
    for owner, name in ((shutil, "copytree"), (shutil, "copyfile"), (Path, "glob"), (Path, "rglob")):
        setattr(owner, name, _guarded(getattr(owner, name)))


def _guarded(walk: Callable[..., Any]) -> Callable[..., Any]:
    """A function of the standard library that first checks whether a test may call it."""

    @functools.wraps(walk)
    def guarded(source: Any, *given: Any, **named: Any) -> Any:
        everything = walk.__name__.startswith("copy") or given[:1] in (("*",), ("**/*",))
        if everything and _is_of_a_test(sys._getframe(1)):
            _check(source)
        return walk(source, *given, **named)

    return guarded


def _check(source: Any) -> None:
    path = Path(os.path.abspath(source))  # noqa: PTH100  without following links
    for root in _busy_roots():
        if root == path or root in path.parents or path in root.parents:
            raise AssertionError(f"the catalog in {root} may change its files meanwhile: make it `still` before")


def _is_of_a_test(frame: FrameType | None) -> bool:
    """Whether a test or its helper called the standard library."""
    while frame is not None and frame.f_code.co_filename.startswith((_LIBRARY, "<", __file__)):
        if "site-packages" in frame.f_code.co_filename:
            return False
        frame = frame.f_back
    return frame is not None and frame.f_code.co_filename.startswith(_TESTS)


def _busy_roots() -> Iterator[Path]:
    """The roots of the catalogs with active background work in this process."""
    for thread in threading.enumerate():
        if thread.name == "aggregator-maintenance":
            work = getattr(getattr(thread, "_target", None), "__self__", None)
            if work is not None and not work._stopping:
                yield work._sealer._layout.root
