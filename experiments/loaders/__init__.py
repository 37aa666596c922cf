"""Our loader beside those of others."""
