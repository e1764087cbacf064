"""How the modules of the compiled core are built: setuptools' command, as Cython extends it."""

from __future__ import annotations

from Cython.Distutils import build_ext

__all__ = ["BuildExt"]

SHARED = "esformat.core.shared"
"""The module that Cython generates for the code that all others would contain: memory views, functions, errors. It
saves two fifths of the time to compile and half of the size.
"""


class BuildExt(build_ext):  # type: ignore[misc]
    """Build the shared module, then all others at the same time."""

    def initialize_options(self) -> None:
        """Set the options, whatever started the build: as many compilers as processors, no C beside the sources."""
        super().initialize_options()
        self.parallel = True
        self.cython_c_in_temp = True
        self.shared_utility_qualified_name = SHARED

    def build_extensions(self) -> None:
        """Build one after the other: while Cython generates the shared module, it would generate others wrongly."""
        every = self.extensions
        for part in ([e for e in every if e.name == SHARED], [e for e in every if e.name != SHARED]):
            self.extensions = part
            super().build_extensions()
        self.extensions = every
