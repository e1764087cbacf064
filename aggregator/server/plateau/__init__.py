"""Topics as plateau's clients see them: any Arrow schema that begins with `time`, records numbered from 0, pages."""
