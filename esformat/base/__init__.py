"""What every room may use: how commands start and names load, missing extras, locks after forks, sizes and HTML."""
