"""The forwarder: what a statement selects, sent on as it arrives, at least once."""
