"""What a server allows: access, threads, memory, health."""
