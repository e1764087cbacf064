"""Read segments: their events as objects and as columns."""
