"""Bytes to values and back: one structure of a file a module. No input or output."""
