"""Parse text to statements, and render statements as text."""
