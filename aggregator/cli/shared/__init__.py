"""Code that several subcommands share: opening a catalog or a server, printing results."""
