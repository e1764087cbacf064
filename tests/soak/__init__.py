"""Long runs of what the tests check in a slice; each module prints its figures and fails if a promise is broken."""
