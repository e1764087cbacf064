"""Encoding and decoding: one structure of the file format per module. No input or output."""
