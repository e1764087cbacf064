"""What makes a catalog work: the writer, and readers that follow it."""
