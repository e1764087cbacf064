"""Tools on whole segments: each makes a new file and leaves the old one as it is."""

from esformat.tools.erase import Check, EraseReport, erase
from esformat.tools.merge import merge
from esformat.tools.new_segment import Made
from esformat.tools.recompress import recompress
from esformat.tools.reindex import reindex
from esformat.tools.split import split

__all__ = ["Check", "EraseReport", "Made", "erase", "merge", "recompress", "reindex", "split"]
