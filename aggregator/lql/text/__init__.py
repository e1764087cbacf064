"""Numbers, times and patterns as written in statements, and their comparison with texts."""
