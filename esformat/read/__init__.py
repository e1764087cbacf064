"""An open segment: its events, as objects and as columns."""
