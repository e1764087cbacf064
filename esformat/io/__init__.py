"""Storage: local files, object stores, and atomic writes to them."""
