"""The files under a catalog's root: places, locks, pins, room on the disk."""
