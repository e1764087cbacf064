"""What bodies of several formats share: media types, errors, times, records."""
