"""How the compiled core is built: with which compiler, and what somebody reads who has none of what it takes."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import tomllib
from importlib import import_module
from pathlib import Path

import pytest
from setuptools._distutils.ccompiler import new_compiler
from setuptools._distutils.sysconfig import customize_compiler

ROOT = Path(__file__).parents[2]
CORE = ROOT / "esformat" / "core"
MODULES = sorted(source.stem for source in CORE.glob("*.py") if source.stem not in ("__init__", "built"))


@pytest.fixture
def backend(monkeypatch):
    """The build backend, as pip imports it."""
    monkeypatch.syspath_prepend(ROOT / ".ci")
    return import_module("backend")


def test_a_compiler_that_works_is_taken(backend, monkeypatch):
    """Nothing is asked of the package index then."""
    monkeypatch.setattr(backend, "_works", lambda command: command == ["mycc", "-m64"])
    monkeypatch.setenv("CC", "mycc -m64")
    assert backend.get_requires_for_build_wheel() == []
    assert backend.get_requires_for_build_editable() == []


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a compiler of the system is asked for")
def test_zig_where_there_is_no_compiler(backend, monkeypatch):
    """Neither one that is missing counts as a compiler, nor one that fails."""
    for missing in ("/no/such/compiler", shutil.which("false")):
        monkeypatch.setenv("CC", str(missing))
        (required,) = backend.get_requires_for_build_wheel()
        assert required.startswith("ziglang")


def test_other_systems(backend, monkeypatch):
    """Files are locked and read as Linux and macOS do it: Windows is told so before anything is compiled."""
    monkeypatch.setattr(backend.sys, "platform", "win32")
    with pytest.raises(SystemExit, match="WSL"):
        backend.get_requires_for_build_wheel()


def test_zig_for_wheels_of_old_systems(backend, monkeypatch):
    """Whatever compiler there is: it would link to this machine's C library."""
    monkeypatch.setattr(backend, "_works", lambda command: True)
    (required,) = backend.get_requires_for_build_wheel({"glibc": "2.17"})
    assert required.startswith("ziglang")


@pytest.mark.skipif(shutil.which("cc") is None, reason="headers are looked for by the system's compiler")
def test_zig_finds_headers_in_directories_by_machine(backend, monkeypatch, tmp_path):
    """Debian's `pyconfig.h` names one below another directory of the system, where Zig does not look by itself."""
    headers, here = tmp_path / "python3", tmp_path / "some-machine"
    for folder in (headers, here):
        folder.mkdir()
        (folder / "pyconfig.h").touch()
    (headers / "Python.h").write_text("#include <some-machine/pyconfig.h>\n")
    source = tmp_path / "core.c"
    source.write_text("#include <Python.h>\n")
    monkeypatch.setattr(backend.sysconfig, "get_path", lambda name: str(headers))
    monkeypatch.setattr(backend.build_meta, "build_wheel", lambda *_: os.environ["CC"])
    for name in ("CC", "LDSHARED", "CFLAGS"):
        monkeypatch.setenv(name, "")  # set by the build, and taken back after the test
    command = shlex.split(backend.build_wheel("anywhere", {"glibc": "2.17"}))
    options = command[command.index("-target") + 2 :]
    read = ["cc", "-nostdinc", "-E", f"-I{headers}", *options, str(source)]
    assert subprocess.run(read, capture_output=True, check=False).returncode == 0


def test_the_compiler_is_told_to_optimise(backend, monkeypatch):
    """CFLAGS takes the place of Python's own options, of which a core at half the speed would miss the first."""
    monkeypatch.delenv("CFLAGS", raising=False)
    monkeypatch.setattr(backend, "_works", lambda command: True)
    monkeypatch.setattr(backend.build_meta, "build_editable", lambda *_: shlex.join(_compile_command()))
    options = shlex.split(backend.build_editable("anywhere"))
    assert {"-O3", "-fwrapv", "-DNDEBUG"} <= set(options)


def _compile_command() -> list[str]:
    """How setuptools would call the compiler, by what the environment says now."""
    compiler = new_compiler()
    customize_compiler(compiler)
    return [*compiler.compiler_so]


def test_headers_are_missing(backend, monkeypatch, tmp_path):
    """One line says what to install, before anything is fetched."""
    monkeypatch.setattr(backend.sysconfig, "get_path", lambda name: str(tmp_path))
    with pytest.raises(SystemExit, match="install python3-dev"):
        backend.get_requires_for_build_wheel()


def test_a_checkout_that_nobody_compiled(tmp_path):
    """It is refused in one sentence; nobody gets a slow version without asking for it."""
    shutil.copytree(CORE, tmp_path / "esformat" / "core", ignore=shutil.ignore_patterns("*.so", "*.pyd", "__pycache__"))
    (tmp_path / "esformat" / "__init__.py").touch()
    command = [sys.executable, "-c", "import esformat.core.numbers"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].endswith("is not compiled: run `make`, or `pip install --editable .` there")


def test_every_module_is_compiled():
    """pyproject.toml names each module of the core, as setuptools takes no patterns there."""
    named = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["ext-modules"]
    expected = [{"name": f"esformat.core.{name}", "sources": [f"esformat/core/{name}.py"]} for name in MODULES]
    assert sorted(named, key=lambda one: one["name"]) == expected


@pytest.mark.parametrize("name", MODULES)
def test_the_core_is_compiled_from_its_sources(name):
    """A module that was changed since is compiled again by `make`; otherwise these tests would be of another one."""
    compiled = Path(str(import_module(f"esformat.core.{name}").__file__))
    assert compiled.suffix in (".so", ".pyd")
    assert compiled.stat().st_mtime >= (CORE / f"{name}.py").stat().st_mtime, f"{name} was changed: run `make`"
