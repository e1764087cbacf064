"""The environment of a run: machine and library versions."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.contenders.protocol import Contender


def _first_value(path: Path, key: str) -> str:
    """The first value of a key in a file of `key: value` lines; empty if not found."""
    if not path.exists():
        return ""
    lines = (line.partition(":") for line in path.read_text().splitlines())
    return next((value.strip() for name, _, value in lines if name.strip() == key), "")


def describe(contenders: Iterable[Contender]) -> dict[str, Any]:
    """Describe machine, versions and time for the report."""
    memory_kib = _first_value(Path("/proc/meminfo"), "MemTotal").split()
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "cpu": _first_value(Path("/proc/cpuinfo"), "model name") or platform.processor(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory_gib": round(int(memory_kib[0]) / (1 << 20), 1) if memory_kib else None,
        "kernel": f"{platform.system()} {platform.release()}",
        "load_before": round(os.getloadavg()[0], 2),
        "python": platform.python_version(),
        "libraries": {"numpy": np.__version__, "pyarrow": pa.__version__},
        "contenders": {contender.name: contender.version() for contender in contenders},
    }


def processes(pid: int) -> list[int]:
    """A process and its direct children. Linux only."""
    lists = [path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/children")]
    return [pid, *map(int, " ".join(lists).split())]


def resident_mib(field: str) -> float:
    """Current (VmRSS) or peak (VmHWM) resident memory: the sum for this process and its children."""
    found = 0
    for pid in processes(os.getpid()):
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        found += int(next(line for line in lines if line.startswith(field)).split()[1])
    return found / 1024
