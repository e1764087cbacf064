"""Records of streams: positions, windows of reading, tails, truncation."""
