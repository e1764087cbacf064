"""What a catalog knows right now."""
