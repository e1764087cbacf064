"""A catalog's log and manifest on their way to a store and back: shipped, followed, restored, taken over."""
