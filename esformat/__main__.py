"""The `esdb` command, also as `python -m esformat`. It needs the extra `cli`; the rest of the package does not."""

from __future__ import annotations

import signal
import sys
from types import FrameType
from typing import NoReturn

_NEEDED = ("click", "rich")


def main() -> NoReturn:
    """Run the command line and exit with its status: 0, 1 where a problem was found, 2 for wrong usage."""
    try:
        from esformat.cli import run  # here, since click and rich may be missing
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] not in _NEEDED:
            raise
        sys.stderr.write("esdb: the command line is not installed: pip install 'esformat[cli]'\n")
        sys.exit(2)
    # A terminated command leaves as an interrupted one does: through the code that removes unfinished files.
    signal.signal(signal.SIGTERM, _leave)
    sys.exit(run(sys.argv[1:]))


def _leave(number: int, frame: FrameType | None) -> NoReturn:
    sys.exit(128 + number)


if __name__ == "__main__":
    main()
