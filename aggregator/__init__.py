"""The embedded aggregator: events taken in durably, rolled into segments under a manifest, kept within bounds, read."""
