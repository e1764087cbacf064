"""The in-memory state of a catalog."""
