"""Settings of a server, and where they come from."""
