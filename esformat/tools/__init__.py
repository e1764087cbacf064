"""Tools on whole segments: each makes a new file and leaves the old one as it is."""

from esformat.tools.diff import DiffReport, SpaceDiff, diff
from esformat.tools.erase import Check, EraseReport, erase
from esformat.tools.merge import merge
from esformat.tools.new_segment import Made
from esformat.tools.recompress import recompress
from esformat.tools.reindex import reindex
from esformat.tools.repair import RepairReport, repair
from esformat.tools.split import split

__all__ = [
    "Check",
    "DiffReport",
    "EraseReport",
    "Made",
    "RepairReport",
    "SpaceDiff",
    "diff",
    "erase",
    "merge",
    "recompress",
    "reindex",
    "repair",
    "split",
]
