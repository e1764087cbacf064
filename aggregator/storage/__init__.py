"""What a catalog keeps, on disk and in memory."""
