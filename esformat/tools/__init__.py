"""Tools for whole segments. Those that change a segment write a new file and leave the original unchanged."""

from esformat.tools.diff import DiffReport, SpaceDiff, diff
from esformat.tools.erase import Check, EraseReport, erase
from esformat.tools.merge import merge
from esformat.tools.new_segment import NewSegment
from esformat.tools.recompress import recompress
from esformat.tools.reindex import reindex
from esformat.tools.repair import RepairReport, repair
from esformat.tools.split import split

__all__ = [
    "Check",
    "DiffReport",
    "EraseReport",
    "NewSegment",
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
