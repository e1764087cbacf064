"""Apply conditions, groups and measures to batches."""
