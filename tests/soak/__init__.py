"""Long runs of what the tests show in a slice; each module prints its figure and fails where a promise is broken."""
