"""Tables for people, for other commands over events. Apart from `parts`, since rich is slow to import."""

from esformat.cli.table import show_rows, show_table

__all__ = ["show_rows", "show_table"]
