"""The compiled core: bytes and arrays in, arrays and events out. No files, no sockets, no threads;
`commits` alone writes to descriptors that it is given.

Python with Cython's types, compiled when the package is installed. CONTRIBUTING.md says how to build and debug it.
"""

from esformat.core import built as built
from esformat.core import numbers as numbers

__all__ = ["numbers"]
