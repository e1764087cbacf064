"""The build of the compiled core: the choice of the compiler, and the errors if a part is missing."""

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
    """With a working compiler nothing is fetched from the package index."""
    monkeypatch.setattr(backend, "_works", lambda command: command == ["mycc", "-m64"])
    monkeypatch.setenv("CC", "mycc -m64")
    assert backend.get_requires_for_build_wheel() == []
    assert backend.get_requires_for_build_editable() == []


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a compiler of the system is asked for")
def test_zig_where_there_is_no_compiler(backend, monkeypatch):
    """A compiler that is missing or fails is replaced by Zig."""
    for missing in ("/no/such/compiler", shutil.which("false")):
        monkeypatch.setenv("CC", str(missing))
        (required,) = backend.get_requires_for_build_wheel()
        assert required.startswith("ziglang")


def test_other_systems(backend, monkeypatch):
    """Windows is refused before anything is compiled: files are locked and read in the way of Linux and macOS."""
    monkeypatch.setattr(backend.sys, "platform", "win32")
    with pytest.raises(SystemExit, match="WSL"):
        backend.get_requires_for_build_wheel()


def test_zig_for_wheels_of_old_systems(backend, monkeypatch):
    """Wheels for old systems use Zig: any other compiler would link to this machine's C library."""
    monkeypatch.setattr(backend, "_works", lambda command: True)
    (required,) = backend.get_requires_for_build_wheel({"glibc": "2.17"})
    assert required.startswith("ziglang")


@pytest.mark.skipif(shutil.which("cc") is None, reason="headers are looked for by the system's compiler")
def test_zig_finds_headers_in_directories_by_machine(backend, monkeypatch, tmp_path):
    """Zig finds the headers in a directory per machine, which Debian's `pyconfig.h` names and Zig does not search."""
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
        monkeypatch.setenv(name, "")  # set by the build, restored after the test
    command = shlex.split(backend.build_wheel("anywhere", {"glibc": "2.17"}))
    options = command[command.index("-target") + 2 :]
    read = ["cc", "-nostdinc", "-E", f"-I{headers}", *options, str(source)]
    assert subprocess.run(read, capture_output=True, check=False).returncode == 0


def test_the_compiler_is_told_to_optimise(backend, monkeypatch):
    """CFLAGS, which replaces Python's own options, keeps the optimisation; without it the core has half the speed."""
    monkeypatch.delenv("CFLAGS", raising=False)
    monkeypatch.setattr(backend, "_works", lambda command: True)
    monkeypatch.setattr(backend.build_meta, "build_editable", lambda *_: shlex.join(_compile_command()))
    options = shlex.split(backend.build_editable("anywhere"))
    assert {"-O3", "-fwrapv", "-DNDEBUG"} <= set(options)


def _compile_command() -> list[str]:
    """The compiler command of setuptools in the current environment."""
    compiler = new_compiler()
    customize_compiler(compiler)
    return [*compiler.compiler_so]


def test_headers_are_missing(backend, monkeypatch, tmp_path):
    """If headers are missing, one line says what to install, before anything is fetched."""
    monkeypatch.setattr(backend.sysconfig, "get_path", lambda name: str(tmp_path))
    with pytest.raises(SystemExit, match="install python3-dev"):
        backend.get_requires_for_build_wheel()


def test_a_checkout_that_nobody_compiled(tmp_path):
    """An uncompiled checkout is refused in one sentence, so that no one gets a slow version unasked."""
    shutil.copytree(CORE, tmp_path / "esformat" / "core", ignore=shutil.ignore_patterns("*.so", "*.pyd", "__pycache__"))
    (tmp_path / "esformat" / "__init__.py").touch()
    command = [sys.executable, "-c", "import esformat.core.numbers"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].endswith("is not compiled: run `make`, or `pip install --editable .` there")


def test_every_module_is_compiled():
    """pyproject.toml names each module of the core, because setuptools does not accept patterns there."""
    named = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["ext-modules"]
    expected = [{"name": f"esformat.core.{name}", "sources": [f"esformat/core/{name}.py"]} for name in MODULES]
    shared = {"name": "esformat.core.shared", "sources": ["esformat/core/esformat.core.shared.c"]}  # generated
    assert sorted(named, key=lambda one: one["name"]) == sorted([*expected, shared], key=lambda one: one["name"])


@pytest.mark.parametrize("name", MODULES)
def test_the_core_is_compiled_from_its_sources(name):
    """The compiled modules are newer than their sources; otherwise these tests would test an older core."""
    compiled = Path(str(import_module(f"esformat.core.{name}").__file__))
    assert compiled.suffix in (".so", ".pyd")
    assert compiled.stat().st_mtime >= (CORE / f"{name}.py").stat().st_mtime, f"{name} was changed: run `make`"
