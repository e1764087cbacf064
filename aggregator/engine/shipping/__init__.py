"""A catalog's log and manifest in a store: upload, follow, restore, take over."""
