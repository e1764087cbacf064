"""What pyproject.toml cannot say: each module of `esformat/core` is an extension, compiled from Python by Cython."""

from pathlib import Path

from setuptools import Extension, setup

PLAIN = {"__init__", "built"}

setup(
    ext_modules=[
        Extension(f"esformat.core.{source.stem}", [str(source)])
        for source in sorted(Path("esformat/core").glob("*.py"))
        if source.stem not in PLAIN
    ],
    options={"build_ext": {"cython_c_in_temp": True}},  # no generated C beside the sources
)
