"""Sealing: the memtable becomes segments."""
