"""Writers that send events in the background, in batches."""
