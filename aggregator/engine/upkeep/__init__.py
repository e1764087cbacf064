"""What a catalog does by itself: retention, compaction, erasure."""
