"""What of a catalog lies in an object store: conditional puts, the lease, shipped log, manifests and segments."""
