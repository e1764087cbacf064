"""In-memory events that are in the log but in no segment yet."""
