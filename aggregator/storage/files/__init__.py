"""The files under a catalog's root: paths, locks, pins, disk space."""
