"""Where bytes lie: local files, stores, and how files appear there whole."""
