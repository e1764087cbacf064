"""Opening after a crash, and rebuilding what was lost."""
