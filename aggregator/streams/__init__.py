"""Records of streams: positions, reading in windows, tails, truncation."""
