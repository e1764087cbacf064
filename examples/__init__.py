"""Programs to look at and to run, from a checkout: they are not installed."""
