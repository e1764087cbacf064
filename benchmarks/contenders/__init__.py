"""One module per contender, and which of them are installed here."""
