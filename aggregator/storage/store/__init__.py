"""A catalog in an object store: conditional puts, the lease, and the shipped log, manifests and segments."""
