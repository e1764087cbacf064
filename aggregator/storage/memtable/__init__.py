"""Events that are in the log and in no segment yet, in memory."""
