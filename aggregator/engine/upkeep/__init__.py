"""Automatic upkeep of a catalog: retention, compaction, erasure."""
