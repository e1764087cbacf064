"""The compiled core: converts between bytes, arrays and events. No files, sockets or threads; only `commits` writes, to
descriptors that it receives.

Python with Cython's types, compiled when the package is installed. CONTRIBUTING.md says how to build and debug it.
"""

from esformat.core import built as built
from esformat.core import numbers as numbers

__all__ = ["numbers"]
