"""Build backend: setuptools', extended to find a C compiler for `esformat/core` wherever pip runs.

It uses the machine's compiler. Only if none works, it makes pip install Zig's, the package `ziglang`.
`--config-settings glibc=2.17` builds a wheel for every Linux with that glibc or newer, always with Zig.
"""

from __future__ import annotations

import os
import platform
import shlex
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

from setuptools import build_meta

__all__ = [
    "build_editable",
    "build_sdist",
    "build_wheel",
    "get_requires_for_build_editable",
    "get_requires_for_build_sdist",
    "get_requires_for_build_wheel",
    "prepare_metadata_for_build_editable",
    "prepare_metadata_for_build_wheel",
]

OLDEST_GLIBC = "2.17"  # from 2013; pyarrow's wheels need a newer one
OPTIONS = "-O3 -fwrapv -DNDEBUG -g0"  # Python's own without -g; setuptools uses CFLAGS instead of those
_TRIAL = '#include <stdlib.h>\nint trial(void) { return atoi("1"); }\n'

build_sdist = build_meta.build_sdist
get_requires_for_build_sdist = build_meta.get_requires_for_build_sdist
prepare_metadata_for_build_wheel = build_meta.prepare_metadata_for_build_wheel
prepare_metadata_for_build_editable = build_meta.prepare_metadata_for_build_editable

Settings = dict[str, Any] | None


def get_requires_for_build_wheel(config_settings: Settings = None) -> list[str]:
    """The packages that the build needs in addition to `requires` of pyproject.toml."""
    _check_system()
    return ["ziglang>=0.13"] if _wants_zig(config_settings) else []


get_requires_for_build_editable = get_requires_for_build_wheel


def build_wheel(directory: str, config_settings: Settings = None, metadata: str | None = None) -> str:
    """Build a wheel with the compiled core."""
    glibc = (config_settings or {}).get("glibc")
    _choose_compiler(config_settings)
    options = {"--build-option": [f"--plat-name={_tag(glibc)}"]} if glibc else None
    return build_meta.build_wheel(directory, options, metadata)


def build_editable(directory: str, config_settings: Settings = None, metadata: str | None = None) -> str:
    """Build an editable install; the compiled core is stored next to its source."""
    _choose_compiler(config_settings)
    return build_meta.build_editable(directory, None, metadata)


def _check_system() -> None:
    """Exit with a one-line message if the system is not supported, or Python's headers are missing."""
    if sys.platform == "win32":
        sys.exit("esformat is for Linux and macOS: on Windows install it in WSL")
    folder = sysconfig.get_path("include")
    if not (Path(folder) / "Python.h").exists():
        sys.exit(
            f"esformat's core needs Python's headers, and {folder} has none: install python3-dev (Debian, Ubuntu), "
            "python3-devel (Fedora, SUSE) or python3 with headers of your system, then try again"
        )


def _wants_zig(config_settings: Settings) -> bool:
    if (config_settings or {}).get("glibc"):
        return True
    if _works(_own_compiler()):
        return False
    if sys.platform != "linux":
        sys.exit("esformat's core needs a C compiler: install one (macOS: xcode-select --install), then try again")
    return True


def _own_compiler() -> list[str]:
    """The compiler in CC, or that Python was built with if it works, or `cc`."""
    named = os.environ.get("CC")
    if named:
        return shlex.split(named)
    built_with = shlex.split(sysconfig.get_config_var("CC") or "cc")
    return built_with if _works(built_with) else ["cc"]


def _works(command: list[str]) -> bool:
    """Whether a compiler can compile and link: one without the system's headers cannot."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "trial.c"
        source.write_text(_TRIAL)
        try:
            done = subprocess.run(
                [*command, "-shared", "-fPIC", str(source), "-o", str(source.with_suffix(".so"))],
                stdin=subprocess.DEVNULL, capture_output=True, check=False,
            )  # fmt: skip
        except OSError:
            return False
        return done.returncode == 0


def _choose_compiler(config_settings: Settings) -> None:
    """Set the compiler and its options in the environment, where setuptools finds them."""
    os.environ.setdefault("CFLAGS", OPTIONS)
    if not _wants_zig(config_settings):
        os.environ["CC"] = shlex.join(_own_compiler())
        return
    glibc = (config_settings or {}).get("glibc", OLDEST_GLIBC)
    libc = f"gnu.{glibc}" if platform.libc_ver()[0] == "glibc" else "musl"
    # Python's headers may be in a directory per machine, as on Debian, which only the system's compiler searches.
    headers = str(Path(sysconfig.get_path("include")).parent)
    target = ["-target", f"{platform.machine()}-linux-{libc}", "-idirafter", headers]
    zig = shlex.join([sys.executable, "-m", "ziglang", "cc", *target])
    os.environ["CC"] = zig
    os.environ["LDSHARED"] = f"{zig} -shared"


def _tag(glibc: str) -> str:
    return f"manylinux_{glibc.replace('.', '_')}_{platform.machine()}"
