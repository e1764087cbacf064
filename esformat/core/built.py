"""Refuses a core that was not compiled: a checkout that nobody installed."""

from __future__ import annotations

from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

_HERE = Path(__file__).parent

if not any((_HERE / f"numbers{suffix}").exists() for suffix in EXTENSION_SUFFIXES):
    raise ImportError(f"{_HERE} is not compiled: run `make`, or `pip install --editable .` there")
