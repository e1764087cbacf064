"""What a server permits and limits: access, threads, memory, health."""
