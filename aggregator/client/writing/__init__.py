"""Events sent in the background, in batches."""
