"""Scans of a topic: segments and the memtable as one result."""
