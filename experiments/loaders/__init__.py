"""Our loader beside those of others (`contest`), and where its time goes (`speed`); many workers."""
