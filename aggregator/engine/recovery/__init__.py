"""Recovery: opening after a crash, and rebuilding a lost manifest."""
