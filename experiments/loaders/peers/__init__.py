"""Other loaders, behind the same protocol as ours so that they are measured alike."""
