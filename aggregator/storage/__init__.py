"""The state of a catalog, on disk and in memory."""
