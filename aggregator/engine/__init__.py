"""The engines behind a catalog: one that writes, and others that read."""
