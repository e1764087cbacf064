"""What every other room may use: allowances, common types, merging, interrupts."""
