"""Numbers, times and patterns as statements write them, and texts that match them."""
