"""The parts of a catalog in an object store: conditional puts, the lease, and the shipped log, manifests and segments.
"""
